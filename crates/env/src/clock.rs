//! The clock port: wall time for people and files, monotonic time for measuring.
//!
//! Why:        a test must be able to move file times, signature skew and lease times.
//! Invariants: wall time may jump; monotonic time never goes back.

use std::fmt::Debug;
use std::time::Duration;

/// Wall time in nanoseconds since 1970-01-01T00:00:00Z; covers the years 1678 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000_000)
    }
    /// Nanoseconds within the second, `0..1_000_000_000`.
    pub fn subsecond_nanos(self) -> u32 {
        self.0.rem_euclid(1_000_000_000) as u32
    }
}

pub trait Clock: Send + Sync + Debug {
    /// Wall time now.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment before this process began; only differences mean anything.
    fn monotonic(&self) -> Duration;
    /// Blocks this thread; a simulated clock may return at once.
    fn sleep(&self, length: Duration);
    /// From now on this thread's sleeps end as close to their time as the system can. Linux lets them end 50 us later
    /// otherwise, so that it wakes several threads at once.
    fn sleep_exactly(&self) {}
}
