//! Where changes wait that were refused again and again because others were faster.
//!
//! Why:        an engine that waits is asked without locks, so many writers of one row conflict, and one of them may lose each time.
//!             Those that have lost some attempts take turns: then one of them has only newcomers against it.
//! Invariants: G1 whoever has the turn has lost, and gives it back when the change is done or refused; it is not taken twice.
//! Locking:    held over calls of the engine, by changes that hold no lock. Who waits is woken in the order of coming, mostly.
//! Not here:   engines that do not wait: their callers have latches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use event_listener::{Event, Listener};

/// A turn is taken after so many refused attempts.
pub(crate) const TRIES_WITHOUT_TURN: u32 = 6;

/// A thread waits so long for a turn.
const TURN_TIME_MAX: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Gate {
    is_taken: AtomicBool,
    given_back: Event,
}

#[derive(Debug)]
pub(crate) struct Turn<'g>(&'g Gate);

impl Gate {
    fn try_take(&self) -> Option<Turn<'_>> {
        (!self.is_taken.swap(true, Ordering::AcqRel)).then(|| Turn(self))
    }

    pub(crate) async fn take(&self) -> Turn<'_> {
        loop {
            let given_back = self.given_back.listen();
            if let Some(turn) = self.try_take() {
                return turn;
            }
            given_back.await;
        }
    }

    /// As `take`, blocking this thread; `None` after `TURN_TIME_MAX`: whoever has the turn may wait for this thread.
    pub(crate) fn take_blocking(&self) -> Option<Turn<'_>> {
        loop {
            let given_back = self.given_back.listen();
            if let Some(turn) = self.try_take() {
                return Some(turn);
            }
            given_back.wait_timeout(TURN_TIME_MAX)?;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let was_taken = self.0.is_taken.swap(false, Ordering::AcqRel);
        assert!(was_taken, "a turn is given back once (G1)");
        self.0.given_back.notify(1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn one_has_the_turn_and_everybody_gets_it() {
        let (gate, count) = (Gate::default(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = gate.take_blocking().unwrap();
                        let before = count.load(Ordering::Relaxed);
                        std::thread::yield_now();
                        count.store(before + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 1600);
        assert!(gate.try_take().is_some());
    }
}
