//! Rows of the locks that programs of several processes have on files.
//!
//! Invariants: K1 a lock counts as long as the lease of its mount has its row, and that lease's session too.
//!             K2 a lock is taken from a lease only when one of both is gone, which the batch asserts; the same batch removes the lease,
//!                which every batch of its mount asserts.
//! Not here:   what a lock means for the content of its file (posix), which locks there are after a change (lock_ranges).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use margay_meta::RowVersion;
use margay_rows::record::{FILE_LOCKS_MAX, FileLock, FileLocksRecord, MountLeaseRecord};
use margay_rows::{Ino, key};

use super::lock_ranges::{close, conflict, has_any, set};
use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;
use crate::session_state::MountLease;

/// The locks of a file, and the version of their row.
type Found = (Vec<FileLock>, Option<RowVersion>);

/// What is to be done with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockChange {
    Take,
    /// The owner gives the range back.
    GiveBack,
    /// The open file ends, and with it what this owner has taken through it.
    Close,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockChanged {
    /// This lock hinders it.
    Hindered(FileLock),
    /// It is done, and the owner has locks on the file, or none.
    Done { has_any: bool },
}

impl Volume {
    pub(crate) fn try_change_locks(
        &self,
        (root, file): (Ino, Ino),
        (change, wish): (LockChange, &FileLock),
        lease: &MountLease,
        seen: &mut Seen,
    ) -> Result<Decided<LockChanged>, Refused> {
        let (mut locks, version) = self.file_locks(root, file, seen)?;
        let mut draft = Draft::default();
        if change == LockChange::Take {
            match self.living_conflict(root, (&locks, wish), &mut draft, seen)? {
                Err(hindrance) => return Ok(Decided::Nothing(LockChanged::Hindered(hindrance))),
                Ok(dead) => locks.retain(|lock| !dead.contains(&lock.lease)),
            }
        }
        match change {
            LockChange::Take => set(&mut locks, wish, true),
            LockChange::GiveBack => set(&mut locks, wish, false),
            LockChange::Close => close(&mut locks, wish),
        }
        if locks.len() > FILE_LOCKS_MAX {
            return Err(Error::TooLarge.into());
        }
        let row = key::file_locks(root, file);
        draft.assert_unchanged(row.clone(), version);
        let done = LockChanged::Done { has_any: has_any(&locks, wish) };
        if locks.is_empty() && version.is_none() {
            return Ok(Decided::Nothing(done));
        }
        draft_locks(&mut draft, row, locks);
        let committed = self.commit_from_mount(lease, draft)?;
        Ok(Decided::Committed(done, committed))
    }

    /// The lock of a living mount that hinders the wish.
    pub(crate) fn hindrance(
        &self,
        root: Ino,
        file: Ino,
        wish: &FileLock,
        seen: &mut Seen,
    ) -> Result<Option<FileLock>, Refused> {
        let (locks, _) = self.file_locks(root, file, seen)?;
        Ok(self.living_conflict(root, (&locks, wish), &mut Draft::default(), seen)?.err())
    }

    fn file_locks(&self, root: Ino, file: Ino, seen: &mut Seen) -> Result<Found, Error> {
        let Some(row) = self.get(&key::file_locks(root, file), seen)? else { return Ok((Vec::new(), None)) };
        Ok((FileLocksRecord::decode(&row.value)?.locks, Some(row.version)))
    }

    /// The lock of a living mount that hinders the wish; else the leases whose locks count no more, and in the draft what makes
    /// that true (K2).
    fn living_conflict(
        &self,
        root: Ino,
        (locks, wish): (&[FileLock], &FileLock),
        draft: &mut Draft,
        seen: &mut Seen,
    ) -> Result<Result<BTreeSet<Ino>, FileLock>, Refused> {
        let mut left = locks.to_vec();
        let mut dead = BTreeSet::new();
        while let Some(hindrance) = conflict(&left, wish).copied() {
            let lease = hindrance.lease;
            if lease == wish.lease || self.is_lease_held(root, lease, draft, seen)? {
                return Ok(Err(hindrance));
            }
            dead.insert(lease);
            left.retain(|lock| lock.lease != lease);
        }
        Ok(Ok(dead))
    }

    /// Whether a mount has its lease still. The draft ends one whose session is gone.
    fn is_lease_held(&self, root: Ino, lease: Ino, draft: &mut Draft, seen: &mut Seen) -> Result<bool, Error> {
        let row = key::mount_lease(root, lease);
        // Numbers of leases are never used again, so one that is gone stays away.
        let Some(found) = self.get(&row, seen)? else { return Ok(false) };
        let record = MountLeaseRecord::decode(&found.value)?;
        let session = key::session(record.holder);
        if self.get(&session, seen)?.is_some() {
            return Ok(true);
        }
        tracing::warn!(
            place = record.place,
            session = record.holder.0,
            "a mount of a dead server is over, and its locks with it"
        );
        draft.assert_absent(session);
        draft.assert_version(row.clone(), found.version);
        draft.delete(row);
        Ok(false)
    }

    /// Removes rows of locks whose mounts are gone, of a bucket: nobody asked for these files since. Blocks this thread.
    pub(crate) fn remove_old_file_locks(&self, root: Ino) -> Result<(), Error> {
        let mut rows = Vec::new();
        self.scan(&key::all_file_locks(root), &mut Seen::default(), |row| {
            rows.push((row.key.to_vec(), row.version, FileLocksRecord::decode(row.value)?.locks));
            Ok(ControlFlow::Continue(()))
        })?;
        for (row, version, mut locks) in rows {
            let mut gone = BTreeSet::new();
            for lease in locks.iter().map(|lock| lock.lease).collect::<BTreeSet<_>>() {
                if self.get(&key::mount_lease(root, lease), &mut Seen::default())?.is_none() {
                    gone.insert(lease);
                }
            }
            locks.retain(|lock| !gone.contains(&lock.lease));
            if gone.is_empty() {
                continue;
            }
            let mut draft = Draft::default();
            draft.assert_version(row.clone(), version);
            draft_locks(&mut draft, row, locks);
            match self.commit(draft) {
                // Somebody who asks for the file has done it.
                Ok(_) | Err(Refused::Conflict) => {}
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        Ok(())
    }
}

fn draft_locks(draft: &mut Draft, row: Vec<u8>, locks: Vec<FileLock>) {
    if locks.is_empty() {
        draft.delete(row);
    } else {
        draft.put(row, FileLocksRecord { locks }.encode());
    }
}
