//! Progress of today's round, kept in a file so that a restart resumes it.
//!
//! Layout:     DIR/lifecycle.json (docs/format/directory.md).
//! Durability: none is needed: a round that runs twice removes nothing more.

use std::path::{Path, PathBuf};

use margay_env::Env;
use margay_env::{checksum_line, files};
use serde_json::{Value, json};

/// The file's name in the data directory.
const NAME: &str = "lifecycle.json";
/// A day, a bucket's name and a key.
const BYTES_MAX: u64 = 64 * 1024;

/// The last page of a round that was examined.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The number of the day.
    pub day: i64,
    /// Every bucket was examined.
    pub complete: bool,
    /// Buckets whose names sort before this one were examined.
    pub bucket: String,
    /// Keys of that bucket up to this one were examined.
    pub key: Option<String>,
}

#[derive(Debug)]
pub(super) struct ProgressFile {
    env: Env,
    path: PathBuf,
}

impl ProgressFile {
    pub(super) fn new(env: &Env, data: &Path) -> ProgressFile {
        ProgressFile { env: env.clone(), path: data.join(NAME) }
    }

    /// `None`: nothing is known, so the round starts from the beginning.
    pub(super) fn read(&self) -> Option<Progress> {
        let bytes = files::read(&self.env, &self.path, BYTES_MAX).ok()?;
        let value: Value = serde_json::from_slice(checksum_line::check(&bytes).ok()?.text).ok()?;
        Some(Progress {
            day: value["day"].as_i64()?,
            complete: value["complete"].as_bool()?,
            bucket: value["bucket"].as_str()?.to_owned(),
            key: value["key"].as_str().map(str::to_owned),
        })
    }

    pub(super) fn write(&self, progress: &Progress) {
        let Progress { day, complete, bucket, key } = progress;
        let value = json!({ "day": day, "complete": complete, "bucket": bucket, "key": key });
        let bytes = checksum_line::with(value.to_string().into_bytes());
        if let Err(error) = files::replace_content(&self.env, &self.path, &bytes) {
            tracing::warn!(%error, path = %self.path.display(), "how far expiry is cannot be noted");
        }
    }
}
