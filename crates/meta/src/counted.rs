//! A test engine that counts the calls it receives: the number of round trips of an operation on a distant engine.
//!
//! Not here:   the counters of the embedded engine in a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layer::{Call, Layer, rows_of};
use crate::{Answers, Ask, Batch, CommitError, CommitTold, Committed, Engine, EngineError, EngineFuture, ReadLimit};

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

    /// Runs `call` and returns its numbers of reads and commits.
    pub fn of<T>(&self, call: impl FnOnce() -> T) -> (u64, u64) {
        let before = self.calls();
        call();
        let after = self.calls();
        (after.0 - before.0, after.1 - before.1)
    }
}

impl Layer for CountedEngine {
    fn below(&self) -> &dyn Engine {
        &*self.engine
    }

    fn call<T>(
        &self,
        kind: Call,
        call: &mut dyn FnMut(&dyn Engine) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        self.reads.fetch_add(u64::from(kind == Call::Read), Ordering::SeqCst);
        call(&*self.engine)
    }

    fn answered(&self, found: usize, _absent: usize) {
        self.rows.fetch_add(found as u64, Ordering::SeqCst);
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let read = self.engine.begin_read(asks, limit);
        Box::pin(async move {
            let answers = read.await?;
            let (found, absent) = rows_of(&answers);
            self.answered(found, absent);
            Ok(answers)
        })
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.engine.commit(batch)
    }

    fn begin_commit(&self, batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.engine.begin_commit(batch, told)
    }
}
