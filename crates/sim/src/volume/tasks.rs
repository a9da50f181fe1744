//! Runs several futures on one thread, in an order that the seed chooses.
//!
//! Why:        the same seed then interleaves operations in the same way, as far as they do not wait for threads.
//! Invariants: only futures that were woken are polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use margay_env::sim::SimRandom;

use crate::Failure;

/// Nobody is waited for longer than this without a look whether to stop.
const PATIENCE: Duration = Duration::from_millis(20);

pub(super) type Task<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + 'a>>;

struct Woken {
    thread: Thread,
    flag: AtomicBool,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.flag.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Polls until all have ended, or `polls_max` polls were made, or `stop` says so. Unfinished futures are dropped.
pub(super) fn run(
    tasks: Vec<Task<'_>>,
    random: &SimRandom,
    polls_max: u64,
    stop: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let thread = std::thread::current();
    let woken = || Arc::new(Woken { thread: thread.clone(), flag: AtomicBool::new(true) });
    let mut tasks: Vec<(Task<'_>, Arc<Woken>)> = tasks.into_iter().map(|task| (task, woken())).collect();
    let mut polls = 0;
    while !tasks.is_empty() && polls < polls_max && !stop() {
        let ready: Vec<usize> = (0..tasks.len()).filter(|index| tasks[*index].1.flag.load(Ordering::Acquire)).collect();
        if ready.is_empty() {
            std::thread::park_timeout(PATIENCE);
            continue;
        }
        let index = ready[random.below(ready.len() as u64) as usize];
        let (task, woken) = &mut tasks[index];
        woken.flag.store(false, Ordering::Release);
        polls += 1;
        let waker = Waker::from(Arc::clone(woken));
        if let Poll::Ready(result) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            result?;
            drop(tasks.swap_remove(index));
        }
    }
    Ok(())
}

/// Drives one future to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let woken = Arc::new(Woken { thread: std::thread::current(), flag: AtomicBool::new(true) });
    let waker = Waker::from(woken);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
