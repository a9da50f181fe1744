//! The embedded engine: log, overlays and B-tree in one data directory.
//!
//! Why:        in an LSM store a listing pays for deleted rows, and a B-tree alone cannot sync scattered rows together.
//!             A log with shared syncs, ordered overlays with dead intervals, and a B-tree that is filled in the
//!             background avoid both (measurements in docs/design/0001-embedded-engine.md).
//! Invariants: the contract's M1 to M6, and  E1 tree + sealed overlays + active overlay = all commits.
//!             E2 the tree holds only durable commits.  E3 a log file is released only when the tree has its commits.
//! Locking:    `log.serial` < `active` (never the other way); `lower` is swapped, never locked.
//! Not here:   payload files other than logs (segment), the meaning of rows (volume).

mod checkpoint;
mod commit;
mod feed_logs;
mod fold;
mod full_disk;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod layers;
mod limits;
mod log;
mod log_header;
mod overlay;
mod pace;
mod page_file;
mod page_sums;
mod read;
mod record;
mod replay;
mod room;
mod snapshot;
mod tail;
mod tree;
mod tree_walk;

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use bytes::Bytes;
use margay_env::Env;
use margay_segment::Store;
use parking_lot::{Mutex, RwLock};

pub use checkpoint::CHECKPOINT_BUCKETS_MS;
pub use limits::{LOG_FILE_BYTES_MIN, Options};
pub use log_header::log_origin;

use checkpoint::Folds;
use feed_logs::FeedLogs;
use layers::{FIRST_WINDOW_ROWS, Lower, Merge, Stored, Window, as_slice, grown};
use log::Log;
use overlay::{Found, Overlay};
use pace::Pace;
use room::Room;
use tail::Tail;
use tree::Tree;

use crate::{
    Answers, Ask, Batch, Checked, CommitError, Committed, Cursor, DurableFuture, Engine, EngineError, EngineFuture,
    FeedError, FeedPage, OLD_KEY_BYTES_MAX, Observed, PAYLOAD_BYTES_MAX, ReadLimit, Row, RowRef,
};

/// The state of the engine that its threads share.
#[derive(Debug)]
struct Embedded {
    env: Env,
    options: Options,
    store: Arc<Store>,
    tree: Tree,
    log: Log,
    active: RwLock<Overlay>,
    lower: ArcSwap<Lower>,
    /// Newest commit that deleted a row: every answer that misses a row depends on it.
    newest_deletion: AtomicU64,
    folds: Folds,
    pace: Pace,
    room: Room,
    tail: Tail,
    feed_logs: FeedLogs,
    calls: Calls,
}

/// Number of calls since the start. Reads of a snapshot are not counted: only maintenance makes them.
#[derive(Debug, Default)]
struct Calls {
    gets: AtomicU64,
    scans: AtomicU64,
    reads: AtomicU64,
    commits: AtomicU64,
}

/// Figures for metrics; counters since the start, and current gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Calls by the name of the operation, since the start.
    pub calls: [(&'static str, u64); 4],
    pub commits: u64,
    pub log_syncs: u64,
    pub log_bytes_written: u64,
    /// Bytes of the active log file in use.
    pub log_bytes: u64,
    pub overlay_rows: u64,
    pub overlay_bytes: u64,
    pub sealed_rows: u64,
    pub checkpoints: u64,
    pub checkpoint_rows: u64,
    pub checkpoint_nanoseconds: u64,
    /// Number of checkpoints by the first of [`CHECKPOINT_BUCKETS_MS`] that is not less than their duration; longer
    /// ones are omitted.
    pub checkpoints_by_time: [u64; CHECKPOINT_BUCKETS_MS.len()],
    pub tree_file_bytes: u64,
    /// Damaged pages of the tree found since the start.
    pub damaged_pages: u64,
    /// Whether every page of the tree has a checksum; in directories created by older versions only after a scrub.
    pub tree_checksums: bool,
}

/// A running engine. Dropping it syncs the log and ends its threads, without a checkpoint.
#[derive(Debug)]
pub struct EmbeddedEngine {
    shared: Arc<Embedded>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl EmbeddedEngine {
    /// Opens or creates the engine of a data directory, whose log files are in `store`. Replays the log.
    pub fn open(env: Env, store: Arc<Store>, options: Options) -> Result<EmbeddedEngine, EngineError> {
        if options.log_file_bytes < LOG_FILE_BYTES_MIN {
            return Err(EngineError::Io(std::io::Error::other("the log file size is below its minimum")));
        }
        let shared = Arc::new(replay::open(env, store, options)?);
        let (syncer, folder) = (shared.clone(), shared.clone());
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body).map_err(EngineError::Io)
        };
        let threads = vec![
            spawn("log-sync", Box::new(move || syncer.log.run(&syncer.options)))?,
            spawn("checkpoint", Box::new(move || folder.run_checkpoints()))?,
        ];
        Ok(EmbeddedEngine { shared, threads: Mutex::new(threads) })
    }

    /// The reason why commits are refused after a failed write or sync.
    pub fn fault(&self) -> Option<String> {
        self.shared.log.fault()
    }

    pub fn statistics(&self) -> Statistics {
        let shared = &self.shared;
        let (commits, log_bytes) = {
            let serial = shared.log.serial.lock();
            (serial.last.0, serial.at)
        };
        let (overlay_rows, overlay_bytes) = {
            let active = shared.active.read();
            (active.rows() as u64, active.bytes() as u64)
        };
        let Calls { gets, scans, reads, commits: committed } = &shared.calls;
        let calls = [("get", gets), ("scan", scans), ("read", reads), ("commit", committed)];
        Statistics {
            calls: calls.map(|(operation, count)| (operation, count.load(Ordering::Relaxed))),
            commits,
            log_syncs: shared.log.syncs.load(Ordering::Relaxed),
            log_bytes_written: shared.log.bytes.load(Ordering::Relaxed),
            log_bytes,
            overlay_rows,
            overlay_bytes,
            sealed_rows: shared.lower.load().sealed.iter().map(|overlay| overlay.rows() as u64).sum(),
            checkpoints: shared.folds.count.load(Ordering::Relaxed),
            checkpoint_rows: shared.folds.rows.load(Ordering::Relaxed),
            checkpoint_nanoseconds: shared.folds.nanoseconds.load(Ordering::Relaxed),
            checkpoints_by_time: shared.folds.by_time.each_ref().map(|count| count.load(Ordering::Relaxed)),
            tree_file_bytes: shared.tree.file_bytes().unwrap_or_default(),
            damaged_pages: shared.tree.health().0,
            tree_checksums: shared.tree.health().1,
        }
    }
}

impl Drop for EmbeddedEngine {
    fn drop(&mut self) {
        self.shared.log.stop();
        self.shared.folds.stop();
        self.shared.tree.full_disk().stop_waiting();
        for thread in self.threads.lock().drain(..) {
            // A thread that panicked has reported it; nobody else needs to know.
            let _ = thread.join();
        }
    }
}

impl Embedded {
    /// The answer of the active overlay, and the layers below it, as of one moment.
    fn find(&self, key: &[u8]) -> Result<(Option<Stored>, Cursor), EngineError> {
        let lower = {
            let active = self.active.read();
            match active.find(key) {
                Found::Live(live) => return Ok((Some(Stored::Overlay(live.clone())), live.touched)),
                Found::Dead => return Ok((None, self.newest_deletion())),
                // Sealing swaps both under the write lock, so these layers belong to this overlay.
                Found::Unknown => self.lower.load_full(),
            }
        };
        let stored = lower.get(key)?;
        let observed = stored.as_ref().map_or_else(|| self.newest_deletion(), Stored::touched);
        Ok((stored, observed))
    }

    fn newest_deletion(&self) -> Cursor {
        Cursor(self.newest_deletion.load(Ordering::Acquire))
    }

    fn scan_rows(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Cursor, EngineError> {
        let mut observed = Cursor(0);
        let mut from = Bound::Included(start.to_vec());
        let mut rows_max = FIRST_WINDOW_ROWS;
        loop {
            let (window, lower) = {
                let active = self.active.read();
                (Window::copy(&active, as_slice(&from), end, rows_max), self.lower.load_full())
            };
            let until = Bound::Excluded(window.until().unwrap_or(end));
            let mut merge = Merge::new(&window, &lower, as_slice(&from), until)?;
            let broke = merge.run(visit)?;
            observed = observed.max(merge.observed);
            rows_max = grown(rows_max);
            match window.until() {
                Some(next) if !broke => from = Bound::Included(next.to_vec()),
                _ => return Ok(observed.max(self.newest_deletion())),
            }
        }
    }
}

impl Engine for EmbeddedEngine {
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        self.shared.calls.gets.fetch_add(1, Ordering::Relaxed);
        let (stored, observed) = self.shared.find(key)?;
        let row = stored.map(|stored| Row { value: Bytes::copy_from_slice(stored.value()), version: stored.version() });
        Ok(Observed { value: row, observed })
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        self.shared.calls.scans.fetch_add(1, Ordering::Relaxed);
        let observed = self.shared.scan_rows(start, end, visit)?;
        Ok(Observed { value: (), observed })
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        self.shared.calls.reads.fetch_add(1, Ordering::Relaxed);
        self.shared.read_together(asks, limit)
    }

    fn commit(&self, batch: Batch) -> Result<Committed, CommitError> {
        self.shared.calls.commits.fetch_add(1, Ordering::Relaxed);
        self.shared.commit_batch(batch)
    }

    fn durable(&self, seq: Cursor) -> DurableFuture<'_> {
        Box::pin(self.shared.log.wait(seq))
    }

    fn wait_durable(&self, seq: Cursor) -> Result<(), EngineError> {
        self.shared.log.wait_blocking(seq)
    }

    fn last_cursor(&self) -> Cursor {
        self.shared.log.serial.lock().last
    }

    fn durable_cursor(&self) -> Cursor {
        self.shared.log.durable()
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        self.last_cursor() == cursor
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        self.shared.changes_after(after, limit)
    }

    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        Box::pin(self.shared.log.wait_beyond(after))
    }

    fn is_shared(&self) -> bool {
        self.shared.options.shared
    }

    fn key_bytes_max(&self) -> usize {
        OLD_KEY_BYTES_MAX
    }

    fn payload_bytes_max(&self) -> usize {
        // A batch must fit into one log file; the other half is for its rows.
        PAYLOAD_BYTES_MAX.min(usize::try_from(self.shared.options.log_file_bytes / 2).unwrap_or(usize::MAX))
    }

    fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        self.shared.freeze()
    }

    fn check_storage(
        &self,
        shown_max: usize,
        pace: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<Checked, EngineError> {
        let mut checked = self.shared.tree.check(shown_max, pace)?;
        if let Some(damage) = replay::check_logs(&self.shared)? {
            checked.damaged += 1;
            checked.shown.push(damage);
        }
        Ok(checked)
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        self.shared.checkpoint_now()
    }
}
