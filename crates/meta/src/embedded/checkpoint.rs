//! Checkpoints: seals the active overlay and folds sealed ones into the B-tree.
//!
//! Why:        the log must stay short (replay after a crash) and the overlay small (memory).
//! Invariants: K1 at most [`SEALED_MAX`] overlays wait to be folded; a commit that would need another one waits.
//!             K2 an overlay is folded only when its commits are durable, oldest first.
//!             K3 a log file is released only after the fold of its commits is durable.
//! Locking:    sealing happens under `serial` and the active overlay's write lock, so readers see either state.
//! Not here:   writing the log (log), the tree's pages (tree).

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_segment::{Proof, SegmentError, SegmentId, SegmentPin};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::Embedded;
use super::layers::Lower;
use super::log::{LogFile, Serial};
use super::overlay::Overlay;
use super::replay;
use super::tree::Folded;
use crate::{CommitError, Cursor, EngineError};

/// Maximum number of sealed overlays that wait.
const SEALED_MAX: usize = 1;
/// Rows between two updates of the fold's progress.
const PROGRESS_ROWS: usize = 1024;
/// Maximum time that a thread waits for a fold before it checks again.
const PATIENCE: Duration = Duration::from_millis(100);
/// Initial estimate of a fold's time, in nanoseconds per row.
const FIRST_ROW_NANOSECONDS: u64 = 4_000;

/// Upper bounds of the histogram of checkpoint times, in milliseconds.
pub const CHECKPOINT_BUCKETS_MS: [u64; 11] = [10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000];

/// A log file that the tree no longer needs once the overlay is folded.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) log: SegmentId,
    /// Where its last record ends.
    pub(super) end: u64,
    /// It has payload that metadata may refer to: it stays as a segment, truncated to its end.
    pub(super) payloads: bool,
    /// Protects a file that was found at the start from reclaim; a file created since is open anyway.
    pub(super) pin: Option<SegmentPin>,
}

#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) overlay: Arc<Overlay>,
    pub(super) last: Cursor,
    /// The log that continues after this overlay's commits.
    pub(super) next_log: SegmentId,
    pub(super) ended: Vec<Ended>,
}

#[derive(Debug)]
struct Queue {
    sealed: VecDeque<Sealed>,
    stopping: bool,
    /// Counts the events that waiting threads wait for: folds ended, log files prepared or failed.
    changes: u64,
}

#[derive(Debug)]
pub(super) struct Folds {
    queue: Mutex<Queue>,
    work: Condvar,
    /// A fold ended, or a log file was prepared.
    changed: Condvar,
    row_nanoseconds: AtomicU64,
    pub(super) count: AtomicU64,
    pub(super) rows: AtomicU64,
    pub(super) nanoseconds: AtomicU64,
    pub(super) by_time: [AtomicU64; CHECKPOINT_BUCKETS_MS.len()],
}

impl Folds {
    pub(super) fn new(first: Option<Sealed>) -> Folds {
        Folds {
            queue: Mutex::new(Queue { sealed: first.into_iter().collect(), stopping: false, changes: 0 }),
            work: Condvar::new(),
            changed: Condvar::new(),
            row_nanoseconds: AtomicU64::new(FIRST_ROW_NANOSECONDS),
            count: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            by_time: Default::default(),
        }
    }

    fn tell_changed(&self) {
        self.queue.lock().changes += 1;
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.queue.lock().stopping = true;
        self.work.notify_all();
        self.changed.notify_all();
    }
}

impl Embedded {
    /// Gives the next commit a new log and overlay. `false`: it had to wait, so everything must be checked again.
    pub(super) fn make_room(&self, serial: &mut MutexGuard<'_, Serial>) -> Result<bool, CommitError> {
        let (room, seen) = {
            let queue = self.folds.queue.lock();
            (queue.sealed.len() < SEALED_MAX, queue.changes)
        };
        if serial.ready.is_some() && room {
            self.seal(serial);
            return Ok(false);
        }
        self.folds.work.notify_all();
        if !room && self.tree.full_disk().is_waited_for() {
            return Err(CommitError::Full);
        }
        match &serial.ready_failed {
            Some((ErrorKind::StorageFull, _)) if serial.ready.is_none() => return Err(CommitError::Full),
            Some((kind, why)) if serial.ready.is_none() => {
                return Err(EngineError::Io(std::io::Error::new(*kind, why.clone())).into());
            }
            _ => {}
        }
        MutexGuard::unlocked(serial, || {
            let mut queue = self.folds.queue.lock();
            if !queue.stopping && queue.changes == seen {
                self.folds.changed.wait_for(&mut queue, PATIENCE);
            }
        });
        Ok(false)
    }

    fn seal(&self, serial: &mut Serial) {
        let end = serial.at;
        let payloads = serial.payloads;
        let ended = self.log.rotate(serial);
        let overlay = {
            let mut active = self.active.write();
            let overlay = Arc::new(std::mem::take(&mut *active));
            let old = self.lower.load_full();
            let mut sealed = vec![overlay.clone()];
            sealed.extend(old.sealed.iter().cloned());
            self.lower.store(Arc::new(Lower { sealed, tree: old.tree.clone(), epoch: old.epoch + 1 }));
            overlay
        };
        self.pace.filled(serial.at);
        let ended = vec![Ended { log: ended.id, end, payloads, pin: None }];
        let sealed = Sealed { overlay, last: serial.last, next_log: serial.active.id, ended };
        self.folds.queue.lock().sealed.push_back(sealed);
        self.folds.work.notify_all();
    }

    /// The checkpointing thread.
    pub(super) fn run_checkpoints(&self) {
        self.tree.full_disk().allow_waiting();
        loop {
            self.prepare_file();
            let work = {
                let mut queue = self.folds.queue.lock();
                if queue.sealed.is_empty() && !queue.stopping {
                    self.folds.work.wait_for(&mut queue, PATIENCE);
                }
                if queue.stopping {
                    return;
                }
                queue.sealed.front().map(|sealed| (sealed.overlay.clone(), sealed.last, sealed.next_log))
            };
            if let Some((overlay, last, next_log)) = work
                && let Err(error) = self.fold_oldest(&overlay, last, next_log)
            {
                // A fold that waited for space until the end has changed nothing: the log still has its commits.
                if !(error.is_full() && self.folds.queue.lock().stopping) {
                    self.log.poison(format!("checkpoint: {error}"));
                }
                self.folds.tell_changed();
                return;
            }
        }
    }

    /// Keeps one log file prepared, so that a commit never waits for its creation.
    fn prepare_file(&self) {
        if self.log.serial.lock().ready.is_some() {
            return;
        }
        let made = self.log.create_file(self.options.log_file_bytes);
        let mut serial = self.log.serial.lock();
        match made {
            Ok(file) => {
                serial.ready = Some(Arc::<LogFile>::new(file));
                serial.ready_failed = None;
            }
            // A full disk is temporary; a fault of the store lasts until a restart.
            Err(error) if self.store.fault().is_some() => self.log.poison(format!("log file: {error}")),
            Err(error) => {
                if serial.ready_failed.is_none() {
                    tracing::warn!(%error, "the next log file cannot be made; writes fail until it can");
                }
                let kind = if let EngineError::Io(error) = &error { error.kind() } else { ErrorKind::Other };
                serial.ready_failed = Some((kind, error.to_string()));
            }
        }
        drop(serial);
        self.folds.tell_changed();
    }

    fn fold_oldest(&self, overlay: &Arc<Overlay>, last: Cursor, next_log: SegmentId) -> Result<(), EngineError> {
        let rows = overlay.rows();
        let began = self.env.clock.monotonic();
        let row_nanoseconds = self.folds.row_nanoseconds.load(Ordering::Relaxed);
        let expected = Duration::from_nanos(row_nanoseconds.saturating_mul(rows as u64));
        self.pace.fold_began(expected);
        self.log.wait_blocking(last)?;
        let expected_nanoseconds = expected.as_nanos().max(1);
        let progress = |done: usize| {
            if done.is_multiple_of(PROGRESS_ROWS) {
                let elapsed = (self.env.clock.monotonic() - began).as_nanos();
                let by_time = (elapsed * 1000 / expected_nanoseconds).min(999);
                // Writing the pages takes about as long as inserting the rows.
                let by_rows = done * 500 / rows.max(1);
                self.pace.fold_at((by_rows as u32).max((by_time as u32).min(by_rows as u32 + 100)));
            }
        };
        self.tree.fold(overlay, Folded { seq: last, first_log: next_log.0 }, &progress)?;
        self.log.folded.store(last.0, Ordering::Release);
        let tree = Arc::new(self.tree.snapshot()?);
        let folded = {
            // Under the active overlay's lock, as sealing is: the two must not overwrite each other's layers.
            let _active = self.active.write();
            let old = self.lower.load_full();
            let mut sealed = old.sealed.clone();
            let oldest = sealed.pop();
            assert!(oldest.is_some_and(|oldest| Arc::ptr_eq(&oldest, overlay)), "the oldest overlay is folded first");
            self.lower.store(Arc::new(Lower { sealed, tree, epoch: old.epoch }));
            self.folds.queue.lock().sealed.pop_front().expect("the fold came from the queue")
        };
        let took = self.env.clock.monotonic() - began;
        self.folds.count.fetch_add(1, Ordering::Relaxed);
        if let Some(bucket) = CHECKPOINT_BUCKETS_MS.iter().position(|end| took.as_millis() <= u128::from(*end)) {
            self.folds.by_time[bucket].fetch_add(1, Ordering::Relaxed);
        }
        self.folds.rows.fetch_add(rows as u64, Ordering::Relaxed);
        self.folds.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        if rows > 0 {
            self.folds.row_nanoseconds.store(took.as_nanos() as u64 / rows as u64, Ordering::Relaxed);
        }
        self.pace.fold_ended();
        self.folds.tell_changed();
        tracing::debug!(rows, milliseconds = took.as_millis() as u64, last = last.0, "checkpoint");
        self.let_go(folded.ended)
    }

    fn let_go(&self, ended: Vec<Ended>) -> Result<(), EngineError> {
        let failed = |error: SegmentError| EngineError::Io(std::io::Error::other(error.to_string()));
        for Ended { log, end, payloads, pin } in ended {
            if self.feed_logs.keeps(end) {
                let pin = pin.map_or_else(|| self.store.pin(log).map_err(failed), Ok)?;
                self.store.retire_log(log, end).map_err(failed)?;
                self.feed_logs.keep(&self.store, log, end, pin)?;
                continue;
            }
            // The count made while it was written, and its bytes now: a log is removed only if both agree.
            if payloads || !replay::is_without_payload(&self.store, log, end)? {
                if !payloads {
                    tracing::error!(log = ?log, "a log without payload could not be read as one: it stays as a segment");
                }
                // The pin is released last: reclaim may take the file at once when its payload is dead.
                self.store.retire_log(log, end).map_err(failed)?;
                continue;
            }
            self.store.seal(log).map_err(failed)?;
            let _no_reader = self.feed_logs.hold_off();
            drop(pin);
            match self.store.remove_log(log, Proof::NoPayload) {
                // Reclaim, which sees a segment without live payload, has removed it already.
                Ok(()) | Err(SegmentError::Missing(_)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }

    /// Folds all commits so far and waits for it.
    pub(super) fn checkpoint_now(&self) -> Result<(), EngineError> {
        let epoch = self.lower.load().epoch;
        let target = {
            let mut serial = self.log.serial.lock();
            let target = serial.last;
            while !self.active.read().is_empty() && self.lower.load().epoch == epoch {
                self.log.check_poison()?;
                self.make_room(&mut serial).map_err(|error| match error {
                    CommitError::Failed(error) => error,
                    _ => EngineError::Io(ErrorKind::StorageFull.into()),
                })?;
            }
            target
        };
        let mut queue = self.folds.queue.lock();
        while queue.sealed.front().is_some_and(|sealed| sealed.last <= target) && !queue.stopping {
            self.log.check_poison()?;
            if self.tree.full_disk().is_waited_for() {
                return Err(EngineError::Io(ErrorKind::StorageFull.into()));
            }
            self.folds.changed.wait_for(&mut queue, PATIENCE);
        }
        Ok(())
    }
}
