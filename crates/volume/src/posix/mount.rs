//! A mounted bucket, or a directory of one.
//!
//! Why:        state shared by the operations: the volume, the root, durability of answers.
//! Invariants: M1 the kernel knows the root as long as the mount exists; the table of known files is dropped with the
//!                mount.
//! Not here:   the operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_rows::Ino;
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Seen;
use crate::known::Locations;
use crate::open::Volume;
use crate::posix::api::{Claim, MountOptions, NAMES_KEPT, PosixError};
use crate::posix::directories::Directories;
use crate::posix::lock_notes::{LockNotes, Owed};
use crate::posix::removed::RemovedDirectories;
use crate::session_state::MountLease;
use crate::sessions::MountWish;
use crate::watch::Watcher;

#[derive(Debug)]
pub struct Mount {
    pub(crate) volume: Arc<Volume>,
    pub(crate) bucket: String,
    pub(crate) root: Ino,
    /// The bucket's root, whose usage counters change.
    pub(crate) bucket_root: Ino,
    pub(crate) directories: Directories,
    /// Files that this mount's kernel knows.
    pub(crate) known: Arc<Locations>,
    pub(crate) removed: RemovedDirectories,
    pub(crate) options: MountOptions,
    /// Asserted by each batch of the mount.
    pub(crate) lease: Arc<MountLease>,
    pub(crate) lock_notes: LockNotes,
    pub(crate) locks_owed: Mutex<Vec<Owed>>,
    /// It was logged that files of this bucket cannot be written.
    told_of_encryption: AtomicBool,
}

impl Mount {
    /// `prefix` is empty or an existing directory, with its `/`.
    pub fn open(
        volume: Arc<Volume>,
        bucket: &str,
        prefix: &str,
        options: MountOptions,
    ) -> Result<Arc<Mount>, PosixError> {
        let walk = volume.walk(bucket, prefix, &mut Seen::default()).map_err(|error| match error {
            Error::NoSuchBucket => PosixError::NotFound,
            error => error.into(),
        })?;
        if !walk.complete() {
            return Err(PosixError::NotFound);
        }
        let root = walk.path.directory();
        let wish = MountWish {
            root: walk.path.bucket.root,
            directory: root,
            shared: options.claim == Claim::Shared,
            place: &format!("{bucket}/{prefix}"),
        };
        let lease = match options.claim {
            Claim::Alone | Claim::Shared if !options.read_only => {
                volume.take_mount_lease(wish)?.map_err(|holder| PosixError::MountedElsewhere(Box::new(holder)))?
            }
            Claim::Nothing | Claim::Alone | Claim::Shared => MountLease::nothing(),
        };
        let known = volume.known.begin();
        known.remember(root, Ino(0), "");
        let (bucket, bucket_root) = (bucket.to_owned(), walk.path.bucket.root);
        let (directories, removed) = (Directories::default(), RemovedDirectories::default());
        let told_of_encryption = AtomicBool::default();
        let mount = Mount {
            volume,
            bucket,
            root,
            bucket_root,
            directories,
            known,
            removed,
            options,
            lease,
            lock_notes: LockNotes::default(),
            locks_owed: Mutex::default(),
            told_of_encryption,
        };
        Ok(Arc::new(mount))
    }

    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The number of the directory that is the root of this file system.
    pub fn root(&self) -> Ino {
        self.root
    }

    /// Refuses to store data unencrypted that should be encrypted, unless the mount allows it.
    pub(crate) fn check_plain(&self, encrypted: bool) -> Result<(), PosixError> {
        if !encrypted || self.options.plain {
            return Ok(());
        }
        if !self.told_of_encryption.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                bucket = %self.bucket,
                "what a mount writes is stored plain, so it does not write where objects are encrypted; \
                 write through S3, or mount with -o plain"
            );
        }
        Err(PosixError::NotPermitted)
    }

    /// Whether another process has taken this mount over: it writes nothing more.
    pub fn is_taken_over(&self) -> bool {
        self.lease.check().is_err()
    }

    /// Others may mount it to write from now on, and this one writes nothing more; for the end of the mount, when everything is
    /// published. Blocks this thread.
    pub fn give_up(&self) -> Result<(), PosixError> {
        Ok(self.volume.give_mount_lease_back(&self.lease)?)
    }

    /// Starts to follow changes of other doors.
    pub fn watch(&self) -> Watcher {
        self.volume.watchers.watch()
    }

    /// Calls `visit` with each number that the kernel knows, its directory and its sort name. It must not call back.
    pub fn visit_known(&self, visit: &mut dyn FnMut(Ino, Ino, &str)) {
        self.known.visit(visit);
    }

    /// Answers of other doors that did not wait until every kernel had dropped what they changed.
    pub fn late_notices(&self) -> u64 {
        self.volume.watchers.late()
    }

    /// How long a kernel may keep that a name is not in a directory; `None`: until it is told of changes.
    pub fn keeps_absences_for(&self, directory: Ino) -> Option<Duration> {
        let upstream = self.options.upstream.as_ref().map(|upstream| upstream.absent_for(directory));
        upstream.or_else(|| self.keeps_for())
    }

    /// How long a kernel may keep names in a directory, and attributes of what they name; `None`: until it is told of changes.
    pub fn keeps_names_for(&self, directory: Ino) -> Option<Duration> {
        let upstream = self.options.upstream.as_ref().map(|upstream| upstream.fresh_for(directory));
        upstream.or_else(|| self.keeps_for())
    }

    /// As `keeps_names_for`, of the attributes of a file or directory: they are as old as those of the names beside it.
    pub fn keeps_attributes_for(&self, ino: Ino) -> Option<Duration> {
        let Some(upstream) = self.options.upstream.as_ref() else { return self.keeps_for() };
        let location = self.known.location(ino);
        // Above the root is nothing.
        let directory = location.map(|location| if location.parent == Ino(0) { ino } else { location.parent });
        Some(directory.map_or(Duration::ZERO, |directory| upstream.fresh_for(directory)))
    }

    /// Whether other processes mount and change the same volume.
    pub fn is_of_several(&self) -> bool {
        self.volume.engine.is_shared()
    }

    fn keeps_for(&self) -> Option<Duration> {
        self.is_of_several().then_some(NAMES_KEPT)
    }

    /// The kernel drops this many lookups of a number.
    pub fn forget(&self, ino: Ino, lookups: u64) {
        self.known.forget(ino, lookups);
        if !self.known.contains(ino) {
            self.removed.forget(ino);
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.volume.known.end(&self.known);
    }
}
