//! Cache of directories for changes; the commit asserts them.
//!
//! Why:        a create needs its directory's permissions and flags, which are two rows away; most creates are in a
//!             directory that was just used.
//! Invariants: D1 every commit that used a cached directory asserts its entry's version. The entry contains its number,
//!                so the directory is unmoved and unchanged. A stale one can only conflict, and the retry reads it
//!                again.
//!             D2 a change by POSIX makes a directory explicit (X4) and raises its times.
//! Locking:    a leaf lock per shard, for one operation.
//! Not here:   which names are in it.

use std::collections::HashMap;
use std::sync::Arc;

use margay_rows::record::DirectoryEntry;
use margay_rows::{Ino, key};
use parking_lot::RwLock;

use crate::draft::Draft;
use crate::posix::api::PosixError;
use crate::posix::attempt::{Attempt, Try};
use crate::posix::locate::LocatedDirectory;
use crate::posix::mount::Mount;

const SHARDS: usize = 16;
/// Directories per shard; a full shard is cleared.
const SHARD_DIRECTORIES_MAX: usize = 1024;
/// A longer chain of parents is taken for a cycle.
const DEPTH_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Directories {
    shards: [RwLock<HashMap<Ino, Arc<LocatedDirectory>>>; SHARDS],
}

impl Default for Directories {
    fn default() -> Directories {
        Directories { shards: std::array::from_fn(|_| RwLock::default()) }
    }
}

impl Directories {
    fn shard(&self, ino: Ino) -> &RwLock<HashMap<Ino, Arc<LocatedDirectory>>> {
        &self.shards[ino.0 as usize % SHARDS]
    }

    fn get(&self, ino: Ino) -> Option<Arc<LocatedDirectory>> {
        self.shard(ino).read().get(&ino).cloned()
    }

    fn keep(&self, ino: Ino, directory: Arc<LocatedDirectory>) {
        let mut shard = self.shard(ino).write();
        if shard.len() >= SHARD_DIRECTORIES_MAX {
            shard.clear();
        }
        shard.insert(ino, directory);
    }

    pub(crate) fn forget(&self, ino: Ino) {
        self.shard(ino).write().remove(&ino);
    }
}

impl LocatedDirectory {
    pub(crate) fn is_root(&self) -> bool {
        self.parent == Ino(0)
    }

    /// Asserts that the directory exists, unmoved and unchanged.
    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        if self.is_root() {
            draft.assert_exists(key::directory(self.entry.ino));
        }
        draft.assert_unchanged(self.row_key.clone(), self.version);
    }
}

impl Mount {
    /// A directory to be changed; from the cache in the first attempt.
    pub(crate) fn directory(&self, ino: Ino, one: &mut Try) -> Result<Arc<LocatedDirectory>, Attempt> {
        if !one.fresh
            && let Some(directory) = self.directories.get(ino)
        {
            return Ok(directory);
        }
        let Some(found) = self.locate_directory(ino, &mut one.seen)? else {
            self.directories.forget(ino);
            return Err(PosixError::NotFound.into());
        };
        let found = Arc::new(found);
        self.directories.keep(ino, Arc::clone(&found));
        Ok(found)
    }

    /// Drafts that the directory's content changes.
    pub(crate) fn draft_change_in(&self, draft: &mut Draft, directory: &LocatedDirectory, now: i64) {
        let ino = directory.entry.ino;
        directory.assert_in(draft);
        draft.max(key::times(ino), now.max(0) as u64);
        if !directory.entry.explicit {
            self.directories.forget(ino);
            let entry = DirectoryEntry { explicit: true, ..directory.entry };
            draft.put(directory.row_key.clone(), entry.encode());
        }
    }

    /// Drafts that the chain from the root to `from` is unchanged; `Invalid` if it contains `through`, which is only
    /// returned by an attempt without the cache.
    pub(crate) fn assert_not_below(
        &self,
        draft: &mut Draft,
        from: Ino,
        through: Ino,
        one: &mut Try,
    ) -> Result<(), Attempt> {
        let mut ino = from;
        for _ in 0..DEPTH_MAX {
            if ino == through {
                return Err(if one.fresh { PosixError::Invalid.into() } else { Attempt::Conflict });
            }
            let directory = self.directory(ino, one)?;
            directory.assert_in(draft);
            if directory.is_root() {
                return Ok(());
            }
            ino = directory.parent;
        }
        Err(Attempt::Conflict)
    }
}
