//! Taking, keeping and giving back the leases of mounts.
//!
//! Why:        one mount that writes to a directory, and any number that read it: then open files, locks and caches of the
//!             writer are those of one process, as programs expect of a file system.
//! Invariants: M1 takings of one bucket are ordered by a row that each of them reads and puts, so of two that overlap the
//!                second one sees the first one's row.
//!             M2 a lease is taken from a session only when that session's row is gone, which the batch asserts.
//!             M3 two leases overlap if one's directory is the other's or lies below it, wherever it was moved. A directory
//!                that another door moves below a mounted one later is not noticed: both then write as `shared` mounts do.
//! Not here:   what a batch of a mount asserts (session_state), when a session is dead (beat).

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use margay_env::Timestamp;
use margay_meta::RowVersion;
use margay_rows::record::{DirectoryRecord, LeaseRecord, MountLeaseRecord, SessionRecord};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::error::Refused;
use crate::open::Volume;
use crate::session_state::MountLease;

/// A longer chain of parents is taken for a cycle.
const DEPTH_MAX: usize = 1 << 20;

/// Who writes to a directory already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountHolder {
    /// Its host, and the address at which others read its store.
    pub host: String,
    pub address: String,
    /// The bucket, and the directory with its `/`.
    pub place: String,
    /// By the clock of its machine.
    pub since: Timestamp,
    /// It lets others write too.
    pub shared: bool,
}

/// A mount that wants to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountWish<'a> {
    /// The root of the bucket.
    pub(crate) root: Ino,
    pub(crate) directory: Ino,
    pub(crate) shared: bool,
    /// The bucket, and the directory with its `/`.
    pub(crate) place: &'a str,
}

/// A lease that there is.
type Row = (Vec<u8>, RowVersion, MountLeaseRecord);

impl Volume {
    /// Takes the lease, or says who has one that overlaps. Nothing is read if the engine is not shared. Blocks this thread.
    pub(crate) fn take_mount_lease(&self, wish: MountWish<'_>) -> Result<Result<Arc<MountLease>, MountHolder>, Error> {
        if !self.engine.is_shared() {
            return Ok(Ok(MountLease::nothing()));
        }
        let number = self.new_ino()?;
        let session = self.sessions.number()?;
        let key = key::mount_lease(wish.root, number);
        // Known before its row is there: whatever becomes of the commit, no row stays behind (P3).
        let lease = self.sessions.mounts.took(key.clone(), session, wish.place.to_owned());
        let tried = self.retry(|seen| match self.try_mount_lease(wish, (session, number), seen)? {
            Decided::Committed(taken, done) => {
                self.engine.wait_durable(done.cursor)?;
                Ok(taken)
            }
            Decided::Commit(_, taken) | Decided::Nothing(taken) => Ok(taken),
        })?;
        match tried {
            Err(_) => self.sessions.mounts.ended(&key),
            // Of mounts that are gone, perhaps the one that this one takes over.
            Ok(()) => self.remove_old_file_locks(wish.root)?,
        }
        Ok(tried.map(|()| lease))
    }

    fn try_mount_lease(
        &self,
        wish: MountWish<'_>,
        (own, number): (Ino, Ino),
        seen: &mut Seen,
    ) -> Result<Decided<Result<(), MountHolder>>, Refused> {
        let takings = key::mount_takings(wish.root);
        // Before the leases (M1).
        let order = self.get(&takings, seen)?;
        let last = order.as_ref().map_or(Ok(LeaseRecord::default()), |row| LeaseRecord::decode(&row.value))?;
        let chain = self.directories_above(wish.directory, seen)?;
        let (mut draft, mut dead) = (Draft::default(), BTreeSet::new());
        for (key, version, there) in self.mount_leases_of(wish.root, seen)? {
            if there.holder == own || self.sessions.mounts.has(&key) {
                continue;
            }
            let session = key::session(there.holder);
            match self.get(&session, seen)? {
                None => {
                    tracing::warn!(
                        place = there.place,
                        session = there.holder.0,
                        "a mount of a dead server is taken over"
                    );
                    dead.insert(session);
                    draft.assert_version(key.clone(), version);
                    draft.delete(key);
                }
                Some(_) if wish.shared && there.shared => {}
                Some(row) if self.overlap(&chain, wish.directory, there.directory, seen)? => {
                    let SessionRecord { host, address, .. } = SessionRecord::decode(&row.value)?;
                    let MountLeaseRecord { place, since, shared, .. } = there;
                    return Ok(Decided::Nothing(Err(MountHolder { host, address, place, since, shared })));
                }
                Some(_) => {}
            }
        }
        dead.into_iter().for_each(|session| draft.assert_absent(session));
        draft.assert_unchanged(takings.clone(), order.map(|row| row.version));
        draft.assert_exists(key::session(own));
        let epoch = last.epoch.checked_add(1).ok_or_else(|| Error::Corrupt("no epochs are left".to_owned()))?;
        draft.put(takings, LeaseRecord { holder: own, epoch }.encode());
        let (since, place) = (self.now(), wish.place.to_owned());
        let record = MountLeaseRecord { holder: own, directory: wish.directory, shared: wish.shared, since, place };
        draft.put(key::mount_lease(wish.root, number), record.encode());
        self.finish(draft, Ok(()))
    }

    fn mount_leases_of(&self, root: Ino, seen: &mut Seen) -> Result<Vec<Row>, Error> {
        let mut rows = Vec::new();
        self.scan(&key::mount_leases(root), seen, |row| {
            rows.push((row.key.to_vec(), row.version, MountLeaseRecord::decode(row.value)?));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// A directory and all above it; ends where one is gone.
    fn directories_above(&self, mut directory: Ino, seen: &mut Seen) -> Result<BTreeSet<Ino>, Error> {
        let mut chain = BTreeSet::new();
        while directory != Ino(0) && chain.insert(directory) && chain.len() <= DEPTH_MAX {
            let Some(row) = self.get(&key::directory(directory), seen)? else { break };
            directory = DirectoryRecord::decode(&row.value)?.parent;
        }
        Ok(chain)
    }

    /// M3; `chain`: the first directory and all above it.
    fn overlap(&self, chain: &BTreeSet<Ino>, one: Ino, other: Ino, seen: &mut Seen) -> Result<bool, Error> {
        Ok(chain.contains(&other) || self.directories_above(other, seen)?.contains(&one))
    }

    /// Gives a lease back at once. Blocks this thread.
    pub(crate) fn give_mount_lease_back(&self, lease: &MountLease) -> Result<(), Error> {
        let Some(key) = lease.key() else { return Ok(()) };
        if lease.check().is_err() {
            return Ok(());
        }
        lease.gave_back();
        self.end_mount_lease(key)
    }

    /// Removes the row of a lease of this process, if it has it still.
    fn end_mount_lease(&self, key: &[u8]) -> Result<(), Error> {
        self.retry(|seen| {
            let Some(row) = self.get(key, seen)? else { return Ok(()) };
            let mut draft = Draft::default();
            draft.assert_version(key.to_vec(), row.version);
            draft.delete(key.to_vec());
            self.commit(draft)?;
            Ok(())
        })?;
        self.sessions.mounts.ended(key);
        Ok(())
    }

    /// Leases that were taken in an earlier session are held in this one, unless another process took them; those that
    /// nobody uses end. With each beat; reads nothing if all are as they should be. Blocks this thread.
    pub(crate) fn keep_mount_leases(&self) -> Result<(), Error> {
        let own = self.sessions.number()?;
        for lease in self.sessions.mounts.used() {
            if let Some(key) = lease.key()
                && lease.check().is_ok()
                && !lease.is_held_in(own)
            {
                self.keep_mount_lease(&lease, key, own)?;
            }
        }
        self.sessions.mounts.unused().iter().try_for_each(|key| self.end_mount_lease(key))
    }

    fn keep_mount_lease(&self, lease: &MountLease, key: &[u8], own: Ino) -> Result<(), Error> {
        let is_kept = self.retry(|seen| {
            let Some(row) = self.get(key, seen)? else { return Ok(false) };
            let record = MountLeaseRecord { holder: own, ..MountLeaseRecord::decode(&row.value)? };
            let mut draft = Draft::default();
            draft.assert_version(key.to_vec(), row.version);
            draft.assert_exists(key::session(own));
            draft.put(key.to_vec(), record.encode());
            self.commit(draft)?;
            Ok(true)
        })?;
        if is_kept {
            lease.held_in(own)
        } else {
            lease.lost()
        }
        Ok(())
    }
}
