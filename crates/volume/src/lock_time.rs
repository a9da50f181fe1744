//! The time by which locks end.
//!
//! Why:        a clock that jumps ahead must not end a lock. Whoever watches the clock says what time was believed, and when;
//!             from then on only the monotonic clock counts until it is said again.
//! Invariants: T1 a lock ends by the clock and by the time believed, whichever is earlier.  T2 what is locked from now on is
//!             locked from the later of them.
//! Not here:   what is believed (the binary), what a lock is (lock).

use std::time::Duration;

use margay_env::{Clock, Timestamp};
use parking_lot::Mutex;

/// How much the clock may be set forward between two words about it.
const SLACK: Duration = Duration::from_secs(60);

/// The time that was believed last, and when that was on the monotonic clock; `None` while nobody watches.
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

    /// Whether a lock until then is over is asked by this time.
    pub(crate) fn now(&self, clock: &dyn Clock) -> Timestamp {
        self.believed(clock).map_or(clock.now(), |believed| believed.min(clock.now()))
    }

    /// What is locked for some days is so from this time on.
    pub(crate) fn from(&self, clock: &dyn Clock) -> Timestamp {
        self.believed(clock).map_or(clock.now(), |believed| believed.max(clock.now()))
    }
}
