//! An engine that counts the rows it reads and writes, and whose power can be cut before a commit.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::*;

#[derive(Debug)]
pub struct Watched {
    engine: Arc<dyn Engine>,
    read: AtomicU64,
    written: AtomicU64,
    written_bytes: AtomicU64,
    /// Commits that are still made.
    commits_left: AtomicU64,
}

impl Watched {
    pub fn new(engine: Arc<dyn Engine>) -> Watched {
        let [read, written, written_bytes] = [0; 3].map(AtomicU64::new);
        Watched { engine, read, written, written_bytes, commits_left: AtomicU64::new(u64::MAX) }
    }

    /// The power goes behind so many commits.
    pub fn cut_after(&self, commits: u64) {
        self.commits_left.store(commits, Ordering::SeqCst);
    }

    /// Commits that were left when the power was to go.
    pub fn commits_left(&self) -> u64 {
        self.commits_left.load(Ordering::SeqCst)
    }

    /// Rows read so far.
    pub fn read_rows(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }

    /// Rows written by a call, and the bytes of their keys and values.
    pub fn written_by<T>(&self, call: impl FnOnce() -> T) -> (u64, u64) {
        let now = || [&self.written, &self.written_bytes].map(|count| count.load(Ordering::SeqCst));
        let before = now();
        call();
        let after = now();
        (after[0] - before[0], after[1] - before[1])
    }

    fn note(&self, rows: usize) {
        self.read.fetch_add(rows as u64, Ordering::SeqCst);
    }
}

fn bytes_of(write: &Write) -> usize {
    let value = match write {
        Write::Put { value, .. } => value.len(),
        Write::Delete { .. } => 0,
        Write::Add { .. } | Write::Max { .. } => 8,
    };
    write.key().len() + value
}

impl Engine for Watched {
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        self.note(1);
        self.engine.get(key)
    }
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.engine.scan(start, end, &mut |row| {
            self.note(1);
            visit(row)
        })
    }
    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let answers = self.engine.read(asks, limit)?;
        let rows = |answer: &ReadAnswer| match answer {
            ReadAnswer::Row(_) => 1,
            ReadAnswer::Rows(rows) => rows.len(),
        };
        self.note(answers.answers.iter().map(rows).sum());
        Ok(answers)
    }
    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        let left = self.commits_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            u64::MAX => Some(left),
            _ => left.checked_sub(1),
        });
        if left.is_err() {
            return Err(EngineError::Poisoned("the power is cut".to_owned()).into());
        }
        self.written.fetch_add(batch.writes.len() as u64, Ordering::SeqCst);
        let bytes: usize = batch.writes.iter().map(bytes_of).sum();
        self.written_bytes.fetch_add(bytes as u64, Ordering::SeqCst);
        self.engine.commit(batch)
    }
    fn durable(&self, cursor: Cursor) -> DurableFuture<'_> {
        self.engine.durable(cursor)
    }
    fn wait_durable(&self, cursor: Cursor) -> Result<(), EngineError> {
        self.engine.wait_durable(cursor)
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
