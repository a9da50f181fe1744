//! All files with copies, and what is done with them beside the calls.
//!
//! Invariants: U1 what is listed, opened and removed is what stands here, and not what one directory shows.
//! Locking:    order: `round`, `names`, an entry's `inner`, the members' `record`.
//! Not here:   who is trusted (members), calls of the port (layer).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use margay_env::LockHandle;
use parking_lot::Mutex;

use crate::class::{Class, FOLDERS, class};
use crate::entry::Entry;
use crate::member::Member;
use crate::members::Members;

#[derive(Debug)]
pub(crate) struct Catalogue {
    pub(crate) members: Members,
    pub(crate) names: Mutex<Names>,
    /// An operation was refused at one copy, so copies may differ.
    pub(crate) differ: AtomicBool,
    /// Disks take turns.
    pub(crate) turn: AtomicUsize,
    pub(crate) progress: Mutex<Progress>,
    /// Held while copies are made: one round at a time.
    pub(crate) round: Mutex<()>,
    pub(crate) stopping: AtomicBool,
    pub(crate) locks: Mutex<Vec<Box<dyn LockHandle>>>,
}

impl Deref for Catalogue {
    type Target = Members;

    fn deref(&self) -> &Members {
        &self.members
    }
}

/// All files with copies.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) entries: BTreeMap<PathBuf, Arc<Entry>>,
    /// Payload removed while a disk was out, which may come back with it.
    pub(crate) removed: BTreeSet<PathBuf>,
}

/// How far the copying is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// When this round began, by the monotonic clock; `None`: nothing is being copied.
    pub(crate) since: Option<Duration>,
    pub(crate) done_bytes: u64,
    pub(crate) total_bytes: u64,
    pub(crate) files_left: u64,
    /// Since the start.
    pub(crate) copied_files: u64,
    pub(crate) copied_bytes: u64,
    pub(crate) failed_files: u64,
}

impl Catalogue {
    pub(crate) fn new(members: Members, locks: Vec<Box<dyn LockHandle>>) -> Catalogue {
        Catalogue {
            members,
            names: Mutex::default(),
            differ: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            progress: Mutex::default(),
            round: Mutex::default(),
            stopping: AtomicBool::new(false),
            locks: Mutex::new(locks),
        }
    }

    /// Files of a class in a member's directory.
    pub(crate) fn files_of(&self, member: &Member, wanted: Class) -> io::Result<Vec<(PathBuf, u64)>> {
        let mut found = Vec::new();
        for folder in ["", FOLDERS[0], FOLDERS[1]] {
            let listed = match self.env.disk.list(&member.path(Path::new(folder))) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                listed => listed?,
            };
            let files = listed.into_iter().filter(|entry| !entry.is_dir);
            let named = files.map(|entry| (Path::new(folder).join(&entry.name), entry.len));
            found.extend(named.filter(|(name, _)| class(name) == wanted));
        }
        Ok(found)
    }
}
