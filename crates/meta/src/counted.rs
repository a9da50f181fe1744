//! A test engine that counts the calls it receives: the number of round trips of an operation on a distant engine.
//!
//! Not here:   the counters of the embedded engine in a server.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    Answers, Ask, Batch, CommitError, CommitOutcome, CommitToken, CommitTold, Committed, Cursor, DurableFuture, Engine,
    EngineError, EngineFuture, FeedError, FeedPage, Observed, ReadAnswer, ReadLimit, Row, RowRef,
};

#[derive(Debug)]
pub struct CountedEngine {
    engine: Arc<dyn Engine>,
    reads: AtomicU64,
    commits: AtomicU64,
    rows: AtomicU64,
}

impl CountedEngine {
    pub fn new(engine: Arc<dyn Engine>) -> CountedEngine {
        CountedEngine { engine, reads: AtomicU64::new(0), commits: AtomicU64::new(0), rows: AtomicU64::new(0) }
    }

    /// Reads and commits so far.
    pub fn calls(&self) -> (u64, u64) {
        (self.reads.load(Ordering::SeqCst), self.commits.load(Ordering::SeqCst))
    }

    /// Rows that reads have given so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::SeqCst)
    }

    fn count(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::SeqCst);
    }

    fn counted(&self, answers: Answers) -> Answers {
        let rows_of = |answer: &ReadAnswer| match answer {
            ReadAnswer::Row(row) => usize::from(row.is_some()),
            ReadAnswer::Rows(rows) => rows.len(),
        };
        self.count(answers.answers.iter().map(rows_of).sum());
        answers
    }

    /// Runs `call` and returns its numbers of reads and commits.
    pub fn of<T>(&self, call: impl FnOnce() -> T) -> (u64, u64) {
        let before = self.calls();
        call();
        let after = self.calls();
        (after.0 - before.0, after.1 - before.1)
    }

    fn reading(&self) -> &dyn Engine {
        self.reads.fetch_add(1, Ordering::SeqCst);
        &*self.engine
    }
}

impl Engine for CountedEngine {
    fn waits(&self) -> bool {
        self.engine.waits()
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        let read = self.reading().begin_read(asks, limit);
        Box::pin(async move { Ok(self.counted(read.await?)) })
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.engine.begin_commit(batch, told)
    }

    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        let read = self.reading().get(key)?;
        self.count(usize::from(read.value.is_some()));
        Ok(read)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.reading().scan(start, end, &mut |row| {
            self.count(1);
            visit(row)
        })
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        Ok(self.counted(self.reading().read(asks, limit)?))
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.engine.commit(batch)
    }

    fn outcome(&self, token: CommitToken) -> Result<CommitOutcome, EngineError> {
        self.engine.outcome(token)
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
        self.engine.changes(after, limit)
    }

    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        self.engine.wait_changes(after)
    }

    fn is_shared(&self) -> bool {
        self.engine.is_shared()
    }

    fn key_bytes_max(&self) -> usize {
        self.engine.key_bytes_max()
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

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.engine.checkpoint()
    }
}
