//! Steps that run later, on a thread of their own: what waits for an answer holds no thread.
//!
//! Why:        a wake costs more than the step: a thread that waits for work is woken with a system call, and the timer's
//!             thread has to be woken itself. So what only wakes a task is left to threads that come by for a while (`pass`): they
//!             wake it on their own runtime. All steps that are due run in one go.
//! Invariants: T1 a step runs once, at its time or later.  T2 after `end` returned each thread begins at most one more step, the
//!                one that had been let through.
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

/// The timer sleeps no shorter, so that it wakes several calls at once as a socket does; and leaves a wake so long to others.
const TICK: Duration = Duration::from_micros(100);

pub(crate) type TimedStep = Box<dyn FnOnce() + Send>;

enum Step {
    Wake(Arc<Slot<()>>),
    Run(TimedStep),
}

#[derive(Default)]
pub(crate) struct Timer {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Default)]
struct Due {
    /// By when, and the number of the step.
    steps: BTreeMap<(Duration, u64), Step>,
    count: u64,
    ended: bool,
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Timer").field("steps", &self.len()).finish_non_exhaustive()
    }
}

impl Step {
    fn run(self) {
        match self {
            Step::Wake(slot) => slot.fill(()),
            Step::Run(step) => step(),
        }
    }
}

impl Due {
    /// When the timer's thread runs the next step.
    fn next_at(&self) -> Option<Duration> {
        let (&(at, _), step) = self.steps.first_key_value()?;
        Some(if matches!(step, Step::Wake(_)) { at + TICK } else { at })
    }

    fn take_wake(&mut self, now: Duration) -> Option<Arc<Slot<()>>> {
        let first =
            self.steps.first_entry().filter(|first| first.key().0 <= now && matches!(first.get(), Step::Wake(_)))?;
        match first.remove() {
            Step::Wake(slot) => Some(slot),
            Step::Run(_) => None,
        }
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
        clock.sleep_exactly();
        let mut due = self.due.lock();
        while !due.ended {
            let now = clock.monotonic();
            match due.next_at() {
                None => self.changed.wait(&mut due),
                Some(at) if at > now => {
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

    fn run_steps(&self, steps: BTreeMap<(Duration, u64), Step>) {
        for step in steps.into_values() {
            // The lock is free most of the time: only `end` and `add` take it, for one step.
            if self.due.lock().ended {
                return;
            }
            step.run();
        }
    }

    /// Wakes whom it is time for, up to the first step that does more.
    pub(crate) fn pass(&self, now: Duration) {
        loop {
            let arrived = self.due.lock().take_wake(now);
            let Some(slot) = arrived else { return };
            slot.fill(());
        }
    }

    /// Fills the slot then.
    pub(crate) fn add_wake(&self, at: Duration, slot: Arc<Slot<()>>) {
        self.insert(at, Step::Wake(slot));
    }

    pub(crate) fn add(&self, at: Duration, step: TimedStep) {
        self.insert(at, Step::Run(step));
    }

    fn insert(&self, at: Duration, step: Step) {
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
