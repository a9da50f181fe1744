//! What a cache has that nobody has open.
//!
//! Not here:   sending it (far_mount).

use std::path::Path;
use std::sync::Arc;

use margay_env::Env;
use margay_upstream::Backlog;
use serde_json::{Value, json};

use super::running::waiting_json;
use super::text::{FULL_DISK_ADVICE, bytes, count, full_disk};
use crate::datadir::DataDir;
use crate::datadir::cache::cache_source;
use crate::exit::Failure;
use crate::settings::StorageLimits;
use crate::wiring::Storage;

/// Reads the rows of a cache, with its lock. Must be called inside a tokio runtime; blocks.
pub fn backlog(env: &Env, cache: &Path, limits: &StorageLimits) -> Result<Backlog, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("{}: {error}", cache.display()));
    let source = cache_source(env, cache).map_err(|error| failed(&error))?;
    let (dir, _) = DataDir::open_cache(env, cache, &source)?;
    let storage = Storage::open_at_rest(dir, limits).map_err(|failure| with_disk(env, cache, limits, failure))?;
    let place = source.split_whitespace().next().unwrap_or_default();
    let prefix = place.strip_prefix("s3://").and_then(|rest| rest.split_once('/')).map_or("", |(_, prefix)| prefix);
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let read = margay_upstream::at_rest(&*storage.rows.engine(), &prefix, Arc::clone(&env.clock));
    storage.close()?;
    read.map_err(|error| failed(&error))
}

/// Why a cache cannot be opened, and whether that may be because its disk is full.
pub(super) fn with_disk(env: &Env, cache: &Path, limits: &StorageLimits, failure: Failure) -> Failure {
    match env.disk.space(cache) {
        Ok(space) if space.free_bytes < limits.reserve_bytes => {
            let full = full_disk(&cache.display().to_string(), space.free_bytes, limits.reserve_bytes);
            Failure { message: format!("{}: {full}; {FULL_DISK_ADVICE}", failure.message), ..failure }
        }
        _ => failure,
    }
}

/// As the status of a running mount.
pub fn status(env: &Env, cache: &Path, backlog: &Backlog) -> Value {
    let source = cache_source(env, cache).unwrap_or_default();
    let (place, endpoint) = source.split_once(' ').unwrap_or((&source, ""));
    let mut status = waiting_json(backlog);
    status["far"] = json!(true);
    status["running"] = json!(false);
    status["source"] = json!(place);
    status["endpoint"] = json!(endpoint);
    status["cache"] = json!(cache.display().to_string());
    status["conflicts"] = json!(backlog.conflicts);
    status
}

/// What is kept where, and how to go on.
pub fn left(cache: &Path, files: u64, size: u64) -> String {
    let (changes, size, cache) = (count(files, "change"), bytes(size), cache.display());
    let verb = if files == 1 { "is" } else { "are" };
    format!(
        "{changes} ({size}) {verb} not in the bucket yet and kept in {cache}; mount it again, or use: margay sync --cache {cache}"
    )
}
