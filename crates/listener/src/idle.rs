//! Connections between two requests, which end when a new connection needs their place.
//!
//! Why:        a browser keeps six connections open without asking anything. When all places are taken by such ones, a probe of
//!             health must not be refused.
//! Invariants: I1 `end_one` ends at most one connection for each `true`, the one that has waited longest, and never one with a
//!                request under way.
//! Not here:   the number of places (`listener`), the time after which an idle connection ends in any case (`connection`).

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// Connections that wait and were not told to end.
    waiting: AtomicUsize,
    end: Notify,
}

impl Idle {
    /// Waits for `ready`, a request's first bytes; `None`: the connection shall end.
    pub(crate) async fn until<T>(&self, ready: impl Future<Output = T>) -> Option<T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(self);
        tokio::select! {
            biased;
            ready = ready => Some(ready),
            () = self.end.notified() => {
                // `end_one` has counted it out.
                std::mem::forget(waiting);
                None
            }
        }
    }

    /// Ends the connection that has waited longest; `false`: none waits.
    pub(crate) fn end_one(&self) -> bool {
        let was_there = self.count_out();
        if was_there {
            self.end.notify_one();
        }
        was_there
    }

    fn count_out(&self) -> bool {
        self.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1)).is_ok()
    }
}

struct Waiting<'a>(&'a Idle);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // When `end_one` meant this one, the next that waits ends instead.
        self.0.count_out();
    }
}
