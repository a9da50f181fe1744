//! Waits of an engine in this process that may take long, handed to callers whose thread must not be held up.
//!
//! Why:        an engine whose calls return at once may still need another machine now and then (a directory of a far bucket
//!             that was not listed). A thread of a runtime that waited for it would hold up every other request, and with all of
//!             them waiting nobody would be answered.
//! Examples:   `or_wait(0, || attempt())` gives what the attempt gives, or what to wait for before it is made again. Elsewhere the
//!             engine blocks, as its contract says.
//! Invariants: U1 a call that left a wait fails with `Unavailable` and has done nothing; from then on nothing is committed until
//!                the scope ends. So the attempt as a whole may be made again, whatever it made of the error.
//!             U2 a scope is of one thread, and never spans an `await`. One within another (a call of an engine that runs a whole
//!                operation, as tests do) is its own: the outer one goes on behind it.
//!             U3 an attempt that was made often is hurried: it waits for what it cannot do without, and not for news. Else each
//!                run could find something that has become old during the one before.
//! Not here:   engines whose answers always come from another machine (`Engine::waits`).

use std::cell::{Cell, RefCell};

use crate::contract::{EngineError, EngineFuture};

/// Something to wait for. It goes on when it is dropped.
pub type Wait = EngineFuture<'static, Result<(), EngineError>>;

/// Runs of an attempt after which it is hurried.
const CALM_ROUNDS: usize = 8;

thread_local! {
    /// The scope's attempt is hurried (U3).
    static HURRIED: Cell<bool> = const { Cell::new(false) };
    /// What was left in the scope of this thread; `None` outside one.
    static LEFT: RefCell<Option<Vec<Wait>>> = const { RefCell::new(None) };
}

/// Ends a scope, also on a panic: what was before it goes on.
struct Scope {
    left: Option<Vec<Wait>>,
    hurried: bool,
}

impl Drop for Scope {
    fn drop(&mut self) {
        let outer = self.left.take();
        LEFT.with_borrow_mut(|left| *left = outer);
        HURRIED.set(self.hurried);
    }
}

/// Runs `call`; if the engine would have had to wait in it, gives what must be waited for. `round`: how often that was done for
/// the same call.
pub fn or_wait<T>(round: usize, call: impl FnOnce() -> T) -> Result<T, Vec<Wait>> {
    let hurried = HURRIED.replace(round >= CALM_ROUNDS);
    let scope = Scope { left: LEFT.with_borrow_mut(|left| left.replace(Vec::new())), hurried };
    let outcome = call();
    let left = LEFT.with_borrow_mut(Option::take).unwrap_or_default();
    drop(scope);
    if left.is_empty() { Ok(outcome) } else { Err(left) }
}

/// Waits for all of them; the first failure is told.
pub async fn all(waits: Vec<Wait>) -> Result<(), EngineError> {
    // Each goes on by itself, so one after the other takes as long as the longest.
    for wait in waits {
        wait.await?;
    }
    Ok(())
}

/// Whether this thread must not wait.
pub fn is_wanted() -> bool {
    LEFT.with_borrow(Option::is_some)
}

/// Whether something was left in the scope of this thread: nothing may be committed (U1).
pub fn is_left() -> bool {
    LEFT.with_borrow(|left| left.as_ref().is_some_and(|left| !left.is_empty()))
}

/// Whether the scope's attempt waits for no news (U3).
pub fn is_hurried() -> bool {
    is_wanted() && HURRIED.get()
}

/// For an engine that is about to wait: the answer of the call, if its thread must not.
pub fn leave(wait: impl FnOnce() -> Wait) -> Result<(), EngineError> {
    if !is_wanted() {
        return Ok(());
    }
    // Made outside of the borrow: it may be an engine's call.
    let wait = wait();
    LEFT.with_borrow_mut(|left| left.get_or_insert_default().push(wait));
    Err(again())
}

/// The answer of a call that has left a wait.
pub fn again() -> EngineError {
    EngineError::Unavailable("it must be waited for".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready() -> Wait {
        Box::pin(std::future::ready(Ok(())))
    }

    #[test]
    fn a_wait_is_left_in_a_scope_only() {
        assert!(leave(ready).is_ok(), "who may wait waits");
        assert!(matches!(or_wait(0, || 5), Ok(5)));
        let left = or_wait(0, || {
            assert!(is_wanted() && !is_left());
            assert!(leave(ready).is_err() && is_left());
        });
        assert_eq!(left.err().map(|left| left.len()), Some(1));
        assert!(!is_wanted() && !is_hurried(), "the scope has ended");
        assert!(matches!(or_wait(CALM_ROUNDS, is_hurried), Ok(true)) && matches!(or_wait(0, is_hurried), Ok(false)));
        let outer = or_wait(CALM_ROUNDS, || {
            assert!(leave(ready).is_err());
            assert!(matches!(or_wait(0, || is_left() || is_hurried()), Ok(false)), "the inner one is its own");
            assert!(is_left() && is_hurried());
        });
        assert_eq!(outer.err().map(|left| left.len()), Some(1));
        let broken = std::panic::catch_unwind(|| or_wait(0, || panic!("an attempt breaks off")));
        assert!(broken.is_err() && !is_wanted());
    }
}
