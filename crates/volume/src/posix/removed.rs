//! Removed directories that the kernel still holds: open, or a working directory.
//!
//! Why:        they have no rows any more, but `fstat` must work.
//! Invariants: R1 one is kept from the commit that removed it until the kernel forgets its number, if the kernel knew
//!                it.
//! Locking:    one lock, for one operation.
//! Not here:   files without a name (open files).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_rows::Ino;
use margay_rows::record::DirectoryEntry;
use parking_lot::Mutex;

use crate::posix::api::{AttributeChange, Attributes, SetTime};
use crate::posix::attributes::directory_attributes;
use crate::posix::mount::Mount;

/// Further ones are not kept; their `fstat` is ESTALE.
const REMOVED_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct RemovedDirectories {
    kept: Mutex<HashMap<Ino, Attributes>>,
    /// Their number, so that most FORGETs need no lock.
    count: AtomicUsize,
}

impl RemovedDirectories {
    pub(crate) fn get(&self, ino: Ino) -> Option<Attributes> {
        (self.count.load(Ordering::Acquire) > 0).then(|| self.kept.lock().get(&ino).copied()).flatten()
    }

    fn keep(&self, found: Attributes) {
        let mut kept = self.kept.lock();
        if kept.len() < REMOVED_MAX {
            kept.insert(found.ino, found);
        }
        self.count.store(kept.len(), Ordering::Release);
    }

    /// The kernel forgot the number.
    pub(crate) fn forget(&self, ino: Ino) {
        if self.count.load(Ordering::Acquire) > 0 {
            let mut kept = self.kept.lock();
            kept.remove(&ino);
            self.count.store(kept.len(), Ordering::Release);
        }
    }

    pub(crate) fn clear(&self) {
        let mut kept = self.kept.lock();
        kept.clear();
        self.count.store(0, Ordering::Release);
    }
}

impl Mount {
    /// A commit removed the directory.
    pub(crate) fn keep_removed(&self, entry: &DirectoryEntry) {
        if self.known.contains(entry.ino) {
            let now = self.volume.now();
            let found = directory_attributes(&DirectoryEntry { changed: Some(now), ..*entry }, now, 0);
            self.removed.keep(Attributes { links: 0, ..found });
        }
    }

    /// One that S3 removed was never changed by the mount, so only its number matters.
    pub(crate) fn removed_attributes(&self, ino: Ino) -> Option<Attributes> {
        if let Some(found) = self.removed.get(ino) {
            return Some(found);
        }
        let known = self.known.contains(ino);
        known.then(|| self.keep_removed(&DirectoryEntry::implicit(ino)))?;
        self.removed.get(ino)
    }

    /// `chmod` and similar calls on such a directory; `None` if it is none.
    pub(crate) fn change_removed(&self, ino: Ino, change: &AttributeChange) -> Option<Attributes> {
        let mut found = self.removed.get(ino)?;
        let now = self.volume.now();
        let time = |set: SetTime| if let SetTime::At(time) = set { time } else { now };
        found.rights = change.rights.unwrap_or(found.rights);
        found.uid = change.uid.unwrap_or(found.uid);
        found.gid = change.gid.unwrap_or(found.gid);
        found.accessed = change.accessed.map_or(found.accessed, time);
        found.modified = change.modified.map_or(found.modified, time);
        found.changed = now;
        self.removed.keep(found);
        Some(found)
    }
}
