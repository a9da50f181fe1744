//! All rows as of one moment, for long reads: a transaction that is held open.
//!
//! Invariants: S1 it has one connection, so its reads are one after the other.
//! Not here:   commits. A long one keeps the server from clearing dead rows.

use std::ops::ControlFlow;
use std::sync::Arc;

use margay_meta::{
    Answers, Ask, Batch, CommitError, CommitTold, Committed, Cursor, DurableFuture, Engine, EngineError, EngineFuture,
    FeedError, FeedPage, Observed, ReadLimit, Row, RowRef,
};

use crate::read::Reading;
use crate::scan::{get_row, scan_pages};
use crate::tasks::Tasks;

#[derive(Debug)]
pub(crate) struct Snapshot {
    tasks: Arc<Tasks>,
    reading: Arc<Reading>,
    at: Cursor,
}

impl Snapshot {
    pub(crate) fn begin(
        tasks: Arc<Tasks>,
        server: crate::connection::Server,
        at: Cursor,
    ) -> Result<Snapshot, EngineError> {
        let reading = tasks.block(async move {
            let reading = Reading::open(&server).await?;
            // Its moment is that of its first query.
            reading.run("begin isolation level repeatable read read only; select count(*) from feed").await?;
            Ok::<_, EngineError>(reading)
        })?;
        Ok(Snapshot { tasks, reading: Arc::new(reading), at })
    }
}

fn read_only() -> EngineError {
    EngineError::Io(std::io::Error::other("a snapshot takes no commits"))
}

impl Engine for Snapshot {
    fn waits(&self) -> bool {
        true
    }

    fn begin_read(&self, asks: Vec<Ask>, limit: ReadLimit) -> EngineFuture<'_, Result<Answers, EngineError>> {
        let (reading, at) = (Arc::clone(&self.reading), self.at);
        self.tasks.begin(async move { Ok(reading.read(&asks, limit, at).await?.0) })
    }

    fn begin_commit(&self, _batch: Batch, told: CommitTold) -> EngineFuture<'_, Result<Committed, CommitError>> {
        told(&Err(read_only().into()));
        Box::pin(std::future::ready(Err(read_only().into())))
    }

    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        get_row(self, key)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        scan_pages(self, start, end, visit)
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let (reading, asks, at) = (Arc::clone(&self.reading), asks.to_vec(), self.at);
        self.tasks.block(async move { Ok(reading.read(&asks, limit, at).await?.0) })
    }

    fn commit(&self, _batch: Batch) -> Result<Committed, CommitError> {
        Err(read_only().into())
    }

    fn durable(&self, _cursor: Cursor) -> DurableFuture<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn wait_durable(&self, _cursor: Cursor) -> Result<(), EngineError> {
        Ok(())
    }

    fn last_cursor(&self) -> Cursor {
        self.at
    }

    fn durable_cursor(&self) -> Cursor {
        self.at
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        cursor == self.at
    }

    fn changes(&self, _after: Cursor, _limit: usize) -> Result<FeedPage, FeedError> {
        Err(FeedError::Failed(read_only()))
    }

    fn wait_changes(&self, _after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        Box::pin(std::future::ready(Err(read_only())))
    }

    fn payload_bytes_max(&self) -> usize {
        0
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(Snapshot { tasks: Arc::clone(&self.tasks), reading: Arc::clone(&self.reading), at: self.at }))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
