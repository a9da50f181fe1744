//! The port through which work that waits for a device leaves the caller's thread.
//!
//! Why:        the volume does not know which runtime drives it.
//! Invariants: the future resolves when the work ends, also when the work is thrown away or panics.

use std::fmt::Debug;
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

/// Somewhere to run work that may block, such as a thread pool.
pub trait Blocking: Send + Sync + Debug {
    fn run(&self, work: Box<dyn FnOnce() + Send>);
}

/// Runs the work at once, on the caller's thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct OnThisThread;

impl Blocking for OnThisThread {
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        work();
    }
}

#[derive(Debug)]
enum State<T> {
    Waiting,
    Done(T),
    Lost,
}

#[derive(Debug)]
struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Event,
}

/// Held by the work: its end is the end of the wait.
struct Filler<T>(Arc<Slot<T>>);

impl<T> Drop for Filler<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::Lost;
        }
        drop(state);
        self.0.changed.notify(usize::MAX);
    }
}

/// `None` when the work was thrown away or panicked.
pub(crate) async fn run<T: Send + 'static>(
    port: &dyn Blocking,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Event::new() });
    let filler = Filler(Arc::clone(&slot));
    port.run(Box::new(move || {
        let value = work();
        *filler.0.state.lock() = State::Done(value);
        drop(filler);
    }));
    loop {
        let listener = slot.changed.listen();
        match std::mem::replace(&mut *slot.state.lock(), State::Waiting) {
            State::Done(value) => return Some(value),
            State::Lost => return None,
            State::Waiting => {}
        }
        listener.await;
    }
}
