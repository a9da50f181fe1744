//! The feed of commits that are no longer cached: read from the log files, whose records contain it.
//!
//! Why:        a feed that survives a restart must be on the disk, and the log already is, so nothing is written twice.
//! Invariants: L1 files are followed backwards from the active one by the nonces in their headers, so a foreign file,
//!                or one whose neighbour is gone, is never part of the feed.
//!             L2 the commits of a page are consecutive; if one cannot be read the answer is `TooOld`.
//!             L3 files kept only for the feed are bounded in bytes; the oldest is released first, with the proof that
//!                releasing any log needs.
//! Locking:    leaf locks for the kept files and the marks, never held while a file is read. `opening` is held while a
//!             file is opened, which pins it, and while one is removed: a pinned log cannot be removed.
//! Not here:   cached commits (tail), records (record, replay).

use std::collections::VecDeque;
use std::sync::Arc;

use margay_env::File;
use margay_segment::{Proof, SegmentError, SegmentId, SegmentPin, Store};
use parking_lot::{Mutex, MutexGuard};

use super::log_header::{FILE_HEADER_BYTES, FileHeader};
use super::replay::{self, Stop, segment_failed};
use super::tree::Folded;
use super::{Embedded, Options};
use crate::feed::{Change, FEED_PAGE_BYTES_MAX, FeedError, FeedPage};
use crate::{Cursor, EngineError};

/// Maximum number of log files that one request searches for its cursor.
const FILES_LOOKED_AT_MAX: usize = 64;
/// Positions of recent followers, so that the next page is not searched from the beginning of its file.
const MARKS_MAX: usize = 8;

#[derive(Debug)]
pub(super) struct FeedLogs {
    bytes_max: u64,
    /// Oldest first.
    kept: Mutex<VecDeque<Kept>>,
    marks: Mutex<VecDeque<Mark>>,
    opening: Mutex<()>,
}

#[derive(Debug)]
struct Kept {
    log: SegmentId,
    end: u64,
    pin: SegmentPin,
}

/// End of the record of commit `after` in a file.
#[derive(Clone, Copy, Debug)]
struct Mark {
    after: Cursor,
    log: SegmentId,
    at: u64,
}

/// A log file of the feed.
#[derive(Debug)]
struct FeedFile {
    id: SegmentId,
    header: FileHeader,
    file: Arc<dyn File>,
}

impl FeedLogs {
    /// Pins the files that an earlier process kept, going back from the file `before`.
    pub(super) fn open(store: &Store, before: u64, first_log: u64, options: &Options) -> Result<FeedLogs, EngineError> {
        let logs = FeedLogs {
            bytes_max: options.feed_log_bytes_max,
            kept: Mutex::default(),
            marks: Mutex::default(),
            opening: Mutex::default(),
        };
        if logs.bytes_max == 0 {
            return Ok(logs);
        }
        let (mut expected, mut bytes) = (before, 0);
        for info in store.logs().iter().rev().filter(|info| info.id.0 >= options.first_log_min) {
            let found = open_file(store, info.id)?.filter(|found| expected != 0 && found.header.log.nonce == expected);
            let Some(found) = found else { continue };
            expected = found.header.before;
            if info.id.0 >= first_log {
                // The log still needs it; it is kept when it is folded.
                continue;
            }
            bytes += info.len;
            let Ok(pin) = store.pin_listed(info.id) else { break };
            if bytes > logs.bytes_max {
                break;
            }
            logs.kept.lock().push_front(Kept { log: info.id, end: info.len, pin });
        }
        Ok(logs)
    }

    /// Whether to keep a file of this length that the tree no longer needs.
    pub(super) fn keeps(&self, end: u64) -> bool {
        end > FILE_HEADER_BYTES && end <= self.bytes_max
    }

    /// No file is opened for the feed while this is held.
    pub(super) fn hold_off(&self) -> MutexGuard<'_, ()> {
        self.opening.lock()
    }

    /// Keeps a retired file, and releases the oldest ones.
    pub(super) fn keep(&self, store: &Store, log: SegmentId, end: u64, pin: SegmentPin) -> Result<(), EngineError> {
        let mut kept = self.kept.lock();
        kept.push_back(Kept { log, end, pin });
        let mut bytes: u64 = kept.iter().map(|one| one.end).sum();
        let mut gone = Vec::new();
        while bytes > self.bytes_max
            && let Some(oldest) = kept.pop_front()
        {
            bytes -= oldest.end;
            gone.push(oldest);
        }
        drop(kept);
        for Kept { log, end, pin } in gone {
            let is_empty = replay::is_without_payload(store, log, end)?;
            let _no_reader = self.hold_off();
            drop(pin);
            if is_empty {
                match store.remove_log(log, Proof::NoPayload) {
                    Ok(()) | Err(SegmentError::Missing(_)) => {}
                    Err(error) => return Err(segment_failed(error)),
                }
            }
        }
        Ok(())
    }

    fn mark(&self, after: Cursor) -> Option<Mark> {
        self.marks.lock().iter().find(|mark| mark.after == after).copied()
    }

    fn note(&self, mark: Mark) {
        let mut marks = self.marks.lock();
        marks.retain(|old| old.after != mark.after);
        marks.push_back(mark);
        if marks.len() > MARKS_MAX {
            marks.pop_front();
        }
    }
}

/// The nonce of the newest file that the tree no longer needs, if it ends where the tree ends: after a crash between a
/// fold and the header of the next file. 0 if unknown.
pub(super) fn folded_last(store: &Store, folded: Folded, options: &Options) -> Result<u64, EngineError> {
    let mut newest_first = store.logs().into_iter().rev().filter(|info| info.id.0 >= options.first_log_min);
    let found = newest_first.find(|info| info.id.0 < folded.first_log && options.feed_log_bytes_max > 0);
    let found = found.map_or(Ok(None), |info| open_file(store, info.id))?;
    let Some(FeedFile { header, file, .. }) = found else { return Ok(0) };
    let mut last = Cursor(0);
    replay::read_records(file.as_ref(), &header, |record| {
        last = record.seq;
        true
    })?;
    Ok(if last == folded.seq { header.log.nonce } else { 0 })
}

/// `None` also for a file without content, or one that is removed meanwhile.
fn open_file(store: &Store, id: SegmentId) -> Result<Option<FeedFile>, EngineError> {
    // Files in quarantine are not restored: they are no longer kept.
    let Ok(_pin) = store.pin_listed(id) else { return Ok(None) };
    let file = store.file(id).map_err(segment_failed)?;
    let header = replay::read_header(id, file.as_ref())?;
    Ok(header.map(|header| FeedFile { id, header, file }))
}

impl Embedded {
    pub(super) fn changes_after(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        let durable = self.log.durable();
        if after > durable && after > self.log.serial.lock().last {
            // Of an earlier state of the volume, whose last commits are gone.
            return Err(FeedError::TooOld { oldest: durable });
        }
        match self.tail.since(after, limit, durable) {
            Some(page) => Ok(page),
            None => self.changes_in_logs(after, limit, durable),
        }
    }

    fn changes_in_logs(&self, after: Cursor, limit: usize, durable: Cursor) -> Result<FeedPage, FeedError> {
        let files = self.files_after(after)?;
        let too_old = || FeedError::TooOld { oldest: Cursor(files[0].header.first.0.saturating_sub(1)) };
        let mut page = FeedPage::empty(after);
        let mut bytes = 0;
        for (index, one) in files.iter().enumerate() {
            let mut header = one.header;
            if index == 0
                && let Some(mark) = self.feed_logs.mark(after).filter(|mark| mark.log == one.id)
            {
                header.len = mark.at;
            }
            // A later file determines the end of this one, whatever follows it.
            let end =
                files.get(index + 1).map_or(durable.0, |next| durable.0.min(next.header.first.0.saturating_sub(1)));
            let (mut full, mut broken) = (false, false);
            let mut at = header.len;
            let stop = replay::read_records(one.file.as_ref(), &header, |record| {
                if record.seq <= page.next {
                    at = record.end;
                    return true;
                }
                if record.seq.0 > end {
                    return false;
                }
                let change = Change::of(record.seq, &record.writes);
                bytes += change.bytes();
                full = page.changes.len() == limit || (bytes > FEED_PAGE_BYTES_MAX && !page.changes.is_empty());
                broken = record.seq.0 != page.next.0 + 1;
                if full || broken {
                    return false;
                }
                at = record.end;
                page.push(change);
                true
            });
            let ended: Stop = stop.map_err(FeedError::Failed)?;
            if full || page.next.0 == durable.0 {
                self.feed_logs.note(Mark { after: page.next, log: one.id, at });
                return Ok(page);
            }
            if broken || page.next.0 < end {
                tracing::warn!(log = ?one.id, at, whole = matches!(ended, Stop::Done), "the feed cannot go on in this log file");
                return Err(too_old());
            }
        }
        Ok(page)
    }

    /// The files from the one with the commit after `after` up to the active one (L1).
    fn files_after(&self, after: Cursor) -> Result<Vec<FeedFile>, FeedError> {
        let (active, before, mut oldest) = {
            let serial = self.log.serial.lock();
            (Arc::clone(&serial.active), serial.before, serial.last)
        };
        let mut files: VecDeque<FeedFile> = VecDeque::new();
        // Until the active file's header is written, no commit in it is durable, and the newest durable commit is in
        // the file before.
        let mut expected = before;
        let newest_first = self.store.logs().into_iter().rev().filter(|info| info.id <= active.id);
        for info in newest_first.take(FILES_LOOKED_AT_MAX) {
            let opened = {
                let _opening = self.feed_logs.opening.lock();
                open_file(&self.store, info.id)?
            };
            let Some(found) = opened else { continue };
            let wanted = if info.id == active.id { active.nonce } else { expected };
            if wanted == 0 || found.header.log.nonce != wanted {
                continue;
            }
            expected = found.header.before;
            oldest = Cursor(found.header.first.0.saturating_sub(1));
            files.push_front(found);
            if oldest <= after {
                return Ok(files.into());
            }
            if expected == 0 {
                break;
            }
        }
        Err(FeedError::TooOld { oldest })
    }
}
