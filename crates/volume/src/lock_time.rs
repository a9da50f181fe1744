//! The time by which object locks end.
//!
//! Why:        a clock that jumps ahead must not end a lock. The watcher of the clock reports a trusted time; from then
//!             on only the monotonic clock advances it, until the next report.
//! Invariants: T1 a lock ends by the earlier of the wall clock and the trusted time.
//!             T2 a new lock counts from the later of them.
//! Not here:   which time is trusted (margay-jobs), what a lock is (lock).

use std::time::Duration;

use margay_env::{Clock, Timestamp};
use parking_lot::Mutex;

/// How far the clock may move ahead between two reports.
const SLACK: Duration = Duration::from_secs(60);

/// The last trusted time, and its moment on the monotonic clock; `None` without a watcher.
#[derive(Debug, Default)]
pub(crate) struct LockTime(Mutex<Option<(Timestamp, Duration)>>);

impl LockTime {
    pub(crate) fn set(&self, believed: Timestamp, monotonic: Duration) {
        *self.0.lock() = Some((believed, monotonic));
    }

    fn believed(&self, clock: &dyn Clock) -> Option<Timestamp> {
        let (believed, at) = (*self.0.lock())?;
        let since = clock.monotonic().saturating_sub(at).saturating_add(SLACK);
        Some(Timestamp(believed.0.saturating_add(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))))
    }

    /// The time that decides whether a lock has ended.
    pub(crate) fn now(&self, clock: &dyn Clock) -> Timestamp {
        self.believed(clock).map_or(clock.now(), |believed| believed.min(clock.now()))
    }

    /// The time from which a new lock counts.
    pub(crate) fn from(&self, clock: &dyn Clock) -> Timestamp {
        self.believed(clock).map_or(clock.now(), |believed| believed.max(clock.now()))
    }
}
