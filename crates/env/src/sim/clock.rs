//! A clock that a test moves, or that `sleep` moves.
//!
//! Invariants: monotonic time never goes back, also when the wall time is set back.

use std::time::Duration;

use parking_lot::Mutex;

use crate::{Clock, Timestamp};

#[derive(Debug)]
pub struct SimClock(Mutex<State>);

#[derive(Debug)]
struct State {
    wall: Timestamp,
    monotonic: Duration,
}

impl SimClock {
    /// Wall time begins at `start`, monotonic time at zero.
    pub fn new(start: Timestamp) -> SimClock {
        SimClock(Mutex::new(State { wall: start, monotonic: Duration::ZERO }))
    }

    /// Moves both times forward.
    pub fn advance(&self, length: Duration) {
        let mut state = self.0.lock();
        state.monotonic += length;
        let nanos = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX);
        state.wall = Timestamp(state.wall.0.saturating_add(nanos));
    }

    /// Makes the wall time jump, forward or back.
    pub fn set_wall(&self, now: Timestamp) {
        self.0.lock().wall = now;
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.0.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().monotonic
    }

    /// Moves the clock and returns at once.
    fn sleep(&self, length: Duration) {
        self.advance(length);
    }
}
