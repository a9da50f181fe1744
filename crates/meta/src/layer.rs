//! A layer: an engine that passes its calls on to another one, and says only what it changes.
//!
//! Why:        wrappers differ in one or two calls; a call that one of them forgets to pass on is a wrong answer.
//! Invariants: Y1 each layer is an engine by the one implementation below, which names every method of the contract: a
//!                new one with a default there must be added here.
//!             Y2 reads, questions for outcomes, snapshots and checkpoints go through [`Layer::call`].
//! Not here:   engines that store rows.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::unready;
use crate::{
    Answers, Ask, Batch, Checked, CommitError, CommitOutcome, CommitToken, CommitTold, Committed, Cursor,
    DurableFuture, Engine, EngineError, EngineFuture, FeedError, FeedPage, Observed, ReadAnswer, ReadLimit, Row,
    RowRef,
};

/// A kind of blocking call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Also `get` and `scan`.
    Read,
    Outcome,
    Snapshot,
    Checkpoint,
}

/// Rows that a call reads.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    Row(&'a [u8]),
    /// Those of `start..end`.
    Range(&'a [u8], &'a [u8]),
}

/// See the module's header.
pub trait Layer: Send + Sync + Debug {
    /// The engine that calls are passed on to.
    fn below(&self) -> &dyn Engine;

    fn waits(&self) -> bool {
        self.below().waits()
    }

    /// Makes a call of the engine below. `call` may run more than once while it fails with `Unavailable`.
    fn call<T>(
        &self,
        _kind: Call,
        call: &mut dyn FnMut(&dyn Engine) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        call(self.below())
    }

    /// Rows are about to be read, by a call that may block; an error is the answer of the read.
    fn will_read(&self, _asked: Asked<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// A blocking read was answered, with rows that exist and the number of rows that do not.
    fn answered(&self, _found: usize, _absent: usize) {}

    /// If the layer waits; otherwise its `read` is called.
    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        self.below().begin_read(asks, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.below().commit(batch)
    }

    /// If the layer waits; otherwise its `commit` is called.
    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        self.below().begin_commit(batch, told)
    }

    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        self.call(Call::Outcome, &mut |engine| engine.outcome(token))
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        self.below().unchanged_since(cursor)
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        self.below().changes(after, limit)
    }
}

/// Rows that exist among the answers, and the number of rows that do not.
pub(crate) fn rows_of(answers: &Answers) -> (usize, usize) {
    let mut counts = (0, 0);
    for answer in &answers.answers {
        match answer {
            ReadAnswer::Row(Some(_)) => counts.0 += 1,
            ReadAnswer::Row(None) => counts.1 += 1,
            ReadAnswer::Rows(rows) => counts.0 += rows.len(),
        }
    }
    counts
}

impl<L: Layer> Engine for L {
    fn waits(&self) -> bool {
        Layer::waits(self)
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        match Layer::waits(self) {
            true => Layer::begin_read(self, asks, limit),
            false => Box::pin(std::future::ready(self.read(&asks, limit))),
        }
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        if Layer::waits(self) {
            return Layer::begin_commit(self, batch, told);
        }
        let done = Layer::commit(self, batch);
        told(&done);
        Box::pin(std::future::ready(done))
    }

    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        self.will_read(Asked::Row(key))?;
        let read = self.call(Call::Read, &mut |engine| engine.get(key))?;
        let found = usize::from(read.value.is_some());
        self.answered(found, 1 - found);
        Ok(read)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.will_read(Asked::Range(start, end))?;
        let mut shown = 0;
        // Rows that were shown cannot be taken back: a later failure is no reason to scan again.
        let scanned = self.call(Call::Read, &mut |engine| {
            let scanned = engine.scan(start, end, &mut |row| {
                shown += 1;
                visit(row)
            });
            match scanned {
                Err(error) if shown > 0 => Ok(Err(error)),
                scanned => scanned.map(Ok),
            }
        });
        self.answered(shown, 0);
        scanned.and_then(|scanned: Result<_, EngineError>| scanned)
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let mut refused = None;
        for ask in asks {
            let asked = match ask {
                Ask::Get { key } => Asked::Row(key),
                Ask::Scan { start, end, .. } => Asked::Range(start, end),
            };
            match self.will_read(asked) {
                // What else must be waited for begins now.
                Err(error) if unready::is_left() => refused = Some(error),
                other => other?,
            }
        }
        refused.map_or(Ok(()), Err)?;
        let answers = self.call(Call::Read, &mut |engine| engine.read(asks, limit))?;
        let (found, absent) = rows_of(&answers);
        self.answered(found, absent);
        Ok(answers)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        Layer::commit(self, batch)
    }

    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        Layer::outcome(self, token)
    }

    fn durable(&self, cursor: Cursor) -> DurableFuture<'_> {
        self.below().durable(cursor)
    }

    fn wait_durable(&self, cursor: Cursor) -> Result<(), EngineError> {
        self.below().wait_durable(cursor)
    }

    fn last_cursor(&self) -> Cursor {
        self.below().last_cursor()
    }

    fn durable_cursor(&self) -> Cursor {
        self.below().durable_cursor()
    }

    fn seen_cursor(&self) -> Cursor {
        self.below().seen_cursor()
    }

    fn feed_start(&self) -> Result<Cursor, EngineError> {
        self.below().feed_start()
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        Layer::unchanged_since(self, cursor)
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        Layer::changes(self, after, limit)
    }

    fn wait_feed(&self) -> Result<(), EngineError> {
        self.below().wait_feed()
    }

    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        self.below().wait_changes(after)
    }

    fn is_shared(&self) -> bool {
        self.below().is_shared()
    }

    fn key_bytes_max(&self) -> usize {
        self.below().key_bytes_max()
    }

    fn payload_bytes_max(&self) -> usize {
        self.below().payload_bytes_max()
    }

    fn has_room(&self) -> bool {
        self.below().has_room()
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        self.call(Call::Snapshot, &mut |engine| engine.snapshot())
    }

    fn check_storage(
        &self,
        shown_max: usize,
        pace: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<Checked, EngineError> {
        self.below().check_storage(shown_max, pace)
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.call(Call::Checkpoint, &mut |engine| engine.checkpoint())
    }
}
