//! One bucket, or a directory of one, as a file system.
//!
//! Why:        what the operations share: the volume, where the root is, how durable answers are.
//! Invariants: the root is known to the kernel for as long as the mount is; what the kernel knows goes with the mount.
//! Not here:   the operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_rows::Ino;

use crate::api::Error;
use crate::known::Locations;
use crate::open::Volume;
use crate::posix::api::{MountOptions, PosixError};
use crate::posix::directories::Directories;
use crate::posix::removed::RemovedDirectories;
use crate::seen::Seen;
use crate::watch::Watcher;

#[derive(Debug)]
pub struct Mount {
    pub(crate) volume: Arc<Volume>,
    pub(crate) bucket: String,
    pub(crate) root: Ino,
    /// The root of the bucket, where usage is counted.
    pub(crate) bucket_root: Ino,
    pub(crate) directories: Directories,
    /// What the kernel knows of this mount.
    pub(crate) known: Arc<Locations>,
    pub(crate) removed: RemovedDirectories,
    pub(crate) options: MountOptions,
    /// It was said that files of this bucket cannot be written.
    told_of_encryption: AtomicBool,
}

impl Mount {
    /// `prefix` is empty or a directory that exists, with its `/`.
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
        let known = volume.known.begin();
        known.remember(root, Ino(0), "");
        let (bucket, bucket_root) = (bucket.to_owned(), walk.path.root);
        let (directories, removed) = (Directories::default(), RemovedDirectories::default());
        let told_of_encryption = AtomicBool::default();
        let mount =
            Mount { volume, bucket, root, bucket_root, directories, known, removed, options, told_of_encryption };
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

    /// Refuses to store plain what is to be encrypted, unless that was asked for.
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

    /// Begins to follow what other doors change.
    pub fn watch(&self) -> Watcher {
        self.volume.watchers.watch()
    }

    /// Shows each number that the kernel holds, with its directory and its sort name there. The visitor must not call back.
    pub fn visit_known(&self, visit: &mut dyn FnMut(Ino, Ino, &str)) {
        self.known.visit(visit);
    }

    /// Answers of other doors that did not wait until every kernel had forgotten what they changed.
    pub fn late_notices(&self) -> u64 {
        self.volume.watchers.late()
    }

    /// The kernel forgot a number as often as this.
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
