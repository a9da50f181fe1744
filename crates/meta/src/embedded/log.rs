//! The log: gives commits their order, and makes them durable together.
//!
//! Why:        one sync serves every commit that waits, so a durable commit costs a share of a sync.
//! Layout:     log segments of `segment`, each: `log_header`, then records (`record`); docs/format/log.md.
//! Invariants: G1 records are written in the order of their sequence numbers.  G2 a file is synced completely before
//!                the next one gets its first byte, so a record in a later file proves that earlier files are complete.
//!             G3 after a failed write or sync nothing more is written: the engine is poisoned.
//!             G4 each group records up to where its file was durable before; a clean stop writes a mark at the end.
//! Locking:    `serial` orders commits; the syncing thread takes it only to swap buffers, never during I/O.
//! Not here:   the effect of a commit on rows (commit), reading the log (replay).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use event_listener::{Event, EventListener, Listener};
use margay_env::{Clock, Env, File, Random};
use margay_segment::{Kind, SegmentError, SegmentId, Store};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::limits::{Options, PENDING_BYTES_MAX};
use super::log_header::{FILE_HEADER_BYTES, LogId, encode_file_header};
use super::record;
use crate::{Cursor, EngineError, Write};

/// With this many waiting, a sync is delayed to let more join.
const COMPANY_MIN: usize = 8;
/// A delayed sync starts when nobody joined for this long.
const GATHER_STEP: Duration = Duration::from_micros(100);
/// With fewer waiting, one sync per interval is delayed to test whether more would join.
const TRY_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct LogFile {
    pub(super) id: SegmentId,
    pub(super) file: Arc<dyn File>,
    pub(super) nonce: u64,
}

impl LogFile {
    fn log_id(&self) -> LogId {
        LogId { segment: self.id.0, nonce: self.nonce }
    }
}

/// Up to where a file is durable; used by the syncing thread only.
#[derive(Debug)]
struct Synced {
    log: SegmentId,
    offset: u64,
}

/// Encoded records of one file, waiting to be written.
#[derive(Debug)]
struct Chunk {
    log: Arc<LogFile>,
    offset: u64,
    bytes: Vec<u8>,
    /// This is the file's last chunk.
    last: bool,
}

/// The state that commits change one at a time.
#[derive(Debug)]
pub(super) struct Serial {
    pub(super) last: Cursor,
    pub(super) active: Arc<LogFile>,
    /// Offset of the next record.
    pub(super) at: u64,
    /// The nonce of the previous file that has records.
    pub(super) before: u64,
    /// Whether a record of the active file carries a payload.
    pub(super) payloads: bool,
    /// The next file, prepared in advance.
    pub(super) ready: Option<Arc<LogFile>>,
    /// Why no next file could be prepared, while that lasts; `StorageFull` on a full disk.
    pub(super) ready_failed: Option<(std::io::ErrorKind, String)>,
    pending: VecDeque<Chunk>,
    pending_bytes: usize,
    stopping: bool,
}

#[derive(Debug)]
pub(super) struct Log {
    pub(super) serial: Mutex<Serial>,
    work: Condvar,
    idle: AtomicBool,
    durable: AtomicU64,
    wanted: AtomicU64,
    waiting: AtomicUsize,
    synced: Event,
    poison: OnceLock<String>,
    pub(super) syncs: AtomicU64,
    pub(super) bytes: AtomicU64,
    /// This process's first file; its header is durable.
    first: SegmentId,
    /// The newest commit that is durable in the tree.
    pub(super) folded: AtomicU64,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    store: Arc<Store>,
}

impl Log {
    /// Starts a new log file after `last`, which is already durable; `before` is the nonce of the file with `last`.
    pub(super) fn begin(
        store: Arc<Store>,
        env: &Env,
        (folded, last): (Cursor, Cursor),
        before: u64,
        options: &Options,
    ) -> Result<Log, EngineError> {
        let active = Arc::new(create(&store, env.random.as_ref(), options.log_file_bytes)?);
        let header = encode_file_header(active.log_id(), Cursor(last.0 + 1), folded, before);
        active.file.write_all_at(&header, 0)?;
        active.file.sync_data()?;
        let first = active.id;
        let serial = Serial {
            last,
            active,
            at: FILE_HEADER_BYTES,
            before,
            payloads: false,
            ready: None,
            ready_failed: None,
            pending: VecDeque::new(),
            pending_bytes: 0,
            stopping: false,
        };
        Ok(Log {
            serial: Mutex::new(serial),
            work: Condvar::new(),
            idle: AtomicBool::new(false),
            durable: AtomicU64::new(last.0),
            wanted: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            synced: Event::new(),
            poison: OnceLock::new(),
            syncs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            first,
            folded: AtomicU64::new(folded.0),
            clock: env.clock.clone(),
            random: env.random.clone(),
            store,
        })
    }

    pub(super) fn durable(&self) -> Cursor {
        Cursor(self.durable.load(Ordering::Acquire))
    }

    pub(super) fn check_poison(&self) -> Result<(), EngineError> {
        match self.poison.get() {
            None => Ok(()),
            Some(why) => Err(EngineError::Poisoned(why.clone())),
        }
    }

    pub(super) fn fault(&self) -> Option<String> {
        self.poison.get().cloned()
    }

    pub(super) fn poison(&self, why: String) {
        if self.poison.set(why.clone()).is_ok() {
            tracing::error!(%why, "storage fault: the metadata is read-only from now on; restart after the disk is well again");
        }
        self.synced.notify(usize::MAX);
    }

    /// Appends a record to the buffer; the caller has checked that it fits. Returns its sequence number.
    pub(super) fn append(&self, serial: &mut Serial, writes: &[Write], payload: &[u8]) -> Cursor {
        let seq = Cursor(serial.last.0 + 1);
        let log = serial.active.clone();
        let joins = serial.pending.back().is_some_and(|chunk| chunk.log.id == log.id);
        if !joins {
            serial.pending.push_back(Chunk { log: log.clone(), offset: serial.at, bytes: Vec::new(), last: false });
        }
        let chunk = serial.pending.back_mut().expect("a chunk was just made sure of");
        let before = chunk.bytes.len();
        assert_eq!(chunk.offset + before as u64, serial.at, "records follow each other without a gap");
        record::encode(&mut chunk.bytes, log.log_id(), serial.at, seq, writes, payload);
        let grown = chunk.bytes.len() - before;
        serial.at += grown as u64;
        serial.pending_bytes += grown;
        serial.payloads |= !payload.is_empty();
        serial.last = seq;
        if serial.pending_bytes >= PENDING_BYTES_MAX {
            self.wake_idle();
        }
        seq
    }

    /// Switches to the prepared file. Returns the file that ended.
    pub(super) fn rotate(&self, serial: &mut Serial) -> Arc<LogFile> {
        let next = serial.ready.take().expect("the caller saw that a file is ready");
        let ended = std::mem::replace(&mut serial.active, next.clone());
        match serial.pending.back_mut() {
            Some(chunk) => chunk.last = true,
            None => {
                serial.pending.push_back(Chunk { log: ended.clone(), offset: serial.at, bytes: Vec::new(), last: true })
            }
        }
        let folded = Cursor(self.folded.load(Ordering::Acquire));
        // The feed follows these nonces backwards; a file without records is skipped.
        serial.before = if serial.at == FILE_HEADER_BYTES { serial.before } else { ended.nonce };
        let header = encode_file_header(next.log_id(), Cursor(serial.last.0 + 1), folded, serial.before).to_vec();
        serial.pending.push_back(Chunk { log: next, offset: 0, bytes: header, last: false });
        serial.at = FILE_HEADER_BYTES;
        serial.payloads = false;
        ended
    }

    pub(super) fn create_file(&self, len: u64) -> Result<LogFile, EngineError> {
        create(&self.store, self.random.as_ref(), len)
    }

    fn wake_idle(&self) {
        if self.idle.load(Ordering::Acquire) {
            self.work.notify_one();
        }
    }

    /// Records that somebody waits for `seq`; wakes the syncing thread if it sleeps.
    fn want(&self, seq: Cursor) {
        self.wanted.fetch_max(seq.0, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) {
            // Under the lock, so that the thread is either before its check or really asleep.
            let serial = self.serial.lock();
            self.work.notify_one();
            drop(serial);
        }
    }

    /// Resolves when `seq` is durable.
    pub(super) async fn wait(&self, seq: Cursor) -> Result<(), EngineError> {
        let Some(waiter) = Waiter::join(self, seq) else { return Ok(()) };
        while let Some(synced) = waiter.next_sync()? {
            synced.await;
        }
        Ok(())
    }

    /// As [`Log::wait`], for a thread that may sleep.
    pub(super) fn wait_blocking(&self, seq: Cursor) -> Result<(), EngineError> {
        let Some(waiter) = Waiter::join(self, seq) else { return Ok(()) };
        while let Some(synced) = waiter.next_sync()? {
            synced.wait();
        }
        Ok(())
    }

    /// Resolves when a commit after `after` is durable; does not request a sync.
    pub(super) async fn wait_beyond(&self, after: Cursor) -> Result<(), EngineError> {
        loop {
            let synced = self.synced.listen();
            if self.durable() > after {
                return Ok(());
            }
            self.check_poison()?;
            synced.await;
        }
    }

    /// The syncing thread: until `stop`, or until a fault.
    pub(super) fn run(&self, options: &Options) {
        let mut company = Company::default();
        let mut synced = Synced { log: self.first, offset: FILE_HEADER_BYTES };
        while let Some((chunks, last)) = self.next_group(options, &mut company) {
            if let Err(error) = self.write_group(chunks, &mut synced) {
                self.poison(format!("log: {error}"));
                return;
            }
            self.durable.store(last.0, Ordering::Release);
            self.synced.notify(usize::MAX);
        }
        if self.poison.get().is_none()
            && let Err(error) = self.write_end(options)
        {
            tracing::warn!(%error, "the log could not be ended with its mark; the next start takes this for a crash");
        }
    }

    /// Everything is durable: from now on damage of any record can be distinguished from a torn end.
    fn write_end(&self, options: &Options) -> Result<(), EngineError> {
        let (log, at, last) = {
            let serial = self.serial.lock();
            assert!(serial.pending.is_empty(), "the syncing thread ends when all is written");
            (serial.active.clone(), serial.at, serial.last)
        };
        let mark = record::end_mark(log.log_id(), at, last);
        if at + mark.len() as u64 > options.log_file_bytes {
            return Ok(());
        }
        log.file.write_all_at(&mark, at)?;
        self.sync(&log)
    }

    /// Waits until a sync is due and takes everything that is pending.
    fn next_group(&self, options: &Options, company: &mut Company) -> Option<(VecDeque<Chunk>, Cursor)> {
        let mut serial = self.serial.lock();
        let mut deadline = self.clock.monotonic() + options.sync_interval;
        loop {
            // Set before `wanted` is read: a later request sees it and wakes this thread.
            self.idle.store(true, Ordering::SeqCst);
            let wanted = self.wanted.load(Ordering::SeqCst) > self.durable.load(Ordering::Acquire);
            let due = serial.stopping || wanted || serial.pending_bytes >= PENDING_BYTES_MAX;
            let now = self.clock.monotonic();
            if !serial.pending.is_empty() && (due || now >= deadline) {
                break;
            }
            if serial.stopping {
                return None;
            }
            // Nothing is pending: what comes from here on has the whole interval.
            if now >= deadline {
                deadline = now + options.sync_interval;
            }
            self.work.wait_for(&mut serial, (deadline - now).max(Duration::from_millis(1)));
        }
        self.idle.store(false, Ordering::SeqCst);
        self.gather(&mut serial, options.group_wait_max, company);
        let chunks = std::mem::take(&mut serial.pending);
        serial.pending_bytes = 0;
        Some((chunks, serial.last))
    }

    /// Lets others join the next sync while they keep coming: a sync for every few commits costs more than the wait. A
    /// single waiter is not delayed, except for an occasional test.
    fn gather(&self, serial: &mut MutexGuard<'_, Serial>, patience: Duration, company: &mut Company) {
        let begun = self.clock.monotonic();
        let trying = company.last >= COMPANY_MIN || begun >= company.next_try;
        let mut waiting = self.waiting.load(Ordering::Acquire);
        while trying && !serial.stopping && self.clock.monotonic() < begun + patience {
            // Not idle: new waiters need not wake this thread.
            self.work.wait_for(serial, GATHER_STEP);
            let now_waiting = self.waiting.load(Ordering::Acquire);
            if now_waiting <= waiting + 1 {
                break;
            }
            waiting = now_waiting;
        }
        company.last = self.waiting.load(Ordering::Acquire);
        if trying {
            company.next_try = begun + TRY_INTERVAL;
        }
    }

    fn write_group(&self, chunks: VecDeque<Chunk>, synced: &mut Synced) -> Result<(), EngineError> {
        let mut unsynced: Option<(Arc<LogFile>, Synced)> = None;
        for mut chunk in chunks {
            let log = chunk.log.clone();
            if chunk.offset == 0 {
                // Separately, so that records without a header before them are damage and not a torn write.
                let records = chunk.bytes.split_off(FILE_HEADER_BYTES as usize);
                self.write(&log, &chunk.bytes, 0)?;
                self.sync(&log)?;
                *synced = Synced { log: log.id, offset: FILE_HEADER_BYTES };
                (chunk.offset, chunk.bytes) = (FILE_HEADER_BYTES, records);
            }
            if !chunk.bytes.is_empty() {
                assert_eq!(synced.log, log.id, "a file begins with its header");
                record::claim(&mut chunk.bytes, log.log_id(), chunk.offset, synced.offset);
                self.write(&log, &chunk.bytes, chunk.offset)?;
            }
            let end = Synced { log: log.id, offset: chunk.offset + chunk.bytes.len() as u64 };
            if chunk.last {
                self.sync(&log)?;
                (*synced, unsynced) = (end, None);
            } else {
                unsynced = Some((log, end));
            }
        }
        if let Some((log, end)) = unsynced {
            self.sync(&log)?;
            *synced = end;
        }
        Ok(())
    }

    fn write(&self, log: &LogFile, bytes: &[u8], offset: u64) -> Result<(), EngineError> {
        log.file.write_all_at(bytes, offset)?;
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self, log: &LogFile) -> Result<(), EngineError> {
        log.file.sync_data()?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn stop(&self) {
        self.serial.lock().stopping = true;
        self.work.notify_all();
    }
}

fn create(store: &Store, random: &dyn Random, len: u64) -> Result<LogFile, EngineError> {
    let (id, file) = store.create_log(len).map_err(|error| match error {
        SegmentError::Full => std::io::Error::from(std::io::ErrorKind::StorageFull),
        other => std::io::Error::other(other.to_string()),
    })?;
    debug_assert_eq!(store.segments().iter().find(|info| info.id == id).map(|info| info.kind), Some(Kind::Log));
    Ok(LogFile { id, file, nonce: random.next_u64().max(1) })
}

/// How many waiters shared the last sync, and when to test again whether more would.
#[derive(Debug, Default)]
struct Company {
    last: usize,
    next_try: Duration,
}

/// A waiter for a commit to become durable; counted while it exists.
struct Waiter<'a> {
    log: &'a Log,
    seq: Cursor,
}

impl<'a> Waiter<'a> {
    /// `None`: `seq` is durable already.
    fn join(log: &'a Log, seq: Cursor) -> Option<Waiter<'a>> {
        if log.durable() >= seq {
            return None;
        }
        log.waiting.fetch_add(1, Ordering::AcqRel);
        log.want(seq);
        Some(Waiter { log, seq })
    }

    /// What to wait for before checking again; `None` when the commit is durable.
    fn next_sync(&self) -> Result<Option<EventListener>, EngineError> {
        // Subscribes before it checks: a sync in between wakes it.
        let synced = self.log.synced.listen();
        if self.log.durable() >= self.seq {
            return Ok(None);
        }
        self.log.check_poison()?;
        Ok(Some(synced))
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.log.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
