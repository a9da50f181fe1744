//! Activity of one connection, shared between its socket, its requests and its task.
//!
//! Why:        only the task may decide that a connection is idle, and it needs the state of both ends for that.
//! Invariants: P1 `running` counts requests whose response has not been handed over completely.
//!             P2 `heard` is true from the first byte after a response until the next request's head is complete.
//! Locking:    none; each field is read and written alone, and a stale value only delays parking.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Traffic;

/// The activity of one connection.
#[derive(Debug)]
pub(crate) struct Pulse {
    made: Instant,
    running: AtomicUsize,
    heard: AtomicBool,
    /// At least one request has arrived.
    asked: AtomicBool,
    /// The socket currently accepts no more bytes.
    blocked: AtomicBool,
    /// When the last request ended, in milliseconds after `made`.
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

    /// A request's head is complete; the request counts as running until the response is dropped.
    pub(crate) fn begin(self: &Arc<Pulse>, traffic: &Arc<Traffic>) -> Running {
        traffic.begin();
        self.running.fetch_add(1, Ordering::Relaxed);
        self.heard.store(false, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        Running(Arc::clone(self), Arc::clone(traffic))
    }

    /// Whether at least one request has arrived.
    pub(crate) fn asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// How long the connection has been idle; `None` while a request runs or bytes are in transit.
    pub(crate) fn resting(&self) -> Option<Duration> {
        let busy = self.running.load(Ordering::Relaxed) > 0 || self.blocked.load(Ordering::Relaxed);
        let since = Duration::from_millis(self.rested_at.load(Ordering::Relaxed));
        (!busy).then(|| self.made.elapsed().saturating_sub(since))
    }

    /// As `resting`, and no byte of a next request has arrived.
    pub(crate) fn silent(&self) -> Option<Duration> {
        if self.heard.load(Ordering::Relaxed) { None } else { self.resting() }
    }
}

/// One running request; dropped with its response.
#[derive(Debug)]
pub(crate) struct Running(Arc<Pulse>, Arc<Traffic>);

impl Drop for Running {
    fn drop(&mut self) {
        let millis = u64::try_from(self.0.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.rested_at.store(millis, Ordering::Relaxed);
        // Bytes received since then were this request's body. The head of a next request that was read together with it
        // is given back when the connection is parked, and counted again.
        self.0.heard.store(false, Ordering::Relaxed);
        self.0.running.fetch_sub(1, Ordering::Relaxed);
        self.1.end();
    }
}
