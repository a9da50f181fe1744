//! The long-term store of rows: a redb B-tree behind the few calls that the engine needs.
//!
//! Why:        a B-tree has no cost for deleted rows; the narrow interface makes it replaceable.
//! Layout:     `<data>/tree/rows.redb`, tables `rows` and `state`, and `rows.sums` beside it: docs/format/log.md.
//! Invariants: T1 a file gets the tree's own name once its first transaction is durable, so it is complete.
//!             T2 unreadable data is an error that names the row or the keys around it, never an absence.
//! Durability: `fold` is one durable redb transaction; a crash leaves the tree before or after it. Quick repair keeps
//!             the reopening short.
//! Locking:    `folding` is held by the one fold (the checkpointer) and at the begin of a walk; snapshots need no lock.
//! Not here:   when to fold (checkpoint), the newest rows (overlay, layers), checksums of pages (page_file).

use std::fmt;
use std::io;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use margay_env::{Env, File, OpenMode, fault};
use parking_lot::Mutex;
use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable, TableDefinition};

use super::fold;
use super::full_disk::FullDisk;
use super::overlay::Overlay;
use super::page_file::{Backend, PageFile, head_failed};
use super::page_sums::PageSums;
use super::tree_walk::{Head, Walk, key_text};
use crate::{Checked, Cursor, EngineError, RowVersion};

pub(super) const ROWS_NAME: &str = "rows";
const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new(ROWS_NAME);
const STATE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("state");
const FOLDED: &str = "folded";
const FILE_NAME: &str = "rows.redb";
/// Name of the file until it is complete and durable.
const UNFINISHED_NAME: &str = "rows.redb.new";
/// Name of the complete file while its own name is created again.
const MOVED_NAME: &str = "rows.redb.moved";
/// Version bytes before each value.
const VERSION_BYTES: usize = 8;
/// Flag in the version of a row that is followed by a checksum.
const SUMMED: u64 = 1 << 63;
/// Bytes before the value of such a row.
const SUMMED_BYTES: usize = VERSION_BYTES + 4;
/// Rows examined on either side of damage to find the keys around it.
const NEIGHBOURS_MAX: usize = 4096;

/// Bytes of a row whose checksum is computed in one call: each call costs as much as a row of this size.
const SHORT_BYTES: usize = 512;

/// Aligned as the checksum is computed.
#[repr(align(8))]
struct Short([u8; SHORT_BYTES]);

fn row_sum(key: &[u8], version: u64, value: &[u8]) -> u32 {
    let (head, value_at) = (VERSION_BYTES + 4, VERSION_BYTES + 4 + key.len());
    let len = value_at + value.len();
    if len <= SHORT_BYTES {
        let mut short = Short([0; SHORT_BYTES]);
        short.0[..VERSION_BYTES].copy_from_slice(&version.to_le_bytes());
        short.0[VERSION_BYTES..head].copy_from_slice(&(key.len() as u32).to_le_bytes());
        short.0[head..value_at].copy_from_slice(key);
        short.0[value_at..len].copy_from_slice(value);
        return crc32c::crc32c(&short.0[..len]);
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), &(key.len() as u32).to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, key), value)
}

/// Offset of the value in a stored row; `None` if the row was not stored under this key.
fn value_at(key: &[u8], stored: &[u8]) -> Option<usize> {
    let version = u64::from_le_bytes(stored.get(..VERSION_BYTES)?.try_into().ok()?);
    if version & SUMMED == 0 {
        return Some(VERSION_BYTES);
    }
    let sum = u32::from_le_bytes(stored.get(VERSION_BYTES..SUMMED_BYTES)?.try_into().ok()?);
    (sum == row_sum(key, version, &stored[SUMMED_BYTES..])).then_some(SUMMED_BYTES)
}

pub(super) fn row_is_right(key: &[u8], stored: &[u8]) -> bool {
    value_at(key, stored).is_some()
}

/// Encodes a row: version, checksum, value.
pub(super) fn store_row(stored: &mut Vec<u8>, key: &[u8], version: RowVersion, value: &[u8]) {
    assert!(version.bits() & SUMMED == 0, "there are fewer commits than that");
    let version = version.bits() | SUMMED;
    stored.clear();
    stored.extend_from_slice(&version.to_le_bytes());
    stored.extend_from_slice(&row_sum(key, version, value).to_le_bytes());
    stored.extend_from_slice(value);
}

/// Position up to which the log is in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// The newest commit in the tree.
    pub(super) seq: Cursor,
    /// The first log segment that may contain newer commits; 0 if there was none.
    pub(super) first_log: u64,
}

pub(super) struct Tree {
    /// `None` only during drop.
    database: Option<redb::Database>,
    pages: Arc<PageFile>,
    folding: Mutex<()>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tree")
    }
}

/// The rows as of one fold; cheap to share. It pins the pages that later folds replace.
pub(super) struct Snapshot {
    rows: ReadOnlyTable<&'static [u8], &'static [u8]>,
    pages: Arc<PageFile>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Snapshot")
    }
}

/// A row, and whether no row is between one key and it, and between it and another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    pub(super) version: RowVersion,
    pub(super) clear_from: bool,
    pub(super) clear_to: bool,
}

/// The version of a stored row; `None` if the row was not stored under this key.
fn version_of(key: &[u8], stored: &[u8]) -> Option<RowVersion> {
    value_at(key, stored)?;
    let bytes = stored[..VERSION_BYTES].try_into().expect("checked with the row");
    Some(RowVersion::from_bits(u64::from_le_bytes(bytes) & !SUMMED))
}

/// A row's bytes inside a page of the tree.
pub(super) struct TreeRow {
    stored: redb::AccessGuard<'static, &'static [u8]>,
    value_at: usize,
}

impl TreeRow {
    pub(super) fn value(&self) -> &[u8] {
        &self.stored.value()[self.value_at..]
    }
    pub(super) fn version(&self) -> RowVersion {
        let bytes = self.stored.value()[..VERSION_BYTES].try_into().expect("checked when the row was read");
        RowVersion::from_bits(u64::from_le_bytes(bytes) & !SUMMED)
    }
}

impl fmt::Debug for TreeRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TreeRow({:?})", self.version())
    }
}

pub(super) fn storage_error(error: impl Into<redb::Error>) -> EngineError {
    match error.into() {
        redb::Error::Io(error) => EngineError::Io(error),
        redb::Error::Corrupted(what) => EngineError::Corrupt(what),
        other => EngineError::Io(io::Error::other(other.to_string())),
    }
}

fn checked(key: &[u8], stored: redb::AccessGuard<'static, &'static [u8]>) -> Result<TreeRow, EngineError> {
    match value_at(key, stored.value()) {
        Some(value_at) => Ok(TreeRow { stored, value_at }),
        None => Err(EngineError::Corrupt(format!("the row {} does not match its checksum", key_text(key)))),
    }
}

/// The error when redb panics on a stand-in page.
fn stopped(pages: &PageFile) -> EngineError {
    // redb's memory may be half changed.
    pages.freeze();
    if let Err(failed) = pages.check_failed() {
        return failed;
    }
    let text = format!("the tree does not decode ({})", damage_text(pages));
    match pages.only_refused() {
        true => EngineError::Io(io::Error::other(text)),
        false => EngineError::Corrupt(text),
    }
}

fn damage_text(pages: &PageFile) -> String {
    pages.damage().1.unwrap_or_else(|| "no page was found damaged by its checksum".into())
}

/// Adds the damaged locations that may have caused an error of redb.
fn explained(pages: &PageFile, what: &str, error: impl Into<redb::Error>) -> EngineError {
    match storage_error(error) {
        EngineError::Corrupt(why) => {
            let text = format!("{what} cannot be read: {}", pages.damage().1.unwrap_or(why));
            match pages.only_refused() {
                true => EngineError::Io(io::Error::other(text)),
                false => EngineError::Corrupt(text),
            }
        }
        other => other,
    }
}

impl Tree {
    /// Opens or creates the tree in `folder`; its page cache uses at most `cache_bytes`. `after_fault`: see `Options`.
    pub(super) fn open(env: &Env, folder: &Path, cache_bytes: usize, after_fault: bool) -> Result<Tree, EngineError> {
        env.disk.create_dir_all(folder)?;
        let (path, moved) = (folder.join(FILE_NAME), folder.join(MOVED_NAME));
        if after_fault && env.disk.exists(&path)? {
            tracing::warn!(path = %path.display(), "written again, since a sync had failed");
            fault::rewrite(&*env.disk.open(&path, OpenMode::ReadWrite)?)?;
            // The same for the name: the next sync of the folder writes only a newly created name.
            env.disk.rename(&path, &moved)?;
            env.disk.sync_dir(folder)?;
        }
        if env.disk.exists(&moved)? {
            env.disk.rename(&moved, &path)?;
        }
        let tree = if env.disk.exists(&path)? {
            let sums = match PageSums::open(env, folder, after_fault)? {
                Some(sums) => sums,
                None => PageSums::make(env, folder, false)?,
            };
            Tree::attach(env.disk.open(&path, OpenMode::ReadWrite)?, sums, cache_bytes)?
        } else {
            let sums = PageSums::make(env, folder, true)?;
            let tree = Tree::make(env, &folder.join(UNFINISHED_NAME), sums, cache_bytes)?;
            env.disk.rename(&folder.join(UNFINISHED_NAME), &path)?;
            tree
        };
        // Also for an existing name: a killed process may not have reached this sync.
        env.disk.sync_dir(folder)?;
        Ok(tree)
    }

    /// Creates a complete empty tree under another name: an incomplete file could not be opened again.
    fn make(env: &Env, unfinished: &Path, sums: PageSums, cache_bytes: usize) -> Result<Tree, EngineError> {
        if env.disk.exists(unfinished)? {
            env.disk.remove(unfinished)?;
        }
        let tree = Tree::attach(env.disk.open(unfinished, OpenMode::CreateNew)?, sums, cache_bytes)?;
        let mut transaction = tree.database().begin_write().map_err(storage_error)?;
        transaction.set_quick_repair(true);
        transaction.open_table(ROWS).map_err(storage_error)?;
        transaction.open_table(STATE).map_err(storage_error)?;
        transaction.commit().map_err(storage_error)?;
        tree.pages.file().sync_data()?;
        tree.pages.settle()?;
        Ok(tree)
    }

    fn attach(file: Arc<dyn File>, sums: PageSums, cache_bytes: usize) -> Result<Tree, EngineError> {
        let pages = Arc::new(PageFile::new(file, sums));
        pages.adopt_head()?;
        let open = || redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(Backend(pages.clone()));
        let database = match catch_unwind(AssertUnwindSafe(open)) {
            Ok(opened) => opened.map_err(|error| explained(&pages, "the tree", error))?,
            Err(_) => return Err(stopped(&pages)),
        };
        // The head may be that of a process that was killed before its sync, and only the page cache may have it.
        pages.file().sync_data()?;
        pages.settle()?;
        pages.opened();
        Ok(Tree { database: Some(database), pages, folding: Mutex::new(()) })
    }

    fn database(&self) -> &redb::Database {
        self.database.as_ref().expect("the tree is in use")
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, EngineError> {
        let transaction = self.database().begin_read().map_err(storage_error)?;
        match transaction.open_table(ROWS) {
            Ok(rows) => Ok(Snapshot { rows, pages: self.pages.clone() }),
            Err(error) => Err(explained(&self.pages, "the list of tables", error)),
        }
    }

    pub(super) fn folded(&self) -> Result<Folded, EngineError> {
        let explain = |error: redb::Error| explained(&self.pages, "the mark of the last fold", error);
        let transaction = self.database().begin_read().map_err(storage_error)?;
        let state = transaction.open_table(STATE).map_err(|error| explain(error.into()))?;
        let Some(row) = state.get(FOLDED).map_err(|error| explain(error.into()))? else {
            return Ok(Folded::default());
        };
        let bytes: &[u8; 16] =
            row.value().try_into().map_err(|_| EngineError::Corrupt("the fold mark has a wrong length".into()))?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Folded { seq: Cursor(word(0)), first_log: word(8) })
    }

    /// Applies a sealed overlay: its intervals first, then its rows, each in key order. `progress` gets the number of
    /// rows done. A failure leaves the file unchanged.
    pub(super) fn fold(&self, overlay: &Overlay, mark: Folded, progress: &dyn Fn(usize)) -> Result<(), EngineError> {
        let _folding = self.folding.lock();
        match catch_unwind(AssertUnwindSafe(|| self.fold_rows(overlay, mark, progress))) {
            Ok(Ok(())) => self.pages.settle(),
            Ok(Err(error)) => Err(explained(&self.pages, "what is to be folded into", error)),
            Err(_) => Err(stopped(&self.pages)),
        }
    }

    fn fold_rows(&self, overlay: &Overlay, mark: Folded, progress: &dyn Fn(usize)) -> Result<(), redb::Error> {
        let mut transaction = self.database().begin_write()?;
        transaction.set_quick_repair(true);
        {
            let mut rows = transaction.open_table(ROWS)?;
            let mut done = 0;
            for (start, end) in overlay.dead_intervals() {
                if start == end {
                    rows.remove(start)?;
                } else {
                    rows.retain_in::<&[u8], _>(start..=end, |_, _| false)?;
                }
                done += 1;
                progress(done);
            }
            fold::put_rows(&mut rows, overlay.live_rows(), || {
                done += 1;
                progress(done);
            })?;
            let mut state = transaction.open_table(STATE)?;
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&mark.seq.0.to_le_bytes());
            bytes[8..].copy_from_slice(&mark.first_log.to_le_bytes());
            state.insert(FOLDED, bytes.as_slice())?;
        }
        Ok(transaction.commit()?)
    }

    pub(super) fn full_disk(&self) -> &FullDisk {
        &self.pages.sums.full_disk
    }

    /// Length of the tree's file, in bytes.
    pub(super) fn file_bytes(&self) -> Result<u64, EngineError> {
        Ok(self.pages.file().len()?)
    }

    /// Disk space that the tree occupies; less than its length, because the file has holes.
    pub(super) fn allocated_bytes(&self) -> Result<u64, EngineError> {
        Ok(self.pages.file().allocated_bytes()?)
    }

    /// Number of damaged pages since the start, and whether every page has a checksum.
    pub(super) fn health(&self) -> (u64, bool) {
        (self.pages.damage().0 as u64, self.pages.sums.is_complete())
    }

    /// Reads every reachable page from the disk and verifies its checksums: see `tree_walk`.
    pub(super) fn check(
        &self,
        shown_max: usize,
        pace: &mut dyn FnMut(&Checked) -> ControlFlow<()>,
    ) -> Result<Checked, EngineError> {
        // redb's newest commit is not the one in the file then.
        self.pages.check_failed()?;
        let mut checked = Checked::default();
        let (head, _pinned, flow) = {
            // No concurrent fold: the head and the snapshot are of one commit, and redb's internal pages do not change.
            let _folding = self.folding.lock();
            let head = Head::parse(&self.pages.head().map_err(head_failed)?)?;
            let pinned = self.database().begin_read().map_err(storage_error)?;
            let mut walk = Walk { pages: &self.pages, head: &head, shown_max, checked: &mut checked, pace };
            let flow = walk.system();
            (head, pinned, flow)
        };
        let mut walk = Walk { pages: &self.pages, head: &head, shown_max, checked: &mut checked, pace };
        let whole = flow.is_continue() && walk.user().is_continue();
        if !self.pages.sums.file_agrees()? {
            checked.damaged += 1;
            checked.shown.push("tree/rows.sums: its bytes are not those that were written".into());
        }
        if whole && checked.damaged == 0 {
            self.pages.sums.set_complete()?;
        }
        checked.complete = self.pages.sums.is_complete();
        Ok(checked)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Closing writes redb's internal pages, which may be damaged too; the file then stays as after a crash.
        let database = self.database.take();
        let closed = catch_unwind(AssertUnwindSafe(|| drop(database)));
        let settled = self.pages.settle().and_then(|()| self.pages.sums.finish());
        if closed.is_err() || settled.is_err() {
            tracing::warn!("the tree was not closed in order; it is opened as after a crash");
        }
    }
}

/// A row's key inside a page of the tree.
pub(super) type TreeKey = redb::AccessGuard<'static, &'static [u8]>;

/// Rows of a range in key order.
pub(super) struct TreeRange {
    rows: redb::Range<'static, &'static [u8], &'static [u8]>,
    start: Bound<Vec<u8>>,
    end: Bound<Vec<u8>>,
}

fn owned(bound: Bound<&[u8]>) -> Bound<Vec<u8>> {
    bound.map(<[u8]>::to_vec)
}

impl Snapshot {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<TreeRow>, EngineError> {
        match self.rows.get(key) {
            Ok(row) => row.map(|row| checked(key, row)).transpose(),
            Err(error) => Err(explained(&self.pages, &format!("the row {}", key_text(key)), error)),
        }
    }

    /// A row and the gaps around it, by one descent.
    pub(super) fn around(
        &self,
        key: &[u8],
        from: Option<&[u8]>,
        to: Option<&[u8]>,
    ) -> Result<Option<Around>, EngineError> {
        let around = || {
            let mut cursor = self.rows.lower_bound(Bound::Included(key))?;
            let clear_from = match from {
                Some(from) => cursor.peek_prev()?.is_none_or(|(before, _)| before.value() <= from),
                None => false,
            };
            let Some((_, row)) = cursor.next()?.filter(|(found, _)| found.value() == key) else { return Ok(None) };
            let clear_to = match to {
                Some(to) => cursor.peek_next()?.is_none_or(|(after, _)| after.value() >= to),
                None => false,
            };
            let found = version_of(key, row.value()).map(|version| Around { version, clear_from, clear_to });
            Ok::<_, redb::StorageError>(found)
        };
        around().map_err(|error| explained(&self.pages, &format!("the rows around {}", key_text(key)), error))
    }

    pub(super) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Option<TreeRange>, EngineError> {
        if super::overlay::is_empty(start, end) {
            return Ok(None);
        }
        match self.rows.range::<&[u8]>((start, end)) {
            Ok(rows) => Ok(Some(TreeRange { rows, start: owned(start), end: owned(end) })),
            Err(error) => Err(self.damaged_between(start, end, error.into())),
        }
    }

    /// The next row of a range: an owned key (backed by its page) and the row.
    pub(super) fn next_row(&self, range: &mut TreeRange) -> Result<Option<(TreeKey, TreeRow)>, EngineError> {
        match range.rows.next() {
            None => Ok(None),
            Some(Err(error)) => {
                let (start, end) = (range.start.as_ref(), range.end.as_ref());
                Err(self.damaged_between(start.map(Vec::as_slice), end.map(Vec::as_slice), error.into()))
            }
            Some(Ok((key, row))) => {
                let row = checked(key.value(), row)?;
                Ok(Some((key, row)))
            }
        }
    }

    /// The error for an unreadable range, with the nearest keys around the damage.
    fn damaged_between(&self, start: Bound<&[u8]>, end: Bound<&[u8]>, error: redb::Error) -> EngineError {
        let text = |bound: Bound<&[u8]>, none: &str| match bound {
            Bound::Included(key) | Bound::Excluded(key) => key_text(key),
            Bound::Unbounded => none.to_owned(),
        };
        let (mut from, mut to) = (text(start, "the beginning"), text(end, "the end"));
        if let Ok(mut rows) = self.rows.range::<&[u8]>((start, end)) {
            for (key, _) in rows.by_ref().map_while(Result::ok).take(NEIGHBOURS_MAX) {
                from = key_text(key.value());
            }
        }
        if let Ok(rows) = self.rows.range::<&[u8]>((start, end)) {
            for (key, _) in rows.rev().map_while(Result::ok).take(NEIGHBOURS_MAX) {
                to = key_text(key.value());
            }
        }
        explained(&self.pages, &format!("rows after {from} and before {to}"), error)
    }
}
