//! The note of a failed sync, and rewriting files so that the page cache and the disk agree again.
//!
//! Why:        after a failed sync the kernel marks the pages clean: reads return them, no later sync writes them, and
//!             a power loss discards them. So the next process must rewrite what it reads before it relies on it
//!             (docs/design/0004-after-a-failed-sync.md).
//! Invariants: F1 the note is written before the caller of a failed sync learns of the failure.
//!             F2 a process in which a sync failed does not remove the note.
//! Durability: none, on purpose: the note must outlive the process, not a power loss, which clears the cache too.
//! Not here:   which files are rewritten (meta, the data directory), refusing writes after the fault (poison).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{DirEntry, Disk, Env, File, LockHandle, OpenMode, Space};

/// How much [`rewrite`] reads and writes at a time, in bytes; as many zeros become a hole.
const REWRITE_PIECE_BYTES: u64 = 64 << 10;
/// Longest note that is read, in bytes.
const NOTE_BYTES_MAX: usize = 4096;

/// The fault note of one data directory: a small file that names the failed sync.
#[derive(Debug)]
pub struct FaultNote {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// A sync failed in this process.
    struck: Mutex<bool>,
}

impl FaultNote {
    /// The ports, with a disk whose failed syncs write a note at `path`.
    pub fn watch(env: &Env, path: &Path) -> (Env, Arc<FaultNote>) {
        let note =
            Arc::new(FaultNote { disk: Arc::clone(&env.disk), path: path.to_owned(), struck: Mutex::new(false) });
        let disk = Arc::new(WatchedDisk { disk: Arc::clone(&env.disk), note: Arc::clone(&note) });
        (Env { disk, ..env.clone() }, note)
    }

    /// The note of an earlier process; `None` when the page cache can be trusted.
    pub fn found(&self) -> io::Result<Option<String>> {
        if !self.disk.exists(&self.path)? {
            return Ok(None);
        }
        let file = self.disk.open(&self.path, OpenMode::Read)?;
        let mut text = vec![0; NOTE_BYTES_MAX];
        // The existence of the note counts; its text may have been lost.
        let count = file.read_at(&mut text, 0).unwrap_or_default();
        Ok(Some(String::from_utf8_lossy(&text[..count]).trim_end().to_owned()))
    }

    /// Removes the note, once all doubtful data was rewritten and synced.
    pub fn clear(&self) -> io::Result<()> {
        let struck = self.struck.lock();
        if *struck {
            return Ok(());
        }
        match self.disk.remove(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn strike(&self, what: &Path, error: &io::Error) {
        let mut struck = self.struck.lock();
        if std::mem::replace(&mut *struck, true) {
            return;
        }
        let text = format!("sync of {}: {error}\n", what.display());
        // A disk that refuses even this fails at the next open too, unless the machine restarts before.
        let _ = self
            .disk
            .open(&self.path, OpenMode::OpenOrCreate)
            .and_then(|file| file.write_all_at(&text.as_bytes()[..text.len().min(NOTE_BYTES_MAX)], 0));
    }

    fn noted<T>(&self, what: &Path, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|error| self.strike(what, error))
    }
}

/// Rewrites a file in place and syncs it, so that the disk holds what the page cache shows.
///
/// Each write repeats the bytes just read, so a power loss in between leaves no state that an earlier one could not
/// have left. Holes stay holes.
pub fn rewrite(file: &dyn File) -> io::Result<()> {
    let len = file.len()?;
    file.set_len(len)?;
    let mut piece = Vec::new();
    let mut at = 0;
    while at < len {
        let count = (len - at).min(REWRITE_PIECE_BYTES);
        piece.resize(count as usize, 0);
        file.read_exact_at(&mut piece, at)?;
        // The last piece is always written, because it sets the file's length.
        let empty = at + count < len && piece.iter().all(|byte| *byte == 0);
        match empty.then(|| file.punch_hole(at, count)) {
            Some(Ok(())) => {}
            Some(Err(error)) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
            _ => file.write_all_at(&piece, at)?,
        }
        at += count;
    }
    file.sync_data()
}

#[derive(Debug)]
struct WatchedDisk {
    disk: Arc<dyn Disk>,
    note: Arc<FaultNote>,
}

#[derive(Debug)]
struct WatchedFile {
    file: Arc<dyn File>,
    path: PathBuf,
    note: Arc<FaultNote>,
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, mode)?;
        Ok(Arc::new(WatchedFile { file, path: path.to_owned(), note: Arc::clone(&self.note) }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        // `create_dir_all` syncs the parents of new directories.
        self.note.noted(path, self.disk.create_dir_all(path))
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.note.noted(path, self.disk.create_private_dir(path))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.disk.exists(path)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.disk.remove_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        self.disk.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.note.noted(path, self.disk.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        self.disk.lock(path)
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        self.disk.space(path)
    }
}

impl File for WatchedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_cached_at(buffer, offset)
    }

    fn will_read(&self, offset: u64, len: u64) {
        self.file.will_read(offset, len);
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.note.noted(&self.path, self.file.sync_data())
    }

    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.allocate(offset, len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch_hole(offset, len)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        self.file.allocated_bytes()
    }

    fn copy(&self, index: usize) -> Option<Arc<dyn File>> {
        self.file.copy(index)
    }
}
