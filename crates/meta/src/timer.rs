//! Steps that run later, on a thread of their own: what waits for an answer holds no thread.
//!
//! Invariants: a step runs once, at its time or later; after `end` none runs any more.
//! Locking:    one lock for the steps to come; nothing is held while the thread sleeps or a step runs.
//! Not here:   what the steps do (distant, patient).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use event_listener::Event;
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
                    if let Some((_, step)) = due.steps.pop_first() {
                        MutexGuard::unlocked(&mut due, step);
                    }
                }
            }
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

/// Where an answer is left for the caller.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    answer: Mutex<Option<T>>,
    filled: Event,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { answer: Mutex::new(None), filled: Event::new() })
    }

    pub(crate) fn fill(&self, answer: T) {
        *self.answer.lock() = Some(answer);
        self.filled.notify(usize::MAX);
    }

    pub(crate) async fn wait(&self) -> T {
        loop {
            let listener = self.filled.listen();
            if let Some(answer) = self.answer.lock().take() {
                return answer;
            }
            listener.await;
        }
    }
}
