//! Locks of programs (`fcntl`, `flock`) on files that several servers write: rows that all of them read.
//!
//! Why:        programs that share a file agree by locks. Where another server may write too, a kernel's own locks would hide two
//!             programs from each other.
//! Invariants: F1 a lock holds as long as the lease of its mount; every batch of that mount asserts its lease, so a mount whose
//!                locks another one has taken over writes nothing more.
//!             F2 what was written under a lock is published before the lock is given back, and whoever has got a lock sees
//!                what was published before.
//!             F3 owners that may have locks are noted before the row is put, so each close knows whether there is one to give
//!                back, whatever became of the commit.
//! Locking:    a leaf lock over the noted owners; the file's turn where it is brought up to date.
//! Not here:   waiting for a lock (margay-fuse), whose locks count (sessions), a mount that writes alone: its kernel has all locks.

use margay_rows::record::FileLock;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::driver::Decided;
use crate::posix::api::{LockTaken, LockWish, PosixError};
use crate::posix::handle::Handle;
use crate::posix::mount::Mount;

/// The last byte that a kernel locks; a lock that reaches it goes to the end of the file, wherever that will be.
const END_OF_FILE: u64 = i64::MAX as u64;

impl Mount {
    /// Takes a lock, or says that another program has one that excludes it. Afterwards the file is as it was last published.
    /// Blocks this thread for some round trips, not until the lock is free.
    pub fn lock(&self, handle: &Handle, wish: &LockWish) -> Result<LockTaken, PosixError> {
        let lock = self.lock_of(wish)?;
        // What was written without a lock must not replace what the lock lets others write.
        self.flush(handle)?;
        self.lock_owners.lock().insert((handle.ino(), wish.owner));
        if self.change_locks(handle.ino(), &lock, true)?.is_some() {
            return Ok(LockTaken::No);
        }
        match self.refresh_locked(handle) {
            Ok(()) => Ok(LockTaken::Yes(self.kept_at_open(handle))),
            Err(error) => {
                // Who is told of an error has no lock.
                let _ = self.give_lock_back(handle.ino(), wish);
                Err(error)
            }
        }
    }

    fn refresh_locked(&self, handle: &Handle) -> Result<(), PosixError> {
        let _turn = self.volume.known.turn(handle.ino());
        match self.volume.refresh(&handle.file) {
            // It has no name any more: nobody else publishes it.
            Err(PosixError::Stale) => Ok(()),
            done => done,
        }
    }

    /// Publishes what was written, and gives the range back.
    pub fn unlock(&self, handle: &Handle, wish: &LockWish) -> Result<(), PosixError> {
        let published = self.flush(handle);
        let unlocked = self.give_lock_back(handle.ino(), wish);
        published.and(unlocked)
    }

    /// A program closed the file: its owner has no lock on it any more. For the end of a handle too.
    pub fn unlock_all(&self, file: Ino, owner: u64) -> Result<(), PosixError> {
        self.give_lock_back(file, &LockWish { owner, process: 0, first: 0, last: u64::MAX, exclusive: false })
    }

    fn give_lock_back(&self, file: Ino, wish: &LockWish) -> Result<(), PosixError> {
        if !self.lock_owners.lock().contains(&(file, wish.owner)) {
            return Ok(());
        }
        self.change_locks(file, &self.lock_of(wish)?, false)?;
        if wish.first == 0 && wish.last >= END_OF_FILE {
            self.lock_owners.lock().remove(&(file, wish.owner));
        }
        Ok(())
    }

    /// The lock that keeps `wish` from being taken; the process is 0 where it is at another server.
    pub fn locked_by(&self, handle: &Handle, wish: &LockWish) -> Result<Option<LockWish>, PosixError> {
        let (wish, root) = (self.lock_of(wish)?, self.bucket_root);
        let hindrance = self.volume.retry(|seen| self.volume.hindrance(root, handle.ino(), &wish, seen))?;
        Ok(hindrance.map(|lock| {
            let FileLock { owner, first, last, exclusive, .. } = lock;
            let process = if lock.lease == wish.lease { lock.process } else { 0 };
            LockWish { owner, process, first, last, exclusive }
        }))
    }

    fn lock_of(&self, wish: &LockWish) -> Result<FileLock, PosixError> {
        let lease = self.lease.key().ok_or(PosixError::NoLocks)?;
        let (_, lease) = key::parse_mount_lease(lease).map_err(Error::from)?;
        let LockWish { owner, process, first, last, exclusive } = *wish;
        if first > last {
            return Err(PosixError::Invalid);
        }
        Ok(FileLock { lease, owner, process, first, last, exclusive })
    }

    /// Takes or gives back; the lock that hinders it.
    fn change_locks(&self, file: Ino, wish: &FileLock, taken: bool) -> Result<Option<FileLock>, PosixError> {
        let (volume, root) = (&self.volume, self.bucket_root);
        let changed =
            volume.retry(|seen| match volume.try_change_locks((root, file), wish, taken, &self.lease, seen)? {
                Decided::Committed(hindrance, done) => {
                    self.volume.engine.wait_durable(done.cursor)?;
                    Ok(hindrance)
                }
                Decided::Commit(_, hindrance) | Decided::Nothing(hindrance) => Ok(hindrance),
            });
        match changed {
            // Others take and give back all the time: it is asked for again, as where they have it.
            Err(Error::Busy) if taken => Ok(Some(*wish)),
            Err(Error::TooLarge) => Err(PosixError::NoLocks),
            changed => Ok(changed?),
        }
    }
}
