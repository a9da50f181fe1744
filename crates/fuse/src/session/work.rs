//! On which thread a request runs.
//!
//! Why:        the threads of a session read the kernel's requests. Where metadata is on another machine a request may hold its
//!             thread for seconds; if all threads of a session were held, nobody would read requests that need no metadata.
//! Invariants: W1 `SPARE` threads of a session never wait for metadata: a request that would take one of them runs on a
//!                thread that may wait (waiters).
//! Locking:    none.
//! Not here:   the requests (adapter), calls that wait for a disk or for space (waits).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fuser::INodeNo;
use margay_env::{Clock, Env};

use super::SessionOptions;
use super::capabilities::Choice;
use super::waiting_locks::WaitingLocks;
use crate::absent::AbsentNames;
use crate::metrics::{Metrics, Request};
use crate::protocol::{Answer, Operations};
use crate::waiters::{FAR_THREADS_MAX, THREADS_MAX, Waiters};

/// Threads of a session that do not wait for metadata.
const SPARE: usize = 4;

#[derive(Debug)]
pub(super) struct Adapter<O> {
    pub(super) work: Arc<Work<O>>,
    pub(super) waiters: Waiters,
    pub(super) choice: Choice,
}

/// State that work on other threads needs too.
#[derive(Debug)]
pub(super) struct Work<O> {
    pub(super) operations: Arc<O>,
    /// Bytes of writes that wait for space, or for a thread.
    pub(super) waiting_bytes: AtomicU64,
    pub(super) seats: Seats,
    pub(super) absent: Arc<AbsentNames>,
    pub(super) locks: WaitingLocks,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
}

/// How many more threads of the session may wait; `None` where no request waits long.
#[derive(Debug)]
pub(super) struct Seats {
    free: Option<AtomicUsize>,
    most: usize,
}

/// A request that runs on a thread of the session.
#[derive(Debug)]
pub(super) struct Seat<'s>(&'s Seats);

impl Seats {
    fn new(options: &SessionOptions) -> Seats {
        let most = options.threads.saturating_sub(SPARE);
        Seats { free: options.waits.then(|| AtomicUsize::new(most)), most }
    }

    /// `None` if the request must run on another thread.
    pub(super) fn take(&self) -> Option<Seat<'_>> {
        if let Some(free) = &self.free {
            let less = |free: usize| free.checked_sub(1);
            free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()?;
        }
        Some(Seat(self))
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let Seats { free, most } = self.0;
        if let Some(free) = free {
            let before = free.fetch_add(1, Ordering::Relaxed);
            assert!(before < *most, "a thread that waited was counted (W1)");
        }
    }
}

impl<O: Operations> Work<O> {
    /// See [`Operations::keep_time_in`]; asked when what is kept was read, which may have made it fresh.
    pub(super) fn keep_time_in(&self, directory: INodeNo) -> Duration {
        self.operations.keep_time_in(directory.0)
    }

    pub(super) fn keep_absent_time_in(&self, directory: INodeNo) -> Duration {
        self.operations.keep_absent_time_in(directory.0)
    }

    pub(super) fn keep_time_of(&self, node: INodeNo) -> Duration {
        self.operations.keep_time_of(node.0)
    }

    /// Of the monotonic clock.
    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(super) fn measured<T>(&self, request: Request, call: impl FnOnce(&O) -> Answer<T>) -> Answer<T> {
        let begun = self.clock.monotonic();
        let answer = call(&self.operations);
        self.metrics.record(request, self.clock.monotonic().saturating_sub(begun), answer.is_err());
        answer
    }
}

impl<O: Operations> Adapter<O> {
    pub(super) fn new(
        operations: Arc<O>,
        metrics: Arc<Metrics>,
        options: &SessionOptions,
        absent: Arc<AbsentNames>,
        env: &Env,
    ) -> Adapter<O> {
        let (clock, waiting_bytes, seats) = (Arc::clone(&env.clock), AtomicU64::default(), Seats::new(options));
        let locks = WaitingLocks::default();
        let work = Work { operations, waiting_bytes, seats, absent, locks, metrics, clock };
        let waiters = Waiters::new(if options.waits { FAR_THREADS_MAX } else { THREADS_MAX });
        Adapter { work: Arc::new(work), waiters, choice: Choice::new(options) }
    }

    /// Runs a request and its answer here, or on a thread that may wait (W1).
    pub(super) fn serve(&self, run: impl FnOnce(&Work<O>) + Send + 'static) {
        if let Some(_seat) = self.work.seats.take() {
            return run(&self.work);
        }
        let work = Arc::clone(&self.work);
        self.waiters.run(move || run(&work));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_threads_of_a_session_never_wait_for_metadata() {
        let options = SessionOptions { threads: 6, waits: true, ..SessionOptions::default() };
        let seats = Seats::new(&options);
        let (one, two) = (seats.take(), seats.take());
        assert!(one.is_some() && two.is_some() && seats.take().is_none());
        drop(one);
        assert!(seats.take().is_some());
        let few = Seats::new(&SessionOptions { threads: 1, ..options });
        assert!(few.take().is_none());
        let near = Seats::new(&SessionOptions { threads: 1, ..SessionOptions::default() });
        let many: Vec<_> = (0..100).map(|_| near.take()).collect();
        assert!(many.iter().all(Option::is_some));
    }
}
