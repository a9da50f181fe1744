//! Backpressure: slows commits so that the log does not fill up before the running fold has ended.
//!
//! Why:        without it commits run at memory speed and then stop for seconds; with it they run at the fold's speed.
//! Invariants: P1 no delay while no fold runs, or while the fold is ahead of the log.
//! Not here:   the hard limit (commit waits for room), the fold (checkpoint).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use super::Embedded;

/// Fraction of the log, in thousandths, that may fill before the fold's progress matters.
const HEAD_START_PERMILLE: u64 = 100;
/// Delays are accumulated until they are worth a sleep.
const DELAY_MIN: Duration = Duration::from_micros(500);
const DELAY_MAX: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Progress of the running fold, in thousandths; [`Pace::IDLE`] if none runs.
    progress: AtomicU32,
    /// Expected length of the whole running fold.
    fold_nanoseconds: AtomicU64,
    /// Bytes of the active log in use.
    filled: AtomicU64,
    /// Accumulated delay.
    owed_nanoseconds: AtomicU64,
}

impl Pace {
    pub(super) const IDLE: u32 = u32::MAX;

    pub(super) fn new() -> Pace {
        Pace { progress: AtomicU32::new(Pace::IDLE), ..Pace::default() }
    }

    pub(super) fn fold_began(&self, expected: Duration) {
        self.fold_nanoseconds.store(expected.as_nanos() as u64, Ordering::Relaxed);
        self.progress.store(0, Ordering::Relaxed);
    }

    pub(super) fn fold_at(&self, permille: u32) {
        self.progress.store(permille.min(999), Ordering::Relaxed);
    }

    pub(super) fn fold_ended(&self) {
        self.progress.store(Pace::IDLE, Ordering::Relaxed);
    }

    pub(super) fn filled(&self, bytes: u64) {
        self.filled.store(bytes, Ordering::Relaxed);
    }

    /// The delay that a commit of so many bytes should take now.
    fn delay(&self, record_bytes: u64, log_bytes: u64) -> Duration {
        let progress = self.progress.load(Ordering::Relaxed);
        if progress == Pace::IDLE {
            return Duration::ZERO;
        }
        let filled = self.filled.load(Ordering::Relaxed).min(log_bytes);
        let filled_permille = filled * 1000 / log_bytes;
        if filled_permille <= u64::from(progress) + HEAD_START_PERMILLE {
            return Duration::ZERO;
        }
        // The rest of the log has to last as long as the rest of the fold.
        let left_bytes = (log_bytes - filled).max(log_bytes / 64);
        let left_nanoseconds = self.fold_nanoseconds.load(Ordering::Relaxed) / 1000 * u64::from(1000 - progress);
        Duration::from_nanos(left_nanoseconds.saturating_mul(record_bytes) / left_bytes).min(DELAY_MAX)
    }
}

impl Embedded {
    /// Sleeps for the required delay before a commit of this size; holds no lock.
    pub(super) fn pace(&self, record_bytes: u64) {
        let delay = self.pace.delay(record_bytes, self.options.log_file_bytes);
        if delay.is_zero() {
            return;
        }
        let owed = self.pace.owed_nanoseconds.fetch_add(delay.as_nanos() as u64, Ordering::Relaxed);
        let owed = owed + delay.as_nanos() as u64;
        if owed >= DELAY_MIN.as_nanos() as u64 {
            let mine = self.pace.owed_nanoseconds.swap(0, Ordering::Relaxed);
            self.env.clock.sleep(Duration::from_nanos(mine).min(DELAY_MAX));
        }
    }
}
