//! The disk port: files, names, durability.
//!
//! Why:        crash safety is only testable if a test can decide which writes survive.
//! Invariants: D1 bytes are durable after `sync_data` on their file returned Ok.
//!             D2 a created, renamed or removed name is durable after `sync_dir` on its directory returned Ok.
//!             D3 after a failed sync nothing is known about the unsynced bytes; callers poison themselves.
//! Not here:   buffering, checksums, formats.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing file, for reading only.
    Read,
    /// As `Read`; what is no regular file is `InvalidInput`, and never waited for, as a pipe would be.
    ReadRegular,
    /// An existing file, for reading and writing.
    ReadWrite,
    /// A new file, for reading and writing; `AlreadyExists` when the name is taken.
    CreateNew,
    /// For reading and writing, made when absent.
    OpenOrCreate,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    /// Logical length in bytes; 0 for a directory.
    pub len: u64,
    /// Bytes of the device that it occupies; 0 for a directory.
    pub used_bytes: u64,
}

/// Size and free space, in bytes, of the file system that holds a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Held as long as the lock is; dropping it (or the end of the process) releases the lock.
pub trait LockHandle: Send + Sync + Debug {}

pub trait Disk: Send + Sync + Debug {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Creates a directory and its missing parents, with durable names; succeeds if it exists.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// As `create_dir_all`; a directory that it creates is accessible to its owner only.
    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.create_dir_all(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Replaces `to` if it exists.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// The entries of a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>>;
    /// Makes the names in this directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes an exclusive lock on a file (created if absent); `WouldBlock` when another holder has it.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>>;
    fn space(&self, path: &Path) -> io::Result<Space>;
}

/// An open file; offsets and lengths in bytes. All calls may run concurrently.
pub trait File: Send + Sync + Debug {
    /// Reads up to `buffer.len()` bytes; fewer only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// As `read_at`, but only from the page cache: `WouldBlock` if the device had to be read.
    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read_at(buffer, offset)
    }
    /// A hint that a range will be read soon: starts read-ahead without waiting.
    fn will_read(&self, _offset: u64, _len: u64) {}
    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()>;
    /// Makes all bytes written so far, and the length, durable.
    fn sync_data(&self) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Reserves space for a range and extends the file to its end; the range reads as zeros.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Frees the space of a range; it reads as zeros afterwards and the length stays.
    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()>;
    /// Bytes of the device that this file occupies.
    fn allocated_bytes(&self) -> io::Result<u64>;
    /// One of several equal copies on different disks, for a caller whose checksum says that what was read is wrong. `None`
    /// beyond the last one, and for a file without copies.
    fn copy(&self, _index: usize) -> Option<Arc<dyn File>> {
        None
    }

    /// Fills `buffer` or fails with `UnexpectedEof`.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => done += count,
            }
        }
        Ok(())
    }
}
