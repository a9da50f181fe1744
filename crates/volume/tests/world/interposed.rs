//! An engine that lets another operation run between two calls of the one that uses it.

use std::sync::Arc;

use margay_meta::layer::{Call, Layer};
use margay_meta::*;
use parking_lot::Mutex;

pub type Hook = Box<dyn FnOnce() + Send>;

/// Passes calls on; at moment number `at` it runs the hook once.
pub struct Interposed {
    engine: Arc<dyn Engine>,
    left: Mutex<Option<(usize, Hook)>>,
    /// Moments are counted behind each call, too: before what its answer leads to.
    both_sides: bool,
}

impl std::fmt::Debug for Interposed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Interposed")
    }
}

impl Interposed {
    /// Counts one moment for each call, the one before it.
    pub fn new(engine: Arc<dyn Engine>) -> Interposed {
        Interposed { engine, left: Mutex::new(None), both_sides: false }
    }

    /// Counts two moments for each call, before and behind it.
    pub fn on_both_sides(engine: Arc<dyn Engine>) -> Interposed {
        Interposed { both_sides: true, ..Interposed::new(engine) }
    }

    /// Runs the hook once, when so many moments have passed.
    pub fn arm(&self, at: usize, hook: Hook) {
        *self.left.lock() = Some((at, hook));
    }

    /// Whether a hook was left because there were fewer moments.
    pub fn disarm(&self) -> bool {
        // What the hook holds is dropped without the lock: that may call the engine.
        let left = self.left.lock().take();
        left.is_some()
    }

    fn around<T>(&self, call: impl FnOnce(&dyn Engine) -> T) -> T {
        self.step();
        let answer = call(&*self.engine);
        if self.both_sides {
            self.step();
        }
        answer
    }

    fn step(&self) {
        let mut left = self.left.lock();
        let due = match left.as_mut() {
            Some((0, _)) => left.take(),
            Some((count, _)) => {
                *count -= 1;
                None
            }
            None => None,
        };
        drop(left);
        if let Some((_, hook)) = due {
            hook();
        }
    }
}

impl Layer for Interposed {
    fn below(&self) -> &dyn Engine {
        &*self.engine
    }
    /// Each call is one moment, so it is made on the spot.
    fn waits(&self) -> bool {
        false
    }
    fn call<T>(
        &self,
        kind: Call,
        call: &mut dyn FnMut(&dyn Engine) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match kind {
            Call::Read | Call::Snapshot => self.around(call),
            Call::Outcome | Call::Checkpoint => call(&*self.engine),
        }
    }
    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.around(|engine| engine.commit(batch))
    }
}
