//! Opening: the tree as it was folded, plus the log that came after.
//!
//! Why:        after a crash the log's records are all there is of the newest commits.
//! Invariants: Y1 replay stops at the first record that is not whole; what follows was never acknowledged, because
//!                a later file gets its first byte only when the earlier one is synced whole.
//!             Y2 if a later file nevertheless holds records, synced bytes were damaged: the engine refuses to open.
//!             Y3 after a failed sync the files are written again before they are read: what the kernel shows of them
//!                need not be on the disk.
//! Not here:   the records' bytes (record), payload (its CRC is checked, its use is volume's business).

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use margay_env::{Env, File, fault};
use margay_segment::{Proof, SegmentError, SegmentId, SegmentPin, Store};
use parking_lot::RwLock;

use super::checkpoint::{Ended, Folds, Sealed};
use super::commit;
use super::layers::Lower;
use super::log::{FILE_HEADER_BYTES, Log, decode_file_header};
use super::overlay::Overlay;
use super::pace::Pace;
use super::record::{self, Record};
use super::room::Room;
use super::tail::Tail;
use super::tree::{Folded, Tree};
use super::{Embedded, Options};
use crate::{CommitError, EngineError, Seq, Write};

/// Bytes read from a log file at a time; grows when one record is larger.
const READ_BYTES: usize = 4 << 20;

pub(super) fn open(env: Env, store: Arc<Store>, options: Options) -> Result<Embedded, EngineError> {
    let tree = Tree::open(&env, &options.tree_folder, options.tree_cache_bytes, options.after_fault)?;
    let folded = tree.folded()?;
    let lower = Arc::new(Lower { sealed: Vec::new(), tree: Arc::new(tree.snapshot()?), epoch: 0 });
    let mut replay = Replay { overlay: Overlay::default(), last: folded.seq, ended: Vec::new(), unused: Vec::new() };
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
    tracing::info!(commits = replay.last.0 - folded.seq.0, rows = replay.overlay.rows(), "log replayed");
    let log = Log::begin(store.clone(), env.clock.clone(), replay.last, &options)?;
    let next_log = log.serial.lock().active.id;
    let overlay = Arc::new(replay.overlay);
    let lower = Lower { sealed: vec![overlay.clone()], tree: lower.tree.clone(), epoch: 1 };
    let sealed = Sealed { overlay, last: replay.last, next_log, ended: replay.ended };
    Ok(Embedded {
        tail: Tail::new(replay.last, options.tail_commits_max),
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
    })
}

fn segment_failed(error: margay_segment::SegmentError) -> EngineError {
    EngineError::Io(std::io::Error::other(error.to_string()))
}

pub(super) struct Replay {
    pub(super) overlay: Overlay,
    pub(super) last: Seq,
    pub(super) ended: Vec<Ended>,
    /// Files that hold nothing.
    pub(super) unused: Vec<SegmentId>,
}

impl Replay {
    /// Removes files that were made ready and never begun: on a full disk there may be room for the next one only so.
    fn remove_unused(&mut self, store: &Store) -> Result<(), EngineError> {
        for id in self.unused.drain(..) {
            // A header that was lost leaves zeros too, in front of records that were acknowledged.
            if !is_zero(store.file(id).map_err(segment_failed)?.as_ref())? {
                return Err(EngineError::Corrupt(format!("log {:016x} has no header but is not empty", id.0)));
            }
            store.remove_log(id, Proof::NeverBegun).map_err(segment_failed)?;
        }
        Ok(())
    }

    /// Takes the next file of the log, in the order of ids.
    pub(super) fn file(
        &mut self,
        id: SegmentId,
        file: &dyn File,
        pin: Option<SegmentPin>,
        folded: Folded,
        lower: &Arc<Lower>,
    ) -> Result<(), EngineError> {
        let len = file.len()?;
        let mut header = vec![0; FILE_HEADER_BYTES.min(len) as usize];
        file.read_exact_at(&mut header, 0)?;
        header.resize(FILE_HEADER_BYTES as usize, 0);
        if decode_file_header(&header, id.0)?.is_none() {
            self.unused.push(id);
            return Ok(());
        }
        let mut payloads = false;
        let mut end = FILE_HEADER_BYTES;
        let mut failed = None;
        read_records(id, file, |record| {
            if record.seq <= folded.seq || record.seq <= self.last {
                // In the tree already, or a leftover of a life whose end was cut off by a later file.
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
            payloads |= record.payload_len > 0;
            end = record.end;
            failed.is_none()
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        // A killed process leaves records that only the kernel has: they are shown from now on, so they must last.
        file.sync_data()?;
        self.ended.push(Ended { log: id, end, payloads, pin });
        Ok(())
    }
}

/// A record with its place in the file.
struct Placed {
    seq: Seq,
    writes: Vec<Write>,
    payload_offset: u64,
    payload_len: u32,
    payload_crc: u32,
    /// Where the next record begins.
    end: u64,
}

/// Gives each whole record to `visit`, in order, until it says `false` or a record is not whole.
fn read_records(id: SegmentId, file: &dyn File, mut visit: impl FnMut(Placed) -> bool) -> Result<(), EngineError> {
    let len = file.len()?;
    let mut at = FILE_HEADER_BYTES;
    let mut buffer = Vec::new();
    let mut buffer_at = at;
    let mut want = READ_BYTES;
    while at < len {
        let inside = (at - buffer_at) as usize;
        match record::decode(buffer.get(inside..).unwrap_or_default(), id.0, at) {
            Some(Record { seq, writes, payload_offset, payload_len, payload_crc, len }) => {
                at += len as u64;
                want = READ_BYTES;
                if !visit(Placed { seq, writes, payload_offset, payload_len, payload_crc, end: at }) {
                    return Ok(());
                }
            }
            // Perhaps only the buffer ends inside the record.
            None => {
                let left = usize::try_from(len - at).unwrap_or(usize::MAX);
                if buffer_at == at && buffer.len() >= left.min(record::RECORD_BYTES_MAX) {
                    return Ok(());
                }
                if buffer_at == at && !buffer.is_empty() {
                    // A zeroed or broken header is not worth a larger buffer.
                    if record::needed(&buffer).is_none_or(|needed| needed <= buffer.len() || needed > left) {
                        return Ok(());
                    }
                    want = want.max(record::needed(&buffer).unwrap_or(READ_BYTES));
                }
                buffer.resize(want.min(left), 0);
                file.read_exact_at(&mut buffer, at)?;
                buffer_at = at;
            }
        }
    }
    Ok(())
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

/// The records of a log can be read up to `end`, and none of them came with payload.
pub(super) fn is_without_payload(store: &Store, id: SegmentId, end: u64) -> Result<bool, EngineError> {
    let file = match store.file(id) {
        Ok(file) => file,
        Err(SegmentError::Missing(_)) => return Ok(true),
        Err(error) => return Err(segment_failed(error)),
    };
    let (mut at, mut payloads) = (FILE_HEADER_BYTES, false);
    read_records(id, file.as_ref(), |record| {
        at = record.end;
        payloads |= record.payload_len > 0;
        at < end
    })?;
    Ok(at == end && !payloads)
}

/// A payload in a log segment, with the writes that were committed together with it.
#[derive(Debug)]
pub struct LoggedPayload<'a> {
    pub offset: u64,
    pub len: u64,
    pub crc: u32,
    pub writes: &'a [Write],
}

/// Gives each payload of a log segment to `visit`, in order.
pub fn walk_log(store: &Store, id: SegmentId, visit: &mut dyn FnMut(LoggedPayload<'_>)) -> Result<(), EngineError> {
    let file = store.file(id).map_err(segment_failed)?;
    read_records(id, file.as_ref(), |record| {
        if record.payload_len > 0 {
            visit(LoggedPayload {
                offset: record.payload_offset,
                len: record.payload_len.into(),
                crc: record.payload_crc,
                writes: &record.writes,
            });
        }
        true
    })
}
