//! Prefetch: predicts which rows a request will need and reads them in one call before it starts.
//!
//! Why:        an operation reads one row after another, each found through the last. If the path to its key is cached,
//!             all of them are known in advance, and the engine can answer them together.
//! Invariants: A1 a prediction is a hint: a row that was not prefetched is read when it is needed.
//! Not here:   how prefetched rows are used (seen, driver), the caches (path, entry_hints).

use margay_meta::Ask;
use margay_rows::key;

use crate::api::{Error, Versioning};
use crate::cache::{PathCache, split};
use crate::draft::Seen;
use crate::open::Volume;

/// What a request is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Reads facts of the bucket, or lists it.
    Bucket,
    ReadObject(&'a str),
    PutObject(&'a str),
    DeleteObject(&'a str),
}

impl Purpose<'_> {
    fn key(&self) -> &str {
        match self {
            Purpose::Bucket => "",
            Purpose::ReadObject(key) | Purpose::PutObject(key) | Purpose::DeleteObject(key) => key,
        }
    }
}

impl Volume {
    /// Prefetches the rows of a request.
    pub(crate) async fn look_ahead(&self, bucket: &str, purpose: Purpose<'_>, seen: &mut Seen) -> Result<(), Error> {
        self.fetch(self.asks_ahead(bucket, purpose), seen).await
    }

    fn asks_ahead(&self, bucket: &str, purpose: Purpose<'_>) -> Vec<Ask> {
        let bucket_row = Ask::Get { key: key::bucket(bucket) };
        if purpose == Purpose::Bucket {
            return vec![bucket_row];
        }
        let (directories, name) = split(purpose.key());
        let Some(path) = self.paths.get(&PathCache::name(bucket, directories)) else { return vec![bucket_row] };
        let mut asks = Vec::with_capacity(path.steps.len() + 4);
        asks.push(bucket_row);
        asks.extend(path.steps.iter().map(|step| Ask::Get { key: step.key.clone() }));
        let entry = key::entry(path.directory(), name.as_bytes());
        self.entry_hints.asks(&entry, !matches!(purpose, Purpose::ReadObject(_)), &mut asks);
        asks.push(Ask::Get { key: entry });
        if !matches!(purpose, Purpose::ReadObject(_)) && path.versioning != Versioning::Never {
            asks.push(first_row(key::versions_below(path.root, purpose.key(), u64::MAX)));
        }
        if matches!(purpose, Purpose::DeleteObject(_)) {
            let mut gone = key::entry(path.directory(), name.as_bytes());
            // An implicit directory is removed with its last entry.
            for step in path.steps.iter().rev().take_while(|step| !step.entry.explicit) {
                asks.extend(key::entries_beside(step.entry.ino, &gone).map(first_row));
                gone.clone_from(&step.key);
            }
        }
        asks
    }
}

fn first_row((start, end): key::Range) -> Ask {
    Ask::Scan { start, end, rows_max: 1, keys_only: false }
}
