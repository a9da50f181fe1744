//! The line of requests that wait for locks.
//!
//! Locking:    one lock over the line, held for one step.
//! Not here:   asking for them (locks).

use std::time::Duration;

use fuser::ReplyEmpty;
use parking_lot::{Condvar, Mutex};

use crate::protocol::LockWish;

/// A lock that a process asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockRequest {
    pub(super) node: u64,
    pub(super) handle: u64,
    pub(super) wish: LockWish,
    /// The thread that waits; 0 where it cannot be seen.
    pub(super) task: u32,
    pub(super) waits: bool,
}

pub(super) struct Waiting {
    pub(super) request: LockRequest,
    /// Of the monotonic clock.
    pub(super) since: Duration,
    pub(super) reply: ReplyEmpty,
}

/// Requests that wait for locks.
#[derive(Default)]
pub(super) struct WaitingLocks {
    pub(super) state: Mutex<State>,
    /// Something was given back.
    pub(super) freed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// In the order in which they came (L2).
    pub(super) line: Vec<Waiting>,
    /// The thread that asks is there (L3).
    pub(super) runs: bool,
    /// A lock was given back since the last round.
    pub(super) freed: bool,
}

impl std::fmt::Debug for WaitingLocks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("WaitingLocks").field("line", &self.state.lock().line.len()).finish()
    }
}

impl WaitingLocks {
    pub(super) fn freed(&self) {
        let mut state = self.state.lock();
        if state.runs {
            state.freed = true;
            self.freed.notify_one();
        }
    }
}
