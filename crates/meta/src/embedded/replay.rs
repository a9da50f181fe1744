//! Opening: reads the folded tree and replays the later log.
//!
//! Why:        after a crash the newest commits exist only in the log.
//! Invariants: Y1 replay stops at the first incomplete record, unless there is proof that it was durable; without
//!                proof, it and all later records were never acknowledged.
//!             Y2 a later record that says so, or a later file that continues after it, proves damage of synced bytes:
//!                the engine refuses to open, and names the location.
//!             Y3 after a failed sync the files are rewritten before they are read, because the page cache need not
//!                match the disk.
//! Not here:   the bytes of records (record), the use of payload (volume; its CRC is checked here).

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use margay_env::{Env, File, fault};
use margay_segment::{Proof, SegmentCopy, SegmentError, SegmentId, SegmentPin, Store};
use parking_lot::RwLock;

use super::checkpoint::{Ended, Folds, Sealed};
use super::commit;
use super::feed_logs::{self, FeedLogs};
use super::layers::Lower;
use super::log::Log;
use super::log_header::{FILE_HEADER_BYTES, FileHeader, decode_file_header};
use super::overlay::Overlay;
use super::pace::Pace;
use super::record::{self, Record};
use super::room::Room;
use super::tail::Tail;
use super::tree::{Folded, Tree};
use super::{Calls, Embedded, Options};
use crate::{CommitError, Cursor, EngineError, Write};

/// Bytes read from a log file at a time; more if one record is larger.
const READ_BYTES: usize = 4 << 20;
/// Step of the search for proof; steps of zeros are skipped.
const PROOF_STEP_BYTES: usize = 4096;

pub(super) fn open(env: Env, store: Arc<Store>, options: Options) -> Result<Embedded, EngineError> {
    let tree = Tree::open(&env, &options.tree_folder, options.tree_cache_bytes, options.after_fault)?;
    let folded = tree.folded()?;
    let lower = Arc::new(Lower { sealed: Vec::new(), tree: Arc::new(tree.snapshot()?), epoch: 0 });
    let mut replay =
        Replay { overlay: Overlay::default(), last: folded.seq, before: 0, ended: Vec::new(), unused: Vec::new() };
    for info in store.logs() {
        if info.id.0 < folded.first_log.max(options.first_log_min) {
            continue;
        }
        let file = store.file(info.id).map_err(segment_failed)?;
        let pin = Some(store.pin(info.id).map_err(segment_failed)?);
        if options.after_fault {
            tracing::warn!(log = info.id.0, bytes = info.len, "written again, since a sync had failed");
            fault::rewrite(file.as_ref())?;
        }
        replay.file(info.id, file.as_ref(), pin, folded, &lower)?;
    }
    replay.remove_unused(&store)?;
    if replay.before == 0 {
        replay.before = feed_logs::folded_last(&store, folded, &options)?;
    }
    tracing::info!(commits = replay.last.0 - folded.seq.0, rows = replay.overlay.rows(), "log replayed");
    let log = Log::begin(store.clone(), &env, (folded.seq, replay.last), replay.before, &options)?;
    let next_log = log.serial.lock().active.id;
    let feed_logs = FeedLogs::open(&store, replay.before, folded.first_log, &options)?;
    let overlay = Arc::new(replay.overlay);
    let lower = Lower { sealed: vec![overlay.clone()], tree: lower.tree.clone(), epoch: 1 };
    let sealed = Sealed { overlay, last: replay.last, next_log, ended: replay.ended };
    Ok(Embedded {
        tail: Tail::new(replay.last, options.tail_commits_max, options.tail_bytes_max),
        feed_logs,
        env,
        options,
        store,
        tree,
        log,
        active: RwLock::new(Overlay::default()),
        lower: ArcSwap::from_pointee(lower),
        newest_deletion: AtomicU64::new(0),
        folds: Folds::new(Some(sealed)),
        pace: Pace::new(),
        room: Room::default(),
        calls: Calls::default(),
    })
}

pub(super) fn segment_failed(error: margay_segment::SegmentError) -> EngineError {
    EngineError::Io(std::io::Error::other(error.to_string()))
}

pub(super) struct Replay {
    pub(super) overlay: Overlay,
    pub(super) last: Cursor,
    /// The nonce of the newest file with records, as its successor's header names it.
    pub(super) before: u64,
    pub(super) ended: Vec<Ended>,
    /// Files without content.
    pub(super) unused: Vec<SegmentId>,
}

impl Replay {
    /// Removes files that were prepared and never used: on a full disk the next one may fit only then.
    fn remove_unused(&mut self, store: &Store) -> Result<(), EngineError> {
        for id in self.unused.drain(..) {
            // The header is durable before the first record is written, so records without a header are damage.
            if !is_zero(store.file(id).map_err(segment_failed)?.as_ref())? {
                return Err(EngineError::Corrupt(format!(
                    "segments/{:016x}.log has no header but is not empty: it is damaged, restore it from a backup",
                    id.0
                )));
            }
            store.remove_log(id, Proof::NeverBegun).map_err(segment_failed)?;
        }
        Ok(())
    }

    /// Verifies a header's statements about earlier files and the tree.
    fn check_header(&self, id: SegmentId, header: &FileHeader, folded: Folded) -> Result<(), EngineError> {
        if header.folded > folded.seq {
            return Err(EngineError::Corrupt(format!(
                "the tree (tree/rows.redb) ends at commit {}, but held commit {} when log {:016x} was begun: \
                 restore tree and log of one time from a backup",
                folded.seq.0, header.folded.0, id.0
            )));
        }
        if header.first.0 > self.last.0 + 1 {
            return Err(EngineError::Corrupt(format!(
                "log {:016x} goes on at commit {} but the log before it ends at {}: a log file before it is damaged \
                 or missing; restore it from a backup",
                id.0, header.first.0, self.last.0
            )));
        }
        Ok(())
    }

    /// Replays the next file of the log, in the order of ids.
    pub(super) fn file(
        &mut self,
        id: SegmentId,
        file: &dyn File,
        pin: Option<SegmentPin>,
        folded: Folded,
        lower: &Arc<Lower>,
    ) -> Result<(), EngineError> {
        let Some(header) = read_header(id, file)? else {
            self.unused.push(id);
            return Ok(());
        };
        self.check_header(id, &header, folded)?;
        let mut payloads = false;
        let mut end = header.len;
        let mut failed = None;
        let mut has_records = false;
        let stop = read_records(file, &header, |record| {
            if record.seq <= folded.seq || record.seq <= self.last {
                // Already in the tree, or left by an earlier process whose end a later file cut off.
                has_records |= record.seq <= folded.seq;
                return record.seq <= folded.seq;
            }
            if record.seq.0 != self.last.0 + 1 {
                failed = Some(EngineError::Corrupt(format!(
                    "log {:016x} goes on at commit {} but the log before it ends at {}",
                    id.0, record.seq.0, self.last.0
                )));
                return false;
            }
            match commit::replay(&mut self.overlay, lower, &record.writes, record.seq) {
                Ok(()) => {}
                Err(CommitError::Failed(error)) => failed = Some(error),
                Err(other) => failed = Some(EngineError::Corrupt(format!("log {:016x}: {other}", id.0))),
            }
            self.last = record.seq;
            has_records = true;
            payloads |= record.payload_len > 0;
            end = record.end;
            failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Stop::Broken { at } = stop
            && let Some(proof) = find_proof(file, &header, at)?
        {
            return Err(damaged_record(id, at, self.last, &proof));
        }
        // A killed process leaves records that are only in the page cache. They become visible now, so they must be
        // durable.
        file.sync_data()?;
        if has_records {
            self.before = header.log.nonce;
        } else if self.before == 0 {
            self.before = header.before;
        }
        self.ended.push(Ended { log: id, end, payloads, pin });
        Ok(())
    }
}

/// The error for damaged records, from byte `at` on, that were durable.
fn damaged_record(id: SegmentId, at: u64, last: Cursor, proof: &str) -> EngineError {
    EngineError::Corrupt(format!(
        "segments/{:016x}.log is damaged at byte {at}: commits after {} that were acknowledged cannot be read ({proof}). \
         Restore this file from a backup; to give those commits up for good, cut it there: truncate -s {at}",
        id.0, last.0
    ))
}

/// A record with its location in the file.
pub(super) struct Placed {
    pub(super) seq: Cursor,
    pub(super) writes: Vec<Write>,
    payload_len: u32,
    /// Offset of the next record.
    pub(super) end: u64,
}

/// Reason for the end of reading a file.
pub(super) enum Stop {
    /// After the last record of a clean stop, or the visitor stopped.
    Done,
    /// No complete record begins here: the end of the written part, or damage.
    Broken { at: u64 },
}

/// Passes each complete record to `visit`, in order, until it returns `false` or a record is incomplete.
pub(super) fn read_records(
    file: &dyn File,
    header: &FileHeader,
    mut visit: impl FnMut(Placed) -> bool,
) -> Result<Stop, EngineError> {
    let len = file.len()?;
    let mut at = header.len;
    let mut buffer = Vec::new();
    let mut buffer_at = at;
    let mut want = READ_BYTES;
    while at < len {
        let inside = (at - buffer_at) as usize;
        match record::decode(buffer.get(inside..).unwrap_or_default(), header.log, at) {
            Some(Record { is_end: true, .. }) => return Ok(Stop::Done),
            Some(Record { seq, writes, payload_len, len, .. }) => {
                at += len as u64;
                want = READ_BYTES;
                if !visit(Placed { seq, writes, payload_len, end: at }) {
                    return Ok(Stop::Done);
                }
            }
            // The record may continue after the buffer.
            None => {
                let left = usize::try_from(len - at).unwrap_or(usize::MAX);
                if buffer_at == at && buffer.len() >= left.min(record::RECORD_BYTES_MAX) {
                    return Ok(Stop::Broken { at });
                }
                if buffer_at == at && !buffer.is_empty() {
                    // A zeroed or invalid header does not justify a larger buffer.
                    if record::needed(&buffer).is_none_or(|needed| needed <= buffer.len() || needed > left) {
                        return Ok(Stop::Broken { at });
                    }
                    want = want.max(record::needed(&buffer).unwrap_or(READ_BYTES));
                }
                buffer.resize(want.min(left), 0);
                file.read_exact_at(&mut buffer, at)?;
                buffer_at = at;
            }
        }
    }
    Ok(Stop::Broken { at })
}

/// Searches after byte `broken` for a record that says that the file was durable beyond it; the result is text.
fn find_proof(file: &dyn File, header: &FileHeader, broken: u64) -> Result<Option<String>, EngineError> {
    let len = file.len()?;
    let zeros = vec![0; PROOF_STEP_BYTES];
    let mut buffer = vec![0; READ_BYTES];
    let mut at = broken + record::ALIGN_BYTES as u64;
    while at < len {
        let read = file.read_at(&mut buffer, at)?;
        for (step, bytes) in buffer[..read].chunks(PROOF_STEP_BYTES).enumerate() {
            if *bytes == zeros[..bytes.len()] {
                continue;
            }
            let step_at = at + (step * PROOF_STEP_BYTES) as u64;
            for inside in (0..bytes.len()).step_by(record::ALIGN_BYTES) {
                let offset = step_at + inside as u64;
                if !record::may_claim(&buffer[step * PROOF_STEP_BYTES + inside..read], offset, broken) {
                    continue;
                }
                let left = usize::try_from(len - offset).unwrap_or(usize::MAX);
                let mut whole = vec![0; left.min(record::RECORD_BYTES_MAX)];
                file.read_exact_at(&mut whole, offset)?;
                if let Some(found) = record::decode(&whole, header.log, offset) {
                    return Ok(Some(format!(
                        "the record at byte {offset} says that the file was durable up to byte {}",
                        found.durable
                    )));
                }
            }
        }
        if read <= PROOF_STEP_BYTES {
            break;
        }
        // The last step is read again, because the header of a record may have been cut off.
        at += (read - PROOF_STEP_BYTES).next_multiple_of(record::ALIGN_BYTES) as u64;
    }
    Ok(None)
}

/// Reads the durable part of the log files that the tree does not have yet; returns a description of damage. Returns
/// `None` also when a fold releases files meanwhile.
pub(super) fn check_logs(shared: &Embedded) -> Result<Option<String>, EngineError> {
    let (folded, durable) = (shared.tree.folded()?, shared.log.durable());
    let (mut last, mut stopped) = (folded.seq, "a log file is missing".to_owned());
    for info in shared.store.logs().iter().filter(|info| info.id.0 >= folded.first_log) {
        let file = match shared.store.source(info.id) {
            Ok(SegmentCopy { file, .. }) => file,
            // Removed since the listing, after a fold, or lost: the commits that were read tell which.
            Err(SegmentError::Missing(_)) => continue,
            Err(SegmentError::Io(error)) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Ok(Some(format!("segments/{:016x}.log cannot be opened: {error}", info.id.0))),
        };
        let header = match read_header(info.id, file.as_ref()) {
            Ok(Some(header)) => header,
            Ok(None) => continue,
            Err(error) => return Ok(Some(error.to_string())),
        };
        // Commits between them are missing: their file is lost, or it was still being written during this read.
        if header.first.0 > last.0 + 1 {
            break;
        }
        let read = read_records(file.as_ref(), &header, |record| {
            last = last.max(record.seq);
            true
        });
        let stop = match read {
            // A fold truncated the file meanwhile.
            Err(_) if shared.tree.folded()? != folded => return Ok(None),
            read => read?,
        };
        if let Stop::Broken { at } = stop {
            stopped = format!("segments/{:016x}.log is damaged at byte {at}, after commit {}", info.id.0, last.0);
        }
    }
    Ok((last < durable && shared.tree.folded()? == folded).then_some(stopped))
}

/// `None` if nothing was written to the file.
pub(super) fn read_header(id: SegmentId, file: &dyn File) -> Result<Option<FileHeader>, EngineError> {
    let len = file.len()?;
    let mut header = vec![0; FILE_HEADER_BYTES.min(len) as usize];
    file.read_exact_at(&mut header, 0)?;
    header.resize(FILE_HEADER_BYTES as usize, 0);
    decode_file_header(&header, id.0)
}

fn is_zero(file: &dyn File) -> Result<bool, EngineError> {
    let len = file.len()?;
    let mut buffer = vec![0; READ_BYTES.min(usize::try_from(len).unwrap_or(READ_BYTES))];
    let mut at = 0;
    while at < len {
        let some = &mut buffer[..usize::try_from(len - at).map_or(READ_BYTES, |left| left.min(READ_BYTES))];
        file.read_exact_at(some, at)?;
        if some.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += some.len() as u64;
    }
    Ok(true)
}

/// Whether the records of a log are readable up to `end` and none of them has payload.
pub(super) fn is_without_payload(store: &Store, id: SegmentId, end: u64) -> Result<bool, EngineError> {
    let file = match store.file(id) {
        Ok(file) => file,
        Err(SegmentError::Missing(_)) => return Ok(true),
        Err(error) => return Err(segment_failed(error)),
    };
    let Some(header) = read_header(id, file.as_ref())? else { return Ok(false) };
    let (mut at, mut payloads) = (header.len, false);
    read_records(file.as_ref(), &header, |record| {
        at = record.end;
        payloads |= record.payload_len > 0;
        at < end
    })?;
    Ok(at == end && !payloads)
}
