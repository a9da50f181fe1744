//! An engine behind a round trip, for tests and for trying out what a distant one costs: any engine, whose answers come
//! after a set time.
//!
//! Why:        what holds its threads while it waits shows only when answers take long.
//! Invariants: I1 a call reaches the engine below after the round trip, so nothing of it is seen before.
//!             I2 a commit is durable when that of the engine below is.  I3 the timer's thread commits, so a commit goes on
//!                when nobody waits for it any more (M6).
//! Locking:    one lock for the calls under way, for one step; the timer's thread holds nothing while it sleeps or commits.
//! Not here:   lost answers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use event_listener::Event;
use margay_env::Clock;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    Answers, Ask, Batch, Checked, CommitError, CommitTold, Committed, Cursor, DurableFuture, Engine, EngineError,
    EngineFuture, FeedError, FeedPage, Observed, ReadLimit, Row, RowRef,
};

/// The timer sleeps no shorter, so that it wakes several calls at once as a socket does.
const TICK: Duration = Duration::from_micros(100);

#[derive(Debug)]
pub struct DistantEngine {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    round_trip_nanos: AtomicU64,
    timer: Arc<Timer>,
    blocked: AtomicU64,
}

/// Wakes what has waited long enough.
#[derive(Debug, Default)]
struct Timer {
    due: Mutex<Due>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Due {
    /// By when, and the number of the call.
    calls: BTreeMap<(Duration, u64), Call>,
    count: u64,
    ended: bool,
}

/// One call under way.
enum Call {
    Wake(Arc<Slot<()>>),
    Commit { batch: Batch, told: CommitTold, slot: Arc<Slot<Result<Committed, CommitError>>> },
}

impl std::fmt::Debug for Call {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Call::Wake(_) => "Wake",
            Call::Commit { .. } => "Commit",
        })
    }
}

impl Call {
    fn arrive(self, engine: &dyn Engine) {
        match self {
            Call::Wake(slot) => slot.fill(()),
            Call::Commit { batch, told, slot } => {
                let done = engine.commit(batch);
                told(&done);
                slot.fill(done);
            }
        }
    }
}

/// Where an answer is left for whom it is.
#[derive(Debug)]
struct Slot<T> {
    answer: Mutex<Option<T>>,
    filled: Event,
}

impl<T> Slot<T> {
    fn new() -> Arc<Slot<T>> {
        Arc::new(Slot { answer: Mutex::new(None), filled: Event::new() })
    }

    fn fill(&self, answer: T) {
        *self.answer.lock() = Some(answer);
        self.filled.notify(usize::MAX);
    }

    async fn wait(&self) -> T {
        loop {
            let listener = self.filled.listen();
            if let Some(answer) = self.answer.lock().take() {
                return answer;
            }
            listener.await;
        }
    }
}

impl Timer {
    fn run(&self, clock: &dyn Clock, engine: &dyn Engine) {
        let mut due = self.due.lock();
        while !due.ended {
            let now = clock.monotonic();
            match due.calls.first_key_value() {
                None => self.changed.wait(&mut due),
                Some((&(at, _), _)) if at > now => {
                    self.changed.wait_for(&mut due, (at - now).max(TICK));
                }
                Some(_) => {
                    let call = due.calls.pop_first();
                    if let Some((_, call)) = call {
                        MutexGuard::unlocked(&mut due, || call.arrive(engine));
                    }
                }
            }
        }
    }

    fn add(&self, at: Duration, call: Call) {
        let is_next = {
            let mut due = self.due.lock();
            due.count += 1;
            let key = (at, due.count);
            due.calls.insert(key, call);
            due.calls.first_key_value().is_some_and(|(first, _)| *first == key)
        };
        if is_next {
            self.changed.notify_one();
        }
    }
}

impl DistantEngine {
    pub fn new(engine: Arc<dyn Engine>, clock: Arc<dyn Clock>, round_trip: Duration) -> DistantEngine {
        let timer = Arc::new(Timer::default());
        let (running, by, below) = (Arc::clone(&timer), Arc::clone(&clock), Arc::clone(&engine));
        let thread = std::thread::Builder::new().name("distant-engine".to_owned());
        let spawned = thread.spawn(move || running.run(&*by, &*below));
        spawned.expect("the machine has a thread left");
        let round_trip_nanos = AtomicU64::new(round_trip.as_nanos() as u64);
        DistantEngine { engine, clock, round_trip_nanos, timer, blocked: AtomicU64::default() }
    }

    /// Of calls that begin from now on.
    pub fn set_round_trip(&self, length: Duration) {
        self.round_trip_nanos.store(length.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Calls so far that held their thread until the answer came.
    pub fn blocked(&self) -> u64 {
        self.blocked.load(Ordering::Relaxed)
    }

    /// Calls under way that hold no thread.
    pub fn waiting(&self) -> usize {
        self.timer.due.lock().calls.len()
    }

    fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip_nanos.load(Ordering::Relaxed))
    }

    fn arrives_at(&self) -> Duration {
        self.clock.monotonic() + self.round_trip()
    }

    fn block(&self) -> &dyn Engine {
        self.blocked.fetch_add(1, Ordering::Relaxed);
        self.clock.sleep(self.round_trip());
        &*self.engine
    }
}

impl Drop for DistantEngine {
    fn drop(&mut self) {
        self.timer.due.lock().ended = true;
        self.timer.changed.notify_all();
    }
}

impl Engine for DistantEngine {
    fn waits(&self) -> bool {
        true
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        Box::pin(async move {
            let slot = Slot::new();
            self.timer.add(self.arrives_at(), Call::Wake(Arc::clone(&slot)));
            slot.wait().await;
            self.engine.begin_read(asks, limit).await
        })
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        let slot = Slot::new();
        self.timer.add(self.arrives_at(), Call::Commit { batch, told, slot: Arc::clone(&slot) });
        Box::pin(async move { slot.wait().await })
    }

    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        self.block().get(key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.block().scan(start, end, visit)
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        self.block().read(asks, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.block().commit(batch)
    }

    fn durable(&self, seq: Cursor) -> DurableFuture<'_> {
        self.engine.durable(seq)
    }

    fn wait_durable(&self, seq: Cursor) -> Result<(), EngineError> {
        self.engine.wait_durable(seq)
    }

    fn last_cursor(&self) -> Cursor {
        self.engine.last_cursor()
    }

    fn durable_cursor(&self) -> Cursor {
        self.engine.durable_cursor()
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        self.engine.unchanged_since(cursor)
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        self.block().changes(after, limit)
    }

    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        self.engine.wait_changes(after)
    }

    fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    fn payload_bytes_max(&self) -> usize {
        self.engine.payload_bytes_max()
    }

    fn has_room(&self) -> bool {
        self.engine.has_room()
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        self.engine.snapshot()
    }

    fn check_storage(
        &self,
        shown_max: usize,
        pace: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<Checked, EngineError> {
        self.engine.check_storage(shown_max, pace)
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.engine.checkpoint()
    }
}
