//! A snapshot: all rows of one moment, for long reads.
//!
//! Why:        a proof that no row refers to some bytes must not miss a row that is renamed during the read.
//! Invariants: N1 it contains every commit up to `seq` and none after it; all of them are durable.
//! Locking:    the active overlay is copied under `serial`: a checkpoint comes first, so the copy is small.
//! Not here:   reading through the layers (layers).

use std::io;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;

use super::Embedded;
use super::layers::{Lower, Merge, Window};
use crate::read::Budget;
use crate::{
    Answers, Ask, Batch, CommitError, Committed, Cursor, DurableFuture, Engine, EngineError, EngineFuture, FeedError,
    FeedPage, Observed, ReadAnswer, ReadLimit, Row, RowRef,
};

/// See the module's header.
#[derive(Debug)]
struct Frozen {
    layers: Lower,
    seq: Cursor,
}

impl Embedded {
    pub(super) fn freeze(&self) -> Result<Arc<dyn Engine>, EngineError> {
        // On a full disk the copy is just larger; reclaiming space may depend on this snapshot.
        match self.checkpoint_now() {
            Err(error) if error.is_full() => {}
            other => other?,
        }
        let frozen = {
            let serial = self.log.serial.lock();
            let active = self.active.read();
            let lower = self.lower.load_full();
            let mut sealed = vec![Arc::new(active.clone())];
            sealed.extend(lower.sealed.iter().cloned());
            Frozen { layers: Lower { sealed, tree: Arc::clone(&lower.tree), epoch: lower.epoch }, seq: serial.last }
        };
        self.log.wait_blocking(frozen.seq)?;
        Ok(Arc::new(frozen))
    }
}

fn refused() -> EngineError {
    EngineError::Io(io::Error::new(io::ErrorKind::Unsupported, "a snapshot takes no commits and has no feed"))
}

impl Engine for Frozen {
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        let stored = self.layers.get(key)?;
        let row = stored.map(|stored| Row { value: Bytes::copy_from_slice(stored.value()), version: stored.version() });
        Ok(Observed { value: row, observed: self.seq })
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        let window = Window::default();
        let mut merge = Merge::new(&window, &self.layers, Bound::Included(start), Bound::Excluded(end))?;
        merge.run(visit)?;
        Ok(Observed { value: (), observed: self.seq })
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let mut budget = Budget::new(limit);
        let answers = asks.iter().map(|ask| match ask {
            Ask::Get { key } => Ok(ReadAnswer::Row(self.get(key)?.value)),
            Ask::Scan { start, end, rows_max, keys_only } => {
                let batch = budget.scan(*rows_max, *keys_only, |visit| self.scan(start, end, visit).map(drop));
                batch.map(ReadAnswer::Rows)
            }
        });
        Ok(Answers { answers: answers.collect::<Result<_, _>>()?, observed: self.seq, one_moment: true })
    }

    fn commit(&self, _batch: Batch) -> Result<Committed, CommitError> {
        Err(refused().into())
    }

    fn durable(&self, _seq: Cursor) -> DurableFuture<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn wait_durable(&self, _seq: Cursor) -> Result<(), EngineError> {
        Ok(())
    }

    fn last_cursor(&self) -> Cursor {
        self.seq
    }

    fn durable_cursor(&self) -> Cursor {
        self.seq
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        self.seq == cursor
    }

    fn changes(&self, _after: Cursor, _limit: usize) -> Result<FeedPage, FeedError> {
        Err(refused().into())
    }

    fn wait_changes(&self, _after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        Box::pin(std::future::ready(Err(refused())))
    }

    fn payload_bytes_max(&self) -> usize {
        0
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        Err(refused())
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        Ok(())
    }
}
