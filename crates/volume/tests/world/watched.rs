//! An engine that counts the rows it reads and writes, and whose power can be cut before a commit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::layer::Layer;
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
}

fn bytes_of(write: &Write) -> usize {
    let value = match write {
        Write::Put { value, .. } => value.len(),
        Write::Delete { .. } => 0,
        Write::Set { .. } | Write::Add { .. } | Write::Max { .. } => 8,
    };
    write.key().len() + value
}

impl Layer for Watched {
    fn below(&self) -> &dyn Engine {
        &*self.engine
    }
    fn answered(&self, found: usize, absent: usize) {
        self.read.fetch_add((found + absent) as u64, Ordering::SeqCst);
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
}
