//! An engine that is asked again: retries what is unavailable for a bounded time, and resolves unknown outcomes of commits.
//!
//! Why:        an engine behind a network fails over, and loses answers. An attempt that runs again after a lost answer may
//!             do twice what was done, or refuse what its own commit has made so; no caller can tell. Here is the one place
//!             that asks first, for S3, mounts and upkeep alike.
//! Invariants: Z1 a batch is sent again only when its last sending is known to be void.
//!             Z2 what stays `Unavailable` or `Unknown` does so after the bounds of `Patience`, not before.
//!             Z3 `told` is told what the future gives, once: the final outcome, unless nobody could tell it in time.
//! Locking:    none over a call; the timer's lock for a step.
//! Not here:   what an attempt does after a conflict, and what callers see (volume).

use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;

use crate::layer::{Call, Layer};
use crate::timer::{Slot, Timer};
use crate::{
    Answers, Ask, Batch, CommitError, CommitOutcome, CommitToken, CommitTold, Committed, Engine, EngineError,
    EngineFuture, ReadLimit,
};

/// How long a call is tried while the engine is unavailable, in milliseconds.
pub const UNAVAILABLE_WAIT_MS_MAX: u64 = 3_000;
/// How long the outcome of a commit is asked for, in milliseconds.
pub const OUTCOME_WAIT_MS_MAX: u64 = 10_000;
/// Waits between two tries double from the first to the longest, in milliseconds.
const PAUSE_MS_FIRST: u64 = 1;
const PAUSE_MS_MAX: u64 = 100;

/// For how long answers are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub unavailable: Duration,
    pub outcome: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            unavailable: Duration::from_millis(UNAVAILABLE_WAIT_MS_MAX),
            outcome: Duration::from_millis(OUTCOME_WAIT_MS_MAX),
        }
    }
}

#[derive(Debug)]
pub struct PatientEngine {
    below: Arc<Below>,
}

/// What steps on the timer's thread share with the engine.
#[derive(Debug)]
struct Below {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    timer: Arc<Timer>,
    patience: Patience,
}

/// The waits of one call.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    until: Duration,
    next: Duration,
}

impl Pauses {
    fn new(now: Duration, length: Duration) -> Pauses {
        Pauses { until: now + length, next: Duration::from_millis(PAUSE_MS_FIRST) }
    }

    /// How long to wait before the next try; `None` when there is no more time.
    fn next(&mut self, now: Duration) -> Option<Duration> {
        let pause = self.next;
        self.next = (pause * 2).min(Duration::from_millis(PAUSE_MS_MAX));
        (now + pause <= self.until).then_some(pause)
    }
}

/// A commit that was begun, until its outcome is known.
struct Pending {
    below: Arc<Below>,
    batch: Batch,
    pauses: Pauses,
    told: CommitTold,
    slot: Arc<Slot<Result<Committed, CommitError>>>,
}

impl Below {
    fn pauses(&self, length: Duration) -> Pauses {
        Pauses::new(self.clock.monotonic(), length)
    }

    /// Sleeps before the next try; false when there is no more time.
    fn pause(&self, pauses: &mut Pauses) -> bool {
        let pause = pauses.next(self.clock.monotonic());
        if let Some(pause) = pause {
            self.clock.sleep(pause);
        }
        pause.is_some()
    }

    fn try_again<T>(&self, mut call: impl FnMut() -> Result<T, EngineError>) -> Result<T, EngineError> {
        let mut pauses = self.pauses(self.patience.unavailable);
        loop {
            match call() {
                Err(EngineError::Unavailable(_)) if self.pause(&mut pauses) => {}
                other => return other,
            }
        }
    }

    fn find_out(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        let mut pauses = self.pauses(self.patience.outcome);
        loop {
            match self.engine.outcome(token) {
                Err(EngineError::Unavailable(_)) if self.pause(&mut pauses) => {}
                other => return other,
            }
        }
    }

    fn later(self: &Arc<Self>, pause: Duration, step: impl FnOnce() + Send + 'static) {
        self.timer.add(self.clock.monotonic() + pause, Box::new(step));
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let mut pauses = self.pauses(self.patience.unavailable);
        loop {
            match self.engine.commit(batch.clone()) {
                Err(CommitError::Failed(EngineError::Unavailable(_))) if self.pause(&mut pauses) => {}
                Err(CommitError::Unknown(token)) => match self.find_out(token) {
                    Ok(CommitOutcome::Committed(done)) => return Ok(done),
                    Ok(CommitOutcome::Void) if self.pause(&mut pauses) => {}
                    Ok(CommitOutcome::Void) => return Err(is_void()),
                    Err(_) => return Err(CommitError::Unknown(token)),
                },
                other => return other,
            }
        }
    }
}

fn is_void() -> CommitError {
    EngineError::Unavailable("the commit was lost on its way".to_owned()).into()
}

impl Pending {
    fn send(self) {
        let (below, batch) = (Arc::clone(&self.below), self.batch.clone());
        // The commit goes on without its future (M6), and the answer comes here.
        drop(below.engine.begin_commit(batch, Box::new(move |done| self.answered(done))));
    }

    fn answered(mut self, done: &Result<Committed, CommitError>) {
        let below = Arc::clone(&self.below);
        match done {
            Err(CommitError::Failed(EngineError::Unavailable(_))) => match self.pauses.next(below.clock.monotonic()) {
                Some(pause) => below.later(pause, move || self.send()),
                None => self.finish(copy_of(done)),
            },
            Err(CommitError::Unknown(token)) => {
                let (token, pauses) = (*token, below.pauses(below.patience.outcome));
                below.later(Duration::ZERO, move || self.ask(token, pauses));
            }
            _ => self.finish(copy_of(done)),
        }
    }

    fn ask(mut self, token: CommitToken, mut pauses: Pauses) {
        let below = Arc::clone(&self.below);
        let now = || below.clock.monotonic();
        match below.engine.outcome(token) {
            Ok(CommitOutcome::Committed(done)) => self.finish(Ok(done)),
            Ok(CommitOutcome::Void) => match self.pauses.next(now()) {
                Some(pause) => below.later(pause, move || self.send()),
                None => self.finish(Err(is_void())),
            },
            Err(EngineError::Unavailable(_)) => match pauses.next(now()) {
                Some(pause) => below.later(pause, move || self.ask(token, pauses)),
                None => self.finish(Err(CommitError::Unknown(token))),
            },
            Err(_) => self.finish(Err(CommitError::Unknown(token))),
        }
    }

    fn finish(self, done: Result<Committed, CommitError>) {
        (self.told)(&done);
        self.slot.fill(done);
    }
}

/// The same answer for another caller.
fn copy_of(done: &Result<Committed, CommitError>) -> Result<Committed, CommitError> {
    Err(match done {
        Ok(done) => return Ok(*done),
        Err(CommitError::Conflict { precondition }) => CommitError::Conflict { precondition: *precondition },
        Err(CommitError::Full) => CommitError::Full,
        Err(CommitError::Invalid(what)) => CommitError::Invalid(what),
        Err(CommitError::Unknown(token)) => CommitError::Unknown(*token),
        Err(CommitError::Failed(error)) => CommitError::Failed(match error {
            EngineError::Poisoned(why) => EngineError::Poisoned(why.clone()),
            EngineError::Unavailable(why) => EngineError::Unavailable(why.clone()),
            EngineError::Corrupt(what) => EngineError::Corrupt(what.clone()),
            EngineError::Io(error) => EngineError::Io(std::io::Error::new(error.kind(), error.to_string())),
        }),
    })
}

impl PatientEngine {
    pub fn new(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, patience: Patience) -> PatientEngine {
        let timer = Timer::start("patient-engine", Arc::clone(&clock));
        PatientEngine { below: Arc::new(Below { engine, clock, timer, patience }) }
    }
}

impl Drop for PatientEngine {
    fn drop(&mut self) {
        self.below.timer.end();
    }
}

impl Layer for PatientEngine {
    fn below(&self) -> &dyn Engine {
        &*self.below.engine
    }

    fn waits(&self) -> bool {
        true
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        let below = &self.below;
        Box::pin(async move {
            let mut pauses = below.pauses(below.patience.unavailable);
            loop {
                let why = match below.engine.begin_read(asks.clone(), limit).await {
                    Err(EngineError::Unavailable(why)) => why,
                    other => return other,
                };
                let Some(pause) = pauses.next(below.clock.monotonic()) else {
                    return Err(EngineError::Unavailable(why));
                };
                let slot = Slot::new();
                below.timer.add_wake(below.clock.monotonic() + pause, Arc::clone(&slot));
                slot.wait().await;
            }
        })
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        let (below, slot) = (Arc::clone(&self.below), Slot::new());
        let pauses = below.pauses(below.patience.unavailable);
        Pending { below, batch, pauses, told, slot: Arc::clone(&slot) }.send();
        Box::pin(async move { slot.wait().await })
    }

    fn call<T>(
        &self,
        kind: Call,
        call: &mut dyn FnMut(&dyn Engine) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let engine = &*self.below.engine;
        match kind {
            Call::Read | Call::Snapshot | Call::Checkpoint => self.below.try_again(|| call(engine)),
            Call::Outcome => call(engine),
        }
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.below.commit(batch)
    }

    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        self.below.find_out(token)
    }
}
