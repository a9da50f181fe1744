//! A fold on a full disk: it waits.
//!
//! Why:        other programs may use the bytes that are kept free for folds (`room`). redb refuses everything after a
//!             failed write, so the store would accept no changes until its next start.
//! Invariants: F1 only writes of the tree's files wait, and only from `allow_waiting` until `stop_waiting`.
//!             F2 a refused write is retried with the same bytes at the same offset until it succeeds or is cancelled.
//! Locking:    none; readers of the tree continue, since redb holds none of their locks while it writes.
//! Not here:   keeping the bytes free (room), commits meanwhile (checkpoint).

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_env::File;

/// Time between two attempts.
const TRY_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct FullDisk {
    may_wait: AtomicBool,
    waiting: AtomicBool,
}

impl FullDisk {
    pub(super) fn allow_waiting(&self) {
        self.may_wait.store(true, Ordering::SeqCst);
    }

    /// A waiting write fails now, and no further one waits.
    pub(super) fn stop_waiting(&self) {
        self.may_wait.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Writes all bytes; on a full disk, as soon as there is space.
    pub(super) fn write_all_at(&self, file: &dyn File, bytes: &[u8], offset: u64) -> io::Result<()> {
        loop {
            let written = file.write_all_at(bytes, offset);
            let full = written
                .as_ref()
                .is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded));
            if !full || !self.may_wait.load(Ordering::SeqCst) {
                if self.waiting.swap(false, Ordering::SeqCst) {
                    tracing::info!(done = written.is_ok(), "the fold of the log has waited for room");
                }
                return written;
            }
            if !self.waiting.swap(true, Ordering::SeqCst) {
                tracing::warn!(
                    "the disk is full: the fold of the log waits, and changes are refused until there is room"
                );
            }
            std::thread::sleep(TRY_EVERY);
        }
    }
}
