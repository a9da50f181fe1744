//! The path from a bucket to a directory, and a cache of paths.
//!
//! Why:        the volume holds the cache; walking (paths) is built on the volume.
//! Invariants: H1 a cached path is a hint: its user asserts or compares each of its rows (paths, P1).
//! Locking:    one lock per shard, held for a lookup.
//! Not here:   walking (paths).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::record::DirectoryEntry;
use parking_lot::RwLock;

use crate::cache::BucketState;
use crate::draft::Draft;
use crate::versioned_key::VersionedKey;

const SHARDS: usize = 16;

/// A directory on a path, as its entry was read.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: Vec<u8>,
    pub(crate) version: RowVersion,
    pub(crate) entry: DirectoryEntry,
}

/// The path from a bucket to a directory.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    /// Under the version of the bucket's row at which it was walked.
    pub(crate) bucket: Arc<BucketState>,
    pub(crate) steps: Vec<Step>,
}

/// Splits a key into directories (each with its `/`) and the last name, which may be empty.
pub(crate) fn split(key: &str) -> (&str, &str) {
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

impl Path {
    pub(crate) fn directory(&self) -> Ino {
        self.steps.last().map_or(self.bucket.root, |step| step.entry.ino)
    }

    /// A key of this bucket.
    pub(crate) fn versioned<'k>(&self, key: &'k str) -> VersionedKey<'k> {
        self.bucket.object(key)
    }

    /// Asserts that every step is unchanged.
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        self.bucket.assert_in(draft);
        for step in &self.steps {
            draft.assert_version(step.key.clone(), step.version);
        }
    }

    pub(crate) fn passes(&self, directory: Ino) -> bool {
        self.bucket.root == directory || self.steps.iter().any(|step| step.entry.ino == directory)
    }
}

/// Cache of paths by bucket and directories; bounded, and a full shard is cleared.
#[derive(Debug)]
pub(crate) struct PathCache {
    shards: Vec<RwLock<HashMap<String, Arc<Path>>>>,
    shard_max: usize,
}

impl PathCache {
    pub(crate) fn new(paths_max: usize) -> PathCache {
        let shards = (0..SHARDS).map(|_| RwLock::default()).collect();
        PathCache { shards, shard_max: paths_max / SHARDS }
    }

    /// A bucket's name contains no `/`, so the concatenation is unambiguous.
    pub(crate) fn name(bucket: &str, directories: &str) -> String {
        [bucket, "/", directories].concat()
    }

    fn shard(&self, name: &str) -> &RwLock<HashMap<String, Arc<Path>>> {
        let sum = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        &self.shards[sum as usize % SHARDS]
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Path>> {
        self.shard(name).read().get(name).cloned()
    }

    pub(crate) fn keep(&self, name: String, path: Arc<Path>) {
        let mut shard = self.shard(&name).write();
        if shard.len() >= self.shard_max {
            shard.clear();
        }
        if self.shard_max > 0 {
            shard.insert(name, path);
        }
    }

    /// Drops every cached path that depends on one of these rows.
    pub(crate) fn forget_over(&self, rows: &HashSet<Vec<u8>>) {
        let stale =
            |path: &Path| rows.contains(&path.bucket.row_key) || path.steps.iter().any(|step| rows.contains(&step.key));
        self.shards.iter().for_each(|shard| shard.write().retain(|_, path| !stale(path)));
    }

    pub(crate) fn forget_all(&self) {
        self.shards.iter().for_each(|shard| shard.write().clear());
    }

    pub(crate) fn forget(&self, bucket: &str, directories: &str) {
        let name = PathCache::name(bucket, directories);
        self.shard(&name).write().remove(&name);
    }
}
