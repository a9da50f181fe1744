//! The port for running blocking work away from the caller's thread.
//!
//! Why:        the volume does not depend on a particular runtime.
//! Invariants: B1 the future resolves when the work ends, even if the work is dropped or panics.

use std::fmt::Debug;
use std::sync::Arc;

use event_listener::Event;
use parking_lot::Mutex;

/// An executor of blocking work, such as a thread pool.
pub trait Blocking: Send + Sync + Debug {
    fn run(&self, work: Box<dyn FnOnce() + Send>);
}

/// Runs the work immediately on the caller's thread.
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

/// Owned by the work: dropping it ends the wait.
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

/// `None` when the work was dropped or panicked.
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
