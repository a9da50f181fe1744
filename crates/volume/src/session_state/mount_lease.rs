//! The leases of this process's mounts: what each batch of a mount that writes asserts.
//!
//! Why:        a mount keeps open files, locks and caches in one process. Another process that mounts the same directory to
//!             write must be able to take it over from one that is dead or stands still, without asking it.
//! Invariants: P1 a lease is a row whose number is never used again: a batch that asserts that it exists commits before the
//!                row's end, or never.
//!             P2 a lease that was lost, or given back, never comes back.
//!             P3 the row of a lease that nobody uses any more is removed by the next beat.
//! Locking:    a leaf lock over the list.
//! Not here:   taking, renewing and giving back (sessions).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use margay_rows::Ino;
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Draft;

/// The right of one mount to write, until another process takes it.
#[derive(Debug)]
pub(crate) struct MountLease {
    /// Its row; none where nothing is asserted.
    key: Option<Vec<u8>>,
    /// The session that its row names, as far as this process knows.
    holder: AtomicU64,
    /// The bucket and directory, for people.
    place: String,
    over: AtomicBool,
}

impl MountLease {
    /// Of a mount whose batches assert nothing: it is read-only, or nobody shares the engine.
    pub(crate) fn nothing() -> Arc<MountLease> {
        Arc::new(MountLease {
            key: None,
            holder: AtomicU64::new(0),
            place: String::new(),
            over: AtomicBool::new(false),
        })
    }

    /// Makes the draft commit only while the lease is held (P1).
    pub(crate) fn assert_held(&self, draft: &mut Draft) -> Result<(), Error> {
        let Some(key) = &self.key else { return Ok(()) };
        self.check()?;
        draft.assert_lease_exists(key.clone());
        Ok(())
    }

    /// Fails once it is known that the lease is over.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.over.load(Ordering::Acquire) { Err(Error::LeaseLost) } else { Ok(()) }
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    pub(crate) fn is_held_in(&self, session: Ino) -> bool {
        self.holder.load(Ordering::Acquire) == session.0
    }

    pub(crate) fn held_in(&self, session: Ino) {
        self.holder.store(session.0, Ordering::Release);
    }

    /// Its row is gone (P2).
    pub(crate) fn lost(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            tracing::error!(
                place = self.place,
                "another server took this mount over while this one stood still: it writes nothing more, and what was not \
                 closed or synced is lost; unmount it, and mount it again"
            );
        }
    }

    /// The mount needs it no more (P2).
    pub(crate) fn gave_back(&self) {
        self.over.store(true, Ordering::Release);
    }
}

/// All leases of this process that have, or may still have, rows.
#[derive(Debug, Default)]
pub(crate) struct MountLeases {
    all: Mutex<Vec<(Vec<u8>, Weak<MountLease>)>>,
}

impl MountLeases {
    /// The row of this key was put in this session.
    pub(crate) fn took(&self, key: Vec<u8>, session: Ino, place: String) -> Arc<MountLease> {
        let (holder, over) = (AtomicU64::new(session.0), AtomicBool::new(false));
        let lease = Arc::new(MountLease { key: Some(key.clone()), holder, place, over });
        self.all.lock().push((key, Arc::downgrade(&lease)));
        lease
    }

    /// Whether the row of this key is one of this process.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.all.lock().iter().any(|(own, _)| own == key)
    }

    /// The row of this key is gone.
    pub(crate) fn ended(&self, key: &[u8]) {
        self.all.lock().retain(|(own, _)| own != key);
    }

    /// Leases in use.
    pub(crate) fn used(&self) -> Vec<Arc<MountLease>> {
        self.all.lock().iter().filter_map(|(_, lease)| lease.upgrade()).collect()
    }

    /// Rows of leases that nobody uses any more.
    pub(crate) fn unused(&self) -> Vec<Vec<u8>> {
        let all = self.all.lock();
        all.iter().filter(|(_, lease)| lease.strong_count() == 0).map(|(key, _)| key.clone()).collect()
    }
}
