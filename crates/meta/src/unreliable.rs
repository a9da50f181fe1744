//! An engine that fails as one behind a network does, for tests: any engine, of whose answers a seeded part does not come.
//!
//! Why:        lost answers, commits that arrive late or never, and fail-overs must not lose a change nor make it twice.
//! Invariants: J1 a commit whose answer is unknown was applied, or never is once `outcome` has said that it is void.
//!             J2 `outcome` says the same whenever it is asked.
//!             J3 as many faults come in a row as `Faults` says at most, so that a patient caller gets on.
//! Locking:    one lock for the faults, not held over a call of the engine below but for a commit that arrives late.
//! Not here:   delays (distant).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::layer::{Call, Layer};
use crate::{
    Answers, Ask, Batch, CommitError, CommitOutcome, CommitToken, CommitTold, Committed, Cursor, Engine, EngineError,
    EngineFuture, ReadLimit,
};

/// How often what goes wrong, in percent of the calls.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Nothing is done, and that is said.
    pub unavailable: u64,
    /// A commit is applied, and its answer is lost.
    pub lost_answers: u64,
    /// A commit is under way when its connection is lost: it arrives later, or never.
    pub late: u64,
    /// A fail-over begins: so many calls are unavailable.
    pub failovers: u64,
    pub failover_calls: u64,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { unavailable: 4, lost_answers: 15, late: 15, failovers: 1, failover_calls: 4 }
    }
}

/// How often each happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub unavailable: u64,
    pub lost_answers: u64,
    /// Commits that arrived after their caller was told that their outcome is unknown.
    pub arrived_late: u64,
    pub void: u64,
}

#[derive(Debug)]
pub struct UnreliableEngine {
    engine: Arc<dyn Engine>,
    faults: Faults,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: u64,
    calls: u64,
    down: u64,
    under_way: HashMap<u64, Batch>,
    outcomes: HashMap<u64, CommitOutcome>,
    counts: FaultCounts,
}

impl State {
    /// A number below `most` (xorshift64*).
    fn below(&mut self, most: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % most
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn token(&mut self) -> CommitToken {
        self.calls += 1;
        CommitToken { lane: 1, call: self.calls }
    }
}

impl UnreliableEngine {
    pub fn new(engine: Arc<dyn Engine>, faults: Faults, seed: u64) -> UnreliableEngine {
        let state = State {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            calls: 0,
            down: 0,
            under_way: HashMap::new(),
            outcomes: HashMap::new(),
            counts: FaultCounts::default(),
        };
        UnreliableEngine { engine, faults, state: Mutex::new(state) }
    }

    pub fn counts(&self) -> FaultCounts {
        self.state.lock().counts
    }

    /// What was under way arrives with some chance, and the call fails with some.
    fn begin_call(&self) -> Result<&dyn Engine, EngineError> {
        let mut state = self.state.lock();
        let calls: Vec<u64> = state.under_way.keys().copied().collect();
        for call in calls {
            if state.chance(20) {
                self.arrive(&mut state, call);
            }
        }
        if state.down == 0 && state.chance(self.faults.failovers) {
            state.down = self.faults.failover_calls;
        }
        let is_down = state.down > 0;
        state.down = state.down.saturating_sub(1);
        if is_down || state.chance(self.faults.unavailable) {
            state.counts.unavailable += 1;
            return Err(EngineError::Unavailable("a trial of failures".to_owned()));
        }
        Ok(&*self.engine)
    }

    /// A commit that was under way is applied, or finds that its preconditions do not hold any more.
    fn arrive(&self, state: &mut State, call: u64) -> CommitOutcome {
        let outcome = match state.under_way.remove(&call).map(|batch| self.engine.commit(batch)) {
            Some(Ok(done)) => CommitOutcome::Committed(done),
            Some(Err(_)) | None => CommitOutcome::Void,
        };
        match outcome {
            CommitOutcome::Committed(_) => state.counts.arrived_late += 1,
            CommitOutcome::Void => state.counts.void += 1,
        }
        assert!(state.outcomes.insert(call, outcome).is_none(), "a commit arrives once");
        outcome
    }

    fn try_commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let engine = self.begin_call()?;
        let (token, is_late, is_lost) = {
            let mut state = self.state.lock();
            let token = state.token();
            let is_late = state.chance(self.faults.late);
            (token, is_late, state.chance(self.faults.lost_answers))
        };
        if is_late {
            self.state.lock().under_way.insert(token.call, batch);
            return Err(CommitError::Unknown(token));
        }
        let done = engine.commit(batch);
        if !is_lost {
            return done;
        }
        let outcome = match done {
            Ok(done) => CommitOutcome::Committed(done),
            Err(CommitError::Conflict { .. }) => CommitOutcome::Void,
            other => return other,
        };
        let mut state = self.state.lock();
        state.counts.lost_answers += 1;
        state.outcomes.insert(token.call, outcome);
        Err(CommitError::Unknown(token))
    }
}

impl Layer for UnreliableEngine {
    fn below(&self) -> &dyn Engine {
        &*self.engine
    }

    fn waits(&self) -> bool {
        true
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        Box::pin(std::future::ready(Engine::read(self, &asks, limit)))
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        let done = self.try_commit(batch);
        told(&done);
        Box::pin(std::future::ready(done))
    }

    fn call<T>(
        &self,
        _kind: Call,
        call: &mut dyn FnMut(&dyn Engine) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        call(self.begin_call()?)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.try_commit(batch)
    }

    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        self.begin_call()?;
        let mut state = self.state.lock();
        if let Some(outcome) = state.outcomes.get(&token.call) {
            return Ok(*outcome);
        }
        assert!(state.under_way.contains_key(&token.call), "a token is of a commit that was begun");
        if state.chance(50) {
            return Ok(self.arrive(&mut state, token.call));
        }
        // From now on it cannot arrive.
        state.under_way.remove(&token.call);
        state.counts.void += 1;
        state.outcomes.insert(token.call, CommitOutcome::Void);
        Ok(CommitOutcome::Void)
    }

    /// As of an engine that cannot know.
    fn unchanged_since(&self, _cursor: Cursor) -> bool {
        false
    }
}
