//! The long-term store of rows: a redb B-tree behind the few calls that the engine needs.
//!
//! Why:        a B-tree pays nothing for deleted rows; kept behind this small face so that it can be replaced.
//! Layout:     `<data>/tree/rows.redb`, table `rows`: key -> version (u64 LE) + value; table `state`: name -> bytes.
//! Invariants: T1 a file under the tree's own name is whole: it gets that name when its first transaction is durable.
//! Durability: `fold` is one durable redb transaction; a crash leaves the tree before or after it, and quick repair
//!             keeps the reopening short.
//! Locking:    one fold at a time (the checkpointer); any number of snapshots beside it.
//! Not here:   when to fold (checkpoint), what the newest rows are (overlay, layers).

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use margay_env::{Env, File, OpenMode, fault};
use redb::{ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};

use super::overlay::Overlay;
use crate::{EngineError, Seq};

const ROWS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("rows");
const STATE: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("state");
const FOLDED: &str = "folded";
const FILE_NAME: &str = "rows.redb";
/// The file until it is whole and durable for the first time.
const UNFINISHED_NAME: &str = "rows.redb.new";
/// The whole file while its name is made anew.
const MOVED_NAME: &str = "rows.redb.moved";
/// Version bytes before each value.
const VERSION_BYTES: usize = 8;

/// Where the log begins that is not in the tree yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// The newest commit in the tree.
    pub(super) seq: Seq,
    /// The first log segment that may hold newer commits; 0 when there was none.
    pub(super) first_log: u64,
}

#[derive(Debug)]
struct Backend(Arc<dyn File>);

impl StorageBackend for Backend {
    fn len(&self) -> Result<u64, io::Error> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.0.read_exact_at(out, offset)
    }
    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> Result<(), io::Error> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.0.write_all_at(data, offset)
    }
}

pub(super) struct Tree {
    database: redb::Database,
    file: Arc<dyn File>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tree")
    }
}

/// The rows as of one fold; cheap to share. It pins the pages that later folds replace.
pub(super) struct Snapshot {
    rows: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Snapshot")
    }
}

/// A row's bytes inside a page of the tree.
pub(super) struct TreeRow(redb::AccessGuard<'static, &'static [u8]>);

impl TreeRow {
    pub(super) fn value(&self) -> &[u8] {
        &self.0.value()[VERSION_BYTES..]
    }
    pub(super) fn version(&self) -> Seq {
        let bytes = self.0.value();
        Seq(u64::from_le_bytes(bytes[..VERSION_BYTES].try_into().expect("checked when the row was read")))
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

fn checked(row: redb::AccessGuard<'static, &'static [u8]>) -> Result<TreeRow, EngineError> {
    if row.value().len() < VERSION_BYTES {
        return Err(EngineError::Corrupt("a row of the tree is shorter than its version".into()));
    }
    Ok(TreeRow(row))
}

impl Tree {
    /// Opens or makes the tree in `folder`; its pages use at most `cache_bytes` of memory. `after_fault`: see `Options`.
    pub(super) fn open(env: &Env, folder: &Path, cache_bytes: usize, after_fault: bool) -> Result<Tree, EngineError> {
        env.disk.create_dir_all(folder)?;
        let (path, moved) = (folder.join(FILE_NAME), folder.join(MOVED_NAME));
        if after_fault && env.disk.exists(&path)? {
            tracing::warn!(path = %path.display(), "written again, since a sync had failed");
            fault::rewrite(&*env.disk.open(&path, OpenMode::ReadWrite)?)?;
            // The same for the name: only a name made since is written by the next sync of the folder.
            env.disk.rename(&path, &moved)?;
            env.disk.sync_dir(folder)?;
        }
        if env.disk.exists(&moved)? {
            env.disk.rename(&moved, &path)?;
        }
        let tree = if env.disk.exists(&path)? {
            Tree::attach(env.disk.open(&path, OpenMode::ReadWrite)?, cache_bytes)?
        } else {
            let tree = Tree::make(env, &folder.join(UNFINISHED_NAME), cache_bytes)?;
            env.disk.rename(&folder.join(UNFINISHED_NAME), &path)?;
            tree
        };
        // Also for a name that was found: a process that was killed may not have come this far.
        env.disk.sync_dir(folder)?;
        Ok(tree)
    }

    /// Makes an empty tree whole under another name: a half-made file would not open any more.
    fn make(env: &Env, unfinished: &Path, cache_bytes: usize) -> Result<Tree, EngineError> {
        if env.disk.exists(unfinished)? {
            env.disk.remove(unfinished)?;
        }
        let tree = Tree::attach(env.disk.open(unfinished, OpenMode::CreateNew)?, cache_bytes)?;
        let mut transaction = tree.database.begin_write().map_err(storage_error)?;
        transaction.set_quick_repair(true);
        transaction.open_table(ROWS).map_err(storage_error)?;
        transaction.open_table(STATE).map_err(storage_error)?;
        transaction.commit().map_err(storage_error)?;
        tree.file.sync_data()?;
        Ok(tree)
    }

    fn attach(file: Arc<dyn File>, cache_bytes: usize) -> Result<Tree, EngineError> {
        let backend = Backend(file.clone());
        let database =
            redb::Builder::new().set_cache_size(cache_bytes).create_with_backend(backend).map_err(storage_error)?;
        Ok(Tree { database, file })
    }

    pub(super) fn snapshot(&self) -> Result<Snapshot, EngineError> {
        let transaction = self.database.begin_read().map_err(storage_error)?;
        match transaction.open_table(ROWS) {
            Ok(rows) => Ok(Snapshot { rows }),
            Err(error) => Err(storage_error(error)),
        }
    }

    pub(super) fn folded(&self) -> Result<Folded, EngineError> {
        let transaction = self.database.begin_read().map_err(storage_error)?;
        let state = transaction.open_table(STATE).map_err(storage_error)?;
        let Some(row) = state.get(FOLDED).map_err(storage_error)? else {
            return Ok(Folded::default());
        };
        let bytes: &[u8; 16] =
            row.value().try_into().map_err(|_| EngineError::Corrupt("the fold mark has a wrong length".into()))?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Ok(Folded { seq: Seq(word(0)), first_log: word(8) })
    }

    /// Applies a sealed overlay: its intervals first, then its rows, each in key order. `progress` is told the
    /// rows done so far.
    pub(super) fn fold(&self, overlay: &Overlay, mark: Folded, progress: &dyn Fn(usize)) -> Result<(), EngineError> {
        let mut transaction = self.database.begin_write().map_err(storage_error)?;
        transaction.set_quick_repair(true);
        {
            let mut rows = transaction.open_table(ROWS).map_err(storage_error)?;
            let mut done = 0;
            for (start, end) in overlay.dead_intervals() {
                if start == end {
                    rows.remove(start).map_err(storage_error)?;
                } else {
                    rows.retain_in::<&[u8], _>(start..=end, |_, _| false).map_err(storage_error)?;
                }
                done += 1;
                progress(done);
            }
            let mut stored = Vec::with_capacity(512);
            for (key, live) in overlay.live_rows() {
                stored.clear();
                stored.extend_from_slice(&live.version.0.to_le_bytes());
                stored.extend_from_slice(&live.value);
                rows.insert(key, stored.as_slice()).map_err(storage_error)?;
                done += 1;
                progress(done);
            }
            let mut state = transaction.open_table(STATE).map_err(storage_error)?;
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&mark.seq.0.to_le_bytes());
            bytes[8..].copy_from_slice(&mark.first_log.to_le_bytes());
            state.insert(FOLDED, bytes.as_slice()).map_err(storage_error)?;
        }
        transaction.commit().map_err(storage_error)
    }

    /// Length of the tree's file, in bytes.
    pub(super) fn file_bytes(&self) -> Result<u64, EngineError> {
        Ok(self.file.len()?)
    }

    /// Bytes of the disk that the tree occupies; its file is longer, with holes.
    pub(super) fn allocated_bytes(&self) -> Result<u64, EngineError> {
        Ok(self.file.allocated_bytes()?)
    }

    /// Reads every page and compares its checksums. `false`: damage was found.
    pub(super) fn verify(&mut self) -> Result<bool, EngineError> {
        self.database.check_integrity().map_err(storage_error)
    }
}

/// A row's key inside a page of the tree.
pub(super) type TreeKey = redb::AccessGuard<'static, &'static [u8]>;

/// Rows of a range in key order.
pub(super) type TreeRange = redb::Range<'static, &'static [u8], &'static [u8]>;

impl Snapshot {
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<TreeRow>, EngineError> {
        self.rows.get(key).map_err(storage_error)?.map(checked).transpose()
    }

    pub(super) fn range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> Result<Option<TreeRange>, EngineError> {
        if super::overlay::is_empty(start, end) {
            return Ok(None);
        }
        Ok(Some(self.rows.range::<&[u8]>((start, end)).map_err(storage_error)?))
    }
}

/// The next row of a range as an owned key (page-backed) and row.
pub(super) fn next_row(range: &mut TreeRange) -> Result<Option<(TreeKey, TreeRow)>, EngineError> {
    match range.next() {
        None => Ok(None),
        Some(Err(error)) => Err(storage_error(error)),
        Some(Ok((key, row))) => Ok(Some((key, checked(row)?))),
    }
}
