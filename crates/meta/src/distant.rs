//! An engine behind a round trip, for tests and for trying out what a distant one costs: any engine, whose answers come
//! after a set time.
//!
//! Why:        what holds its threads while it waits shows only when answers take long.
//! Invariants: I1 a call reaches the engine below after the round trip, so nothing of it is seen before.
//!             I2 a commit is durable when that of the engine below is.  I3 the timer's thread commits, so a commit goes on
//!                when nobody waits for it any more (M6).
//! Locking:    the timer's.
//! Not here:   lost answers (unreliable).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::Clock;

use crate::layer::{Call, Layer};
use crate::timer::{Slot, Timer};
use crate::{
    Answers, Ask, Batch, CommitError, CommitTold, Committed, Cursor, Engine, EngineError, EngineFuture, FeedError,
    FeedPage, ReadLimit,
};

#[derive(Debug)]
pub struct DistantEngine {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    round_trip_nanos: AtomicU64,
    timer: Arc<Timer>,
    blocked: AtomicU64,
}

impl DistantEngine {
    pub fn new(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, round_trip: Duration) -> DistantEngine {
        let timer = Timer::start("distant-engine", Arc::clone(&clock));
        let round_trip_nanos = AtomicU64::new(round_trip.as_nanos() as u64);
        DistantEngine { engine, clock, round_trip_nanos, timer, blocked: AtomicU64::default() }
    }

    /// Sets the delay of calls that begin later.
    pub fn set_round_trip(&self, length: Duration) {
        self.round_trip_nanos.store(length.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Number of calls so far that blocked their thread until the result arrived.
    pub fn blocked(&self) -> u64 {
        self.blocked.load(Ordering::Acquire)
    }

    /// Number of pending calls that block no thread.
    pub fn waiting(&self) -> usize {
        self.timer.len()
    }

    fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip_nanos.load(Ordering::Relaxed))
    }

    fn arrives_at(&self) -> Duration {
        self.clock.monotonic() + self.round_trip()
    }

    fn block(&self) -> &dyn Engine {
        // Read first: who sees the count may change it.
        let length = self.round_trip();
        self.blocked.fetch_add(1, Ordering::Release);
        self.clock.sleep_exactly();
        self.clock.sleep(length);
        &*self.engine
    }
}

impl Drop for DistantEngine {
    fn drop(&mut self) {
        self.timer.end();
    }
}

impl Layer for DistantEngine {
    fn below(&self) -> &dyn Engine {
        &*self.engine
    }

    fn waits(&self) -> bool {
        true
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        Box::pin(async move {
            let (slot, now) = (Slot::new(), self.clock.monotonic());
            self.timer.add_wake(now + self.round_trip(), Arc::clone(&slot));
            self.timer.pass(now);
            slot.wait().await;
            self.engine.begin_read(asks, limit).await
        })
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        let slot = Slot::new();
        let (filled, engine) = (Arc::clone(&slot), Arc::clone(&self.engine));
        let arrive = move || {
            let done = engine.commit(batch);
            told(&done);
            filled.fill(done);
        };
        self.timer.add(self.arrives_at(), Box::new(arrive));
        Box::pin(async move { slot.wait().await })
    }

    fn call<T>(
        &self,
        kind: Call,
        call: &mut dyn FnMut(&dyn Engine) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        match kind {
            Call::Read | Call::Outcome => call(self.block()),
            Call::Snapshot | Call::Checkpoint => call(&*self.engine),
        }
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.block().commit(batch)
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        self.block().changes(after, limit)
    }
}
