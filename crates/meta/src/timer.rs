//! Steps that run later, on a thread of their own: what waits for an answer holds no thread.
//!
//! Why:        all steps that are due run in one go, under one lock and one reading of the clock: a wake of a waiting task costs
//!             more than the step, and is cheap only for the tasks that are woken together.
//! Invariants: T1 a step runs once, at its time or later.  T2 after `end` returned at most one more step begins, the one that
//!                had been let through.
//! Locking:    one lock for the steps to come, one for each slot; neither is held while the thread sleeps, a step runs or a
//!             task is woken.
//! Not here:   what the steps do (distant, patient).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use margay_env::Clock;
use parking_lot::{Condvar, Mutex, MutexGuard};

/// The timer sleeps no shorter, so that it wakes several calls at once as a socket does.
const TICK: Duration = Duration::from_micros(100);

pub(crate) type TimedStep = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct Timer {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Default)]
struct Due {
    /// By when, and the number of the step.
    steps: BTreeMap<(Duration, u64), TimedStep>,
    count: u64,
    ended: bool,
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Timer").field("steps", &self.len()).finish_non_exhaustive()
    }
}

impl Timer {
    /// With its thread.
    pub(crate) fn start(name: &str, clock: Arc<dyn Clock>) -> Arc<Timer> {
        let timer = Arc::new(Timer::default());
        let running = Arc::clone(&timer);
        let thread = std::thread::Builder::new().name(name.to_owned());
        let spawned = thread.spawn(move || running.run(&*clock));
        spawned.expect("the machine has a thread left");
        timer
    }

    fn run(&self, clock: &dyn Clock) {
        let mut due = self.due.lock();
        while !due.ended {
            let now = clock.monotonic();
            match due.steps.first_key_value() {
                None => self.changed.wait(&mut due),
                Some((&(at, _), _)) if at > now => {
                    self.changed.wait_for(&mut due, (at - now).max(TICK));
                }
                Some(_) => {
                    let later = due.steps.split_off(&(now, u64::MAX));
                    let arrived = std::mem::replace(&mut due.steps, later);
                    MutexGuard::unlocked(&mut due, || self.run_steps(arrived));
                }
            }
        }
    }

    fn run_steps(&self, steps: BTreeMap<(Duration, u64), TimedStep>) {
        for step in steps.into_values() {
            // The lock is free most of the time: only `end` and `add` take it, for one step.
            if self.due.lock().ended {
                return;
            }
            step();
        }
    }

    pub(crate) fn add(&self, at: Duration, step: TimedStep) {
        let is_next = {
            let mut due = self.due.lock();
            if due.ended {
                return;
            }
            due.count += 1;
            let key = (at, due.count);
            due.steps.insert(key, step);
            due.steps.first_key_value().is_some_and(|(first, _)| *first == key)
        };
        if is_next {
            self.changed.notify_one();
        }
    }

    /// Steps to come.
    pub(crate) fn len(&self) -> usize {
        self.due.lock().steps.len()
    }

    /// The thread ends, and the steps to come are dropped.
    pub(crate) fn end(&self) {
        let dropped = {
            let mut due = self.due.lock();
            due.ended = true;
            std::mem::take(&mut due.steps)
        };
        self.changed.notify_all();
        // What the steps hold may end more than this, so no lock is held.
        drop(dropped);
    }
}

/// Where an answer is left for the one task that waits for it.
#[derive(Debug)]
pub(crate) struct Slot<T>(Mutex<Waiting<T>>);

#[derive(Debug)]
struct Waiting<T> {
    answer: Option<T>,
    task: Option<Waker>,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Arc<Slot<T>> {
        Arc::new(Slot(Mutex::new(Waiting { answer: None, task: None })))
    }

    pub(crate) fn fill(&self, answer: T) {
        let task = {
            let mut waiting = self.0.lock();
            assert!(waiting.answer.is_none(), "a slot is filled once");
            waiting.answer = Some(answer);
            waiting.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }

    pub(crate) async fn wait(&self) -> T {
        poll_fn(|context| {
            let mut waiting = self.0.lock();
            if let Some(answer) = waiting.answer.take() {
                return Poll::Ready(answer);
            }
            if !waiting.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
                waiting.task = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
