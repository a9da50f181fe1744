//! Cache of the rows that files have besides their entries: hints for the prefetch.
//!
//! Why:        those rows (documents, long headers, part sizes) are found by the file's number, which is known only
//!             with its entry; without a hint they would be one more engine call.
//! Invariants: B1 a hint is only a hint: a wrong one costs the rows of another number, a missing one a call.
//!             B2 at most `HINTS_MAX` files have hints, and only those that have such rows. Uploads under way have one too.
//! Locking:    a leaf lock, for one operation.
//! Not here:   which hints a request uses (ahead).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use margay_meta::Ask;
use margay_rows::record::{Data, FileEntry};
use margay_rows::{Ino, key};
use parking_lot::RwLock;

/// The xattr with a file's POSIX access list, which a new object inherits.
pub(crate) const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// Capacity (about 3 MiB); when exceeded, the cache is cleared.
const HINTS_MAX: usize = 65_536;
/// Rows of one kind that are prefetched; more are read when they are needed.
const ROWS_AHEAD_MAX: usize = 64;
/// Extent rows that are prefetched: about 100 KiB. The limit of a read is twice as many rows.
const EXTENTS_AHEAD_MAX: usize = 2048;

const DOCUMENTS: u8 = 1;
const HEADERS: u8 = 2;
const PARTS: u8 = 4;
const XATTRS: u8 = 8;
/// The entry refers to an inode record.
const RECORD: u8 = 16;
const EXTENTS: u8 = 32;
/// The row is that of an upload.
const UPLOAD: u8 = 64;

/// What the rows of a file are needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsFor {
    /// What is known of it.
    Head,
    /// Its bytes too.
    Get,
    /// Another one gets all of them.
    Copy,
    /// It is replaced, moved or removed.
    Change,
}

/// A file's number, and the kinds of rows that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsBeside {
    ino: Ino,
    kinds: u8,
}

#[derive(Debug, Default)]
pub(crate) struct EntryHints {
    /// False while there is no hint, so that volumes without such files do not hash and lock.
    any: AtomicBool,
    /// By the hash of the entry's key.
    hints: RwLock<HashMap<u64, RowsBeside>>,
}

impl EntryHints {
    /// Records what a file was last seen with. `linked`: its entry refers to an inode record.
    pub(crate) fn note(&self, entry_key: &[u8], file: &FileEntry, linked: bool) {
        let bit = |set: bool, bit| if set { bit } else { 0 };
        let kinds = bit(!file.documents.is_empty(), DOCUMENTS)
            | bit(file.header_rows, HEADERS)
            | bit(file.part_rows, PARTS)
            | bit(file.xattrs, XATTRS)
            | bit(file.data == Data::Rows, EXTENTS)
            | bit(linked, RECORD);
        self.note_rows(entry_key, RowsBeside { ino: file.ino, kinds });
    }

    /// Records the number of an upload.
    pub(crate) fn note_upload(&self, row_key: &[u8], ino: Ino) {
        self.note_rows(row_key, RowsBeside { ino, kinds: UPLOAD });
    }

    /// The upload with this row has ended.
    pub(crate) fn forget_upload(&self, row_key: &[u8]) {
        self.note_rows(row_key, RowsBeside { ino: Ino(0), kinds: 0 });
    }

    /// The number of the upload that probably has this row.
    pub(crate) fn upload(&self, row_key: &[u8]) -> Option<Ino> {
        let RowsBeside { ino, kinds } = self.hints.read().get(&hash(row_key)).copied()?;
        (kinds & UPLOAD != 0).then_some(ino)
    }

    fn note_rows(&self, entry_key: &[u8], hint: RowsBeside) {
        let kinds = hint.kinds;
        if kinds == 0 && !self.any.load(Ordering::Acquire) {
            return;
        }
        let at = hash(entry_key);
        let known = self.hints.read().get(&at).copied();
        if kinds == 0 && known.is_some() {
            self.hints.write().remove(&at);
        } else if kinds != 0 && known != Some(hint) {
            let mut hints = self.hints.write();
            if hints.len() >= HINTS_MAX {
                hints.clear();
            }
            hints.insert(at, hint);
            self.any.store(true, Ordering::Release);
        }
    }

    /// The rows that the file of an entry probably has.
    pub(crate) fn asks(&self, entry_key: &[u8], rows_for: RowsFor, asks: &mut Vec<Ask>) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let Some(RowsBeside { ino, kinds }) = self.hints.read().get(&hash(entry_key)).copied() else { return };
        let has = |kind| kinds & kind != 0;
        let changes = rows_for == RowsFor::Change;
        if has(RECORD) {
            asks.push(Ask::Get { key: key::inode(ino) });
        }
        if has(PARTS) {
            asks.push(Ask::Get { key: key::part_sizes(ino) });
        }
        if has(XATTRS) && changes {
            asks.push(Ask::Get { key: key::xattr(ino, ACCESS_LIST) });
        }
        let ranges = [
            (has(DOCUMENTS), key::documents(ino), ROWS_AHEAD_MAX),
            (has(HEADERS), key::headers(ino), ROWS_AHEAD_MAX),
            (has(PARTS) && (changes || rows_for == RowsFor::Copy), key::part_rows(ino), ROWS_AHEAD_MAX),
            (has(XATTRS) && changes, key::xattrs(ino), ROWS_AHEAD_MAX),
            // The last one, so that it does not use up what the others may have of a read.
            (has(EXTENTS) && rows_for != RowsFor::Head, extents_from_the_start(ino), EXTENTS_AHEAD_MAX),
        ];
        asks.extend(ranges.into_iter().filter(|(asked, ..)| *asked).map(|(_, (start, end), rows_max)| Ask::Scan {
            start,
            end,
            rows_max,
            keys_only: false,
        }));
    }
}

/// As a reader of all of them asks.
fn extents_from_the_start(ino: Ino) -> key::Range {
    (key::extent(ino, 0), key::extents(ino).1)
}

fn hash(entry_key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(entry_key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ETag, Headers};
    use margay_env::Timestamp;

    #[test]
    fn a_hint_follows_the_file_and_the_cache_stays_bounded() {
        let hints = EntryHints::default();
        let plain = FileEntry::new(Ino(7), 0, ETag::default(), Timestamp(0), Data::Inline(Vec::new()), Headers::new());
        let asks = |key: &[u8], changes| {
            let mut asks = Vec::new();
            hints.asks(key, if changes { RowsFor::Change } else { RowsFor::Head }, &mut asks);
            asks.len()
        };
        hints.note(b"plain", &plain, false);
        assert!(!hints.any.load(Ordering::Acquire) && asks(b"plain", true) == 0);
        let parts = FileEntry { part_rows: true, ..plain.clone() };
        hints.note(b"parts", &parts, true);
        assert_eq!((asks(b"parts", false), asks(b"parts", true), asks(b"plain", true)), (2, 3, 0));
        hints.note(b"parts", &plain, false);
        assert_eq!(asks(b"parts", true), 0);
        let (mut rows, of_upload) = (Vec::new(), b"upload");
        hints.note(b"rows", &FileEntry { data: Data::Rows, ..plain.clone() }, false);
        for rows_for in [RowsFor::Head, RowsFor::Get, RowsFor::Copy, RowsFor::Change] {
            hints.asks(b"rows", rows_for, &mut rows);
        }
        assert_eq!(rows.len(), 3, "all but HEAD");
        hints.note_upload(of_upload, Ino(9));
        assert_eq!((hints.upload(of_upload), hints.upload(b"rows")), (Some(Ino(9)), None));
        hints.forget_upload(of_upload);
        assert_eq!(hints.upload(of_upload), None);
        for number in 0..=HINTS_MAX {
            hints.note(&number.to_be_bytes(), &parts, false);
        }
        assert!(hints.hints.read().len() <= HINTS_MAX && asks(&HINTS_MAX.to_be_bytes(), false) == 1);
    }
}
