//! Locks of programs (`fcntl`, `flock`) on files that several servers write: rows that all of them read.
//!
//! Why:        programs that share a file agree by locks. Where another server may write too, a kernel's own locks would hide two
//!             programs from each other.
//! Invariants: F1 a lock holds as long as the lease of its mount; every batch of that mount asserts its lease, so a mount whose
//!                locks another one has taken over writes nothing more.
//!             F2 what was written to a file under a lock is published before the lock is given back. Whoever has got a lock sees
//!                what was published before, also names, and other files when he opens them.
//!             F3 owners that may have locks are noted before the row is put, and forgotten when a commit has left them none and no
//!                lock was asked for meanwhile: each close knows whether there is one to give back, whatever became of commits.
//!             F4 what could not be given back at a close is given back later, as long as the mount has its lease.
//! Locking:    leaf locks over the noted owners and over what is owed; the file's turn where it is brought up to date.
//! Not here:   waiting for a lock (margay-fuse), whose locks count (sessions), a mount that writes alone: its kernel has all locks.

use margay_meta::Cursor;
use margay_rows::record::FileLock;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::driver::Decided;
use crate::posix::api::{LockTaken, LockWish, NAMES_KEPT, PosixError};
use crate::posix::handle::Handle;
use crate::posix::lock_notes::Owed;
use crate::posix::mount::Mount;
use crate::sessions::{LockChange, LockChanged};

impl Mount {
    /// Takes a lock, or says that another program has one that excludes it. Afterwards the file is as it was last published.
    /// Blocks this thread for some round trips, not until the lock is free.
    pub fn lock(&self, handle: &Handle, wish: &LockWish) -> Result<LockTaken, PosixError> {
        let lock = self.lock_of(wish)?;
        // What was written without a lock must not replace what the lock lets others write.
        self.flush(handle)?;
        let _asking = self.lock_notes.ask((handle.ino(), wish.owner));
        let taken = match self.change_locks(handle.ino(), (LockChange::Take, &lock)) {
            Ok((LockChanged::Done { .. }, cursor)) => cursor,
            Ok((LockChanged::Hindered(_), _)) => return Ok(LockTaken::No),
            // Others take and give back all the time: it is asked for again, as where they have it.
            Err(PosixError::Failed(Error::Busy)) => return Ok(LockTaken::No),
            Err(error) => return Err(error),
        };
        match self.see_what_was_published(handle, taken) {
            Ok(()) => Ok(LockTaken::Yes(self.kept_at_open(handle))),
            Err(error) => {
                // Who is told of an error has no lock.
                let _ = self.change_locks(handle.ino(), (LockChange::GiveBack, &lock));
                Err(error)
            }
        }
    }

    /// Before the commit that took a lock (F2).
    fn see_what_was_published(&self, handle: &Handle, taken: Option<Cursor>) -> Result<(), PosixError> {
        if let Some(cursor) = taken {
            // Behind that, kernels keep no name.
            self.volume.follow_to(cursor, NAMES_KEPT)?;
        }
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
        let unlocked = self.give_back(handle.ino(), LockChange::GiveBack, wish);
        published.and(unlocked)
    }

    /// A program closed a descriptor of the open file: its owner has no lock on the file any more.
    pub fn unlock_closed(&self, file: Ino, owner: u64, handle: u64) -> Result<(), PosixError> {
        self.end_locks(LockChange::GiveBack, Owed { file, owner, handle })
    }

    /// An open file ended: what this owner took through it is given back.
    pub fn unlock_ended(&self, file: Ino, owner: u64, handle: u64) -> Result<(), PosixError> {
        self.end_locks(LockChange::Close, Owed { file, owner, handle })
    }

    /// What fails is owed (F4).
    fn end_locks(&self, change: LockChange, owed: Owed) -> Result<(), PosixError> {
        let Owed { file, owner, handle } = owed;
        let all = LockWish { owner, handle, process: 0, first: 0, last: u64::MAX, exclusive: false };
        self.give_back(file, change, &all).inspect_err(|error| self.owe(owed, error))
    }

    fn owe(&self, owed: Owed, error: &PosixError) {
        if !matches!(error, PosixError::Failed(Error::LeaseLost)) {
            tracing::warn!(ino = owed.file.0, %error, "a lock of a program that closed its file is given back later");
            self.locks_owed.lock().push(owed);
        }
    }

    /// Whether some locks could not be given back (F4).
    pub fn owes_locks(&self) -> bool {
        !self.locks_owed.lock().is_empty()
    }

    /// Tries again to give back what is owed. What cannot be is owed again.
    pub fn give_owed_locks_back(&self) {
        let owed = std::mem::take(&mut *self.locks_owed.lock());
        for Owed { file, owner, handle } in owed {
            // Through that open file alone: the kernel may have given the owner's number to another one.
            let _ = self.unlock_ended(file, owner, handle);
        }
    }

    fn give_back(&self, file: Ino, change: LockChange, wish: &LockWish) -> Result<(), PosixError> {
        let Some(note) = self.lock_notes.note((file, wish.owner)) else { return Ok(()) };
        let (changed, _) = self.change_locks(file, (change, &self.lock_of(wish)?))?;
        if changed == (LockChanged::Done { has_any: false }) {
            self.lock_notes.forget((file, wish.owner), note);
        }
        Ok(())
    }

    /// The lock that keeps `wish` from being taken; the process is 0 where it is at another server.
    pub fn locked_by(&self, handle: &Handle, wish: &LockWish) -> Result<Option<LockWish>, PosixError> {
        let (wish, root) = (self.lock_of(wish)?, self.bucket_root);
        let hindrance = self.volume.retry(|seen| self.volume.hindrance(root, handle.ino(), &wish, seen))?;
        Ok(hindrance.map(|lock| {
            let FileLock { owner, handle, first, last, exclusive, .. } = lock;
            let process = if lock.lease == wish.lease { lock.process } else { 0 };
            LockWish { owner, handle, process, first, last, exclusive }
        }))
    }

    fn lock_of(&self, wish: &LockWish) -> Result<FileLock, PosixError> {
        let lease = self.lease.key().ok_or(PosixError::NoLocks)?;
        let (_, lease) = key::parse_mount_lease(lease).map_err(Error::from)?;
        let LockWish { owner, handle, process, first, last, exclusive } = *wish;
        if first > last {
            return Err(PosixError::Invalid);
        }
        Ok(FileLock { lease, owner, handle, process, first, last, exclusive })
    }

    /// What came of it, and the commit, if there was one.
    fn change_locks(
        &self,
        file: Ino,
        (change, wish): (LockChange, &FileLock),
    ) -> Result<(LockChanged, Option<Cursor>), PosixError> {
        let (volume, at) = (&self.volume, (self.bucket_root, file));
        let changed = volume.retry(|seen| match volume.try_change_locks(at, (change, wish), &self.lease, seen)? {
            Decided::Committed(changed, done) => {
                volume.engine.wait_durable(done.cursor)?;
                Ok((changed, Some(done.cursor)))
            }
            Decided::Commit(_, changed) | Decided::Nothing(changed) => Ok((changed, None)),
        });
        match changed {
            Err(Error::TooLarge) => Err(PosixError::NoLocks),
            changed => Ok(changed?),
        }
    }
}
