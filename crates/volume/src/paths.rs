//! From a key to the directory that holds its entry.
//!
//! Why:        a key is walked by its directories, each one row; changes keep the walk in memory because their
//!             commit asserts every step, reads walk anew because nothing would notice that a step is stale.
//! Invariants: P1 a commit that used a path asserts the bucket row and each step's row, so a stale path can only
//!                conflict.  P2 a path that met a conflict, or led to no commit, is dropped before the next try.
//! Not here:   what is done at the end of the path (the operations).

use std::collections::HashMap;
use std::sync::Arc;

use margay_meta::Seq;
use parking_lot::RwLock;

use crate::api::{Error, Versioning};
use crate::draft::Draft;
use crate::error::Refused;
use crate::key::{self, Ino};
use crate::kinds::Setting;
use crate::object_lock::DefaultRetention;
use crate::open::Volume;
use crate::record::{Bucket, DirectoryEntry, DirectoryRecord, Entry};
use crate::seen::Seen;
use crate::versioned_key::VersionedKey;

/// Paths with more steps than this are not kept.
const STEPS_KEPT_MAX: usize = 32;
const SHARDS: usize = 16;

/// A directory on the way, as its entry was read.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) key: Vec<u8>,
    pub(crate) version: Seq,
    pub(crate) entry: DirectoryEntry,
}

/// The way from a bucket to a directory.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) bucket_key: Vec<u8>,
    pub(crate) bucket_version: Seq,
    pub(crate) root: Ino,
    pub(crate) versioning: Versioning,
    pub(crate) object_lock: bool,
    /// What a new version gets that has no retention of its own.
    pub(crate) retention: Option<DefaultRetention>,
    /// The bucket has notification rules.
    pub(crate) notifies: bool,
    pub(crate) steps: Vec<Step>,
}

/// A key as directories (each with its `/`) and the last name, which may be empty.
pub(crate) fn split(key: &str) -> (&str, &str) {
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

impl Path {
    pub(crate) fn directory(&self) -> Ino {
        self.steps.last().map_or(self.root, |step| step.entry.ino)
    }

    /// A key of this bucket.
    pub(crate) fn versioned<'k>(&self, key: &'k str) -> VersionedKey<'k> {
        VersionedKey { root: self.root, key, versioning: self.versioning }
    }

    /// Every step still leads where it led.
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        draft.assert_version(self.bucket_key.clone(), self.bucket_version);
        for step in &self.steps {
            draft.assert_version(step.key.clone(), step.version);
        }
    }

    pub(crate) fn passes(&self, directory: Ino) -> bool {
        self.root == directory || self.steps.iter().any(|step| step.entry.ino == directory)
    }
}

/// A path and the rest of the directories, which do not exist.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    pub(crate) path: Arc<Path>,
    pub(crate) missing: &'a str,
    /// From memory: only a commit can tell whether it still holds.
    remembered: bool,
}

/// What an attempt came to, and the commit that its answer rests on.
#[derive(Debug)]
pub(crate) enum Done<T> {
    Changed(T, Seq),
    /// Nothing was committed, so nothing was asserted.
    Unchanged(T, Seq),
}

impl Walk<'_> {
    pub(crate) fn complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// What is missing still is.
    pub(crate) fn assert_missing(&self, draft: &mut Draft) {
        if let Some(name) = self.missing.split_inclusive('/').next() {
            draft.assert_absent(key::entry(self.path.directory(), name.as_bytes()));
        }
    }
}

/// Paths by bucket and directories; bounded, and emptied by shard when it is full.
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

    /// A bucket's name has no `/`, so the two never run together.
    fn name(bucket: &str, directories: &str) -> String {
        [bucket, "/", directories].concat()
    }

    fn shard(&self, name: &str) -> &RwLock<HashMap<String, Arc<Path>>> {
        let sum = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        &self.shards[sum as usize % SHARDS]
    }

    fn get(&self, name: &str) -> Option<Arc<Path>> {
        self.shard(name).read().get(name).cloned()
    }

    fn keep(&self, name: String, path: Arc<Path>) {
        let mut shard = self.shard(&name).write();
        if shard.len() >= self.shard_max {
            shard.clear();
        }
        if self.shard_max > 0 {
            shard.insert(name, path);
        }
    }

    pub(crate) fn forget(&self, bucket: &str, directories: &str) {
        let name = PathCache::name(bucket, directories);
        self.shard(&name).write().remove(&name);
    }
}

impl Volume {
    pub(crate) fn bucket_row(&self, bucket: &str, seen: &mut Seen) -> Result<(Bucket, Seq), Error> {
        let row = self.get(&key::bucket(bucket), seen)?.ok_or(Error::NoSuchBucket)?;
        Ok((Bucket::decode(&row.value)?, row.version))
    }

    /// Walks the directories, as far as they exist.
    pub(crate) fn walk<'a>(&self, bucket: &str, directories: &'a str, seen: &mut Seen) -> Result<Walk<'a>, Error> {
        let (row, bucket_version) = self.bucket_row(bucket, seen)?;
        let retention = self.default_retention(&row, seen)?;
        let notifies = row.settings.contains(Setting::Notification);
        let Bucket { root, versioning, object_lock, .. } = row;
        let bucket_key = key::bucket(bucket);
        let steps = Vec::new();
        let mut path = Path { bucket_key, bucket_version, root, versioning, object_lock, retention, notifies, steps };
        let mut missing = directories;
        for name in directories.split_inclusive('/') {
            let key = key::entry(path.directory(), name.as_bytes());
            let Some(row) = self.get(&key, seen)? else { break };
            match Entry::decode(&row.value)? {
                Entry::Directory(entry) => path.steps.push(Step { key, version: row.version, entry }),
                Entry::File(_) | Entry::Link(_) => {
                    return Err(Error::Corrupt("a file has the name of a directory".to_owned()));
                }
            }
            missing = &missing[name.len()..];
        }
        Ok(Walk { path: Arc::new(path), missing, remembered: false })
    }

    /// As `walk`, for a change: may come from memory, so its commit asserts it.
    fn walk_to_change<'a>(&self, bucket: &str, directories: &'a str, seen: &mut Seen) -> Result<Walk<'a>, Error> {
        let name = PathCache::name(bucket, directories);
        if let Some(path) = self.paths.get(&name) {
            return Ok(Walk { path, missing: "", remembered: true });
        }
        let walk = self.walk(bucket, directories, seen)?;
        if walk.complete() && walk.path.steps.len() <= STEPS_KEPT_MAX {
            self.paths.keep(name, Arc::clone(&walk.path));
        }
        Ok(walk)
    }

    /// Runs a change at the end of a path until it commits or is refused for good. An answer without a commit
    /// that rests on a remembered path is not believed: the path is walked anew.
    pub(crate) fn change<T>(
        &self,
        bucket: &str,
        (directories, name): (&str, &str),
        mut attempt: impl FnMut(&Walk<'_>, &mut Seen) -> Result<Done<T>, Refused>,
    ) -> Result<(T, Seq), Error> {
        self.retry(|seen| {
            let _turn = self.key_latch(bucket, directories, name).lock();
            let walk = self.walk_to_change(bucket, directories, seen)?;
            let done = attempt(&walk, seen);
            match done {
                Ok(Done::Changed(value, seq)) => Ok((value, seq)),
                Ok(Done::Unchanged(value, seq)) if !walk.remembered && self.still(seen)? => Ok((value, seq)),
                Err(Refused::Error(error)) if !walk.remembered => Err(error.into()),
                Ok(Done::Unchanged(..)) | Err(_) => {
                    self.paths.forget(bucket, directories);
                    Err(Refused::Conflict)
                }
            }
        })
    }

    /// Makes the missing directories of a walk and gives the last one.
    pub(crate) fn make_directories(&self, walk: &Walk<'_>, draft: &mut Draft) -> Result<Ino, Error> {
        let mut parent = walk.path.directory();
        for (depth, name) in walk.missing.split_inclusive('/').enumerate() {
            let key = key::entry(parent, name.as_bytes());
            let entry = DirectoryEntry::implicit(self.new_ino()?);
            if depth == 0 {
                draft.assert_absent(key.clone());
                draft.max(key::times(parent), self.now().0.max(0) as u64);
            }
            let record = DirectoryRecord { parent, sort_name: name.to_owned() };
            draft.add(key::subdirectories(parent), 1);
            draft.put(key, entry.encode());
            draft.put(key::directory(entry.ino), record.encode());
            parent = entry.ino;
        }
        Ok(parent)
    }
}
