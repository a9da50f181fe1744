//! Reserves the disk space that folding the log may need.
//!
//! Why:        a fold on a full disk waits, and all changes with it; deletions must still be possible on a full disk.
//! Invariants: B1 commits that add rows are refused while less is free than one worst-case fold and the log files need.
//! Not here:   space for payload (segment has its own reserve), who asks (volume, before it adds rows).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::Embedded;

/// Bytes that folding one row may write: a leaf page and its share of the path above.
const FOLD_BYTES_PER_ROW: u64 = 6 << 10;
/// Reserved whatever the fold needs, in bytes.
const SPARE_BYTES: u64 = 16 << 20;
/// How long a successful check of the disk is valid.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Room {
    looked_nanoseconds: AtomicU64,
    full: AtomicBool,
}

impl Embedded {
    pub(super) fn has_room(&self) -> bool {
        let now = self.env.clock.monotonic().as_nanos() as u64;
        let looked = self.room.looked_nanoseconds.load(Ordering::Relaxed);
        if looked != 0 && now.saturating_sub(looked) < LOOK_INTERVAL.as_nanos() as u64 {
            // Checked again before a refusal: space may have been freed.
            if !self.room.full.load(Ordering::Relaxed) {
                return true;
            }
        }
        self.room.looked_nanoseconds.store(now.max(1), Ordering::Relaxed);
        let full = self.bytes_free().is_ok_and(|free| free < self.fold_bytes_worst());
        self.room.full.store(full, Ordering::Relaxed);
        !full
    }

    fn bytes_free(&self) -> std::io::Result<u64> {
        Ok(self.env.disk.space(&self.options.tree_folder)?.free_bytes)
    }

    /// A fold rewrites at most the whole tree, and at most a path for each of its rows.
    fn fold_bytes_worst(&self) -> u64 {
        let sealed: usize = self.lower.load().sealed.iter().map(|overlay| overlay.rows()).sum();
        let rows = (self.active.read().rows() + sealed) as u64;
        let tree = self.tree.allocated_bytes().unwrap_or(u64::MAX);
        let ready = self.log.serial.lock().ready.is_some();
        // One file more than in use: the next start begins a new one, while the log keeps what it has.
        let log = self.options.log_file_bytes.saturating_mul(if ready { 1 } else { 2 });
        SPARE_BYTES + log + (rows * FOLD_BYTES_PER_ROW).min(tree.saturating_add(rows * 512))
    }
}
