//! What one connection is doing, shared between its socket, its requests and its task.
//!
//! Why:        only the task may decide that a connection is idle, and it needs both ends to know it.
//! Invariants: P1 `running` counts requests whose answer has not been handed over whole.
//!             P2 `heard` is true from the first byte after an answer until the next request's head is complete.
//! Locking:    none; each field is read and written alone, and a stale value only delays parking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Traffic;

/// The state of one connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    running: AtomicUsize,
    heard: AtomicBool,
    /// There has been a request.
    asked: AtomicBool,
    /// The socket does not take more bytes at the moment.
    blocked: AtomicBool,
    /// Milliseconds after `made` when the last request ended.
    rested_at: AtomicU64,
}

impl Pulse {
    pub(crate) fn start() -> Arc<Pulse> {
        Arc::new(Pulse {
            made: Instant::now(),
            running: AtomicUsize::new(0),
            heard: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            blocked: AtomicBool::new(false),
            rested_at: AtomicU64::new(0),
        })
    }

    pub(crate) fn heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    pub(crate) fn blocked(&self, blocked: bool) {
        self.blocked.store(blocked, Ordering::Relaxed);
    }

    /// A request's head is complete; the request runs until the answer is dropped.
    pub(crate) fn begin(self: &Arc<Pulse>, traffic: &Arc<Traffic>) -> Running {
        traffic.begin();
        self.running.fetch_add(1, Ordering::Relaxed);
        self.heard.store(false, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        Running(Arc::clone(self), Arc::clone(traffic))
    }

    /// Whether there has been a request at all.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// How long nothing has been asked and nothing is on its way; `None` while something is.
    pub(crate) fn resting(&self) -> Option<Duration> {
        let busy = self.running.load(Ordering::Relaxed) > 0 || self.blocked.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.rested_at.load(Ordering::Relaxed));
        (!busy).then(|| self.made.elapsed().saturating_sub(since))
    }

    /// As `resting`, and not a byte of a next request has come.
    pub(crate) fn silent(&self) -> Option<Duration> {
        if self.heard.load(Ordering::Relaxed) { None } else { self.resting() }
    }
}

/// One running request; dropped with its answer.
#[derive(Debug)]
pub(crate) struct Running(Arc<Pulse>, Arc<Traffic>);

impl Drop for Running {
    fn drop(&mut self) {
        let millis = u64::try_from(self.0.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.rested_at.store(millis, Ordering::Relaxed);
        // What was heard meanwhile was this request's body. A next head that was read with it is given back when the
        // connection is parked, and heard again.
        self.0.heard.store(false, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.1.end();
    }
}
