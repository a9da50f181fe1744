//! A thread pool for requests that wait: for a disk, or for metadata of another machine.
//!
//! Why:        a session's few threads must stay free for lookups while other requests wait for a sync; and the more
//!             requests wait together, the more of them share one sync.
//! Invariants: T1 there are at most so many threads as were asked for; further work is queued.  T2 no work is dropped.
//!             T3 work that panics ends alone: its thread goes on with the next.
//!             T4 the thread that became idle last works next: its stack and its heap are in the processor's caches, and threads
//!                that a burst needed end though work goes on.
//! Locking:    one lock over the queue, held for one step.
//! Not here:   the work itself.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Requests that wait at once for a disk.
pub(crate) const THREADS_MAX: usize = 64;
/// Requests that wait at once where metadata is on another machine: a thread costs a few pages while it waits.
pub(crate) const FAR_THREADS_MAX: usize = 2048;
/// An idle thread ends after this time.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    line: VecDeque<Work>,
    threads: usize,
    /// What wakes each idle thread, the last one at the end (T4).
    idle: Vec<Arc<Condvar>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Clone)]
pub(crate) struct Waiters {
    shared: Arc<Shared>,
    threads_max: usize,
}

impl std::fmt::Debug for Waiters {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.state.lock();
        formatter.debug_struct("Waiters").field("threads", &state.threads).field("line", &state.line.len()).finish()
    }
}

impl Waiters {
    pub(crate) fn new(threads_max: usize) -> Waiters {
        Waiters { shared: Arc::default(), threads_max }
    }

    /// Runs the work on another thread, or on this one when no thread can be started.
    pub(crate) fn run(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        state.line.push_back(Box::new(work));
        if let Some(idle) = state.idle.pop() {
            drop(state);
            idle.notify_one();
            return;
        }
        if state.threads >= self.threads_max {
            return;
        }
        state.threads += 1;
        assert!(state.threads <= self.threads_max, "threads are counted (T1)");
        let shared = Arc::clone(&self.shared);
        if std::thread::Builder::new().name("fuse-wait".to_owned()).spawn(move || shared.serve()).is_ok() {
            return;
        }
        state.threads -= 1;
        if state.threads > 0 {
            return;
        }
        let work = state.line.pop_back();
        drop(state);
        if let Some(work) = work {
            work();
        }
    }
}

impl Shared {
    fn serve(&self) {
        let woken = Arc::new(Condvar::new());
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.line.pop_front() {
                drop(state);
                // The panic was reported where it happened, and the dropped reply tells the kernel of an error (T3).
                let _ = catch_unwind(AssertUnwindSafe(work));
                state = self.state.lock();
                continue;
            }
            state.idle.push(Arc::clone(&woken));
            woken.wait_for(&mut state, IDLE_MAX);
            // Whoever wakes a thread has taken it out. It ends if nobody did.
            let unused = state.idle.iter().position(|idle| Arc::ptr_eq(idle, &woken));
            if let Some(unused) = unused {
                state.idle.remove(unused);
                if state.line.is_empty() {
                    assert!(state.idle.len() < state.threads, "a thread that ends is not idle (T1)");
                    state.threads -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn works_wait_side_by_side() {
        let waiters = Waiters::new(THREADS_MAX);
        let barrier = Arc::new(Barrier::new(THREADS_MAX + 1));
        for _ in 0..THREADS_MAX {
            let barrier = Arc::clone(&barrier);
            waiters.run(move || {
                barrier.wait();
            });
        }
        // Passes only when all of them run at once.
        barrier.wait();
        let (sender, receiver) = std::sync::mpsc::channel();
        for number in 0..1000 {
            let sender = sender.clone();
            waiters.run(move || sender.send(number).unwrap());
        }
        let mut done: Vec<i32> = (0..1000).map(|_| receiver.recv().unwrap()).collect();
        done.sort_unstable();
        assert_eq!(done, (0..1000).collect::<Vec<_>>());
        assert!(waiters.shared.state.lock().threads <= THREADS_MAX);
    }

    #[test]
    fn the_thread_that_became_idle_last_works_next() {
        let waiters = Waiters::new(2);
        let becomes_idle = |count| {
            while waiters.shared.state.lock().idle.len() < count {
                std::thread::yield_now();
            }
        };
        let (release, releases): (Vec<_>, Vec<_>) = (0..2).map(|_| std::sync::mpsc::channel::<()>()).unzip();
        let (tell, told) = std::sync::mpsc::channel();
        let work = |wait: Option<std::sync::mpsc::Receiver<()>>| {
            let tell = tell.clone();
            waiters.run(move || {
                tell.send(std::thread::current().id()).unwrap();
                wait.map(|wait| wait.recv());
            });
            told.recv().unwrap()
        };
        let threads: Vec<_> = releases.into_iter().map(|wait| work(Some(wait))).collect();
        release[1].send(()).unwrap();
        becomes_idle(1);
        release[0].send(()).unwrap();
        becomes_idle(2);
        assert_eq!(work(None), threads[0]);
    }

    #[test]
    fn work_that_panics_leaves_the_thread() {
        let waiters = Waiters::new(1);
        let (sender, receiver) = std::sync::mpsc::channel();
        waiters.run(|| panic!("as the test wants"));
        waiters.run(move || sender.send(()).unwrap());
        receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!(waiters.shared.state.lock().threads, 1);
    }
}
