//! Fetched blocks on disk, so that what was read once is read here the next time, also after a restart.
//!
//! Format:     one file for each block, `blocks/NN/NUMBER-INDEX` in hexadecimal: CRC-32C (little endian, of all that follows), 16
//!             bytes of MD5 of the object's ETag, the bytes of the block.
//! Invariants: D1 nothing is synced and everything is checked: a block that a crash tore, or that belongs to another state of the
//!                object, is not there.
//!             D2 at most `bytes_max` bytes and `BLOCKS_MAX` blocks; those go first that were not read since they came, or since
//!                the last round (second chance).
//! Locking:    one short mutex for the table, no lock over the disk.
//! Not here:   blocks in memory (cache), what is fetched (the store).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use margay_env::{Env, OpenMode};
use md5::{Digest, Md5};
use parking_lot::Mutex;

use super::cache::BLOCK_BYTES;

/// Directories over which the files are spread.
const DIRECTORIES: u64 = 256;
const HEADER_BYTES: usize = 20;
const FILE_BYTES_MAX: usize = HEADER_BYTES + BLOCK_BYTES as usize;
/// Small objects have a block each, and a file system has only so many files.
const BLOCKS_MAX: usize = 200_000;

/// Number of the object's bytes, and index of the block.
type Key = (u64, u64);

#[derive(Debug)]
struct Kept {
    bytes: u64,
    was_read: bool,
}

#[derive(Debug, Default)]
struct Table {
    blocks: HashMap<Key, Kept>,
    /// In the order in which they came; some are gone.
    order: VecDeque<Key>,
    bytes: u64,
}

#[derive(Debug)]
pub(crate) struct DiskBlocks {
    env: Env,
    directory: PathBuf,
    bytes_max: u64,
    table: Mutex<Table>,
}

impl DiskBlocks {
    /// Finds what an earlier process kept.
    pub(crate) fn open(env: Env, directory: &Path, bytes_max: u64) -> io::Result<DiskBlocks> {
        let mut table = Table::default();
        for number in 0..DIRECTORIES {
            let folder = folder(directory, number);
            if !env.disk.exists(&folder)? {
                continue;
            }
            for entry in env.disk.list(&folder)? {
                match parse_name(&entry.name).filter(|_| !entry.is_dir) {
                    Some(key) => table.insert(key, entry.len),
                    // Half written.
                    None => env.disk.remove(&folder.join(entry.name))?,
                }
            }
        }
        let blocks = DiskBlocks { env, directory: directory.to_owned(), bytes_max, table: Mutex::new(table) };
        blocks.make_room();
        Ok(blocks)
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.table.lock().blocks.contains_key(&key)
    }

    /// The block of this state of the object.
    pub(crate) fn get(&self, key: Key, etag: &str) -> Option<Bytes> {
        match self.table.lock().blocks.get_mut(&key) {
            Some(kept) => kept.was_read = true,
            None => return None,
        }
        let read = self.read(key, etag);
        if read.is_none() {
            self.remove(key);
        }
        read
    }

    fn read(&self, key: Key, etag: &str) -> Option<Bytes> {
        // Somebody may have put anything there.
        let file = self.env.disk.open(&self.path(key), OpenMode::ReadRegular).ok()?;
        let len = usize::try_from(file.len().ok()?).ok().filter(|len| (HEADER_BYTES..=FILE_BYTES_MAX).contains(len))?;
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        let is_same = u32::from_le_bytes(*crc) == crc32c::crc32c(rest) && rest[..16] == *Md5::digest(etag);
        is_same.then(|| Bytes::from(bytes).slice(HEADER_BYTES..))
    }

    /// Whether blocks of an object of this size are kept: a large one that is read once would take the place of all others.
    pub(crate) fn takes(&self, size: u64) -> bool {
        size <= self.bytes_max / 4
    }

    /// Keeps a block; one that cannot be written is fetched again.
    pub(crate) fn put(&self, key: Key, etag: &str, block: &[u8]) {
        if self.table.lock().blocks.contains_key(&key) {
            return;
        }
        match self.write(key, etag, block) {
            Ok(()) => self.table.lock().insert(key, (HEADER_BYTES + block.len()) as u64),
            Err(error) => return tracing::debug!(%error, "a fetched block is not kept"),
        }
        self.make_room();
    }

    fn write(&self, key: Key, etag: &str, block: &[u8]) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        header[4..].copy_from_slice(&Md5::digest(etag));
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[4..]), block);
        header[..4].copy_from_slice(&crc.to_le_bytes());
        let path = self.path(key);
        if let Some(folder) = path.parent() {
            self.env.disk.create_dir_all(folder)?;
        }
        let new = path.with_extension("new");
        if self.env.disk.exists(&new)? {
            self.env.disk.remove(&new)?;
        }
        let file = self.env.disk.open(&new, OpenMode::CreateNew)?;
        let written = file.write_all_at(&header, 0).and_then(|()| file.write_all_at(block, HEADER_BYTES as u64));
        let written = written.and_then(|()| self.env.disk.rename(&new, &path));
        if written.is_err() {
            // The first error tells more.
            let _ = self.env.disk.remove(&new);
        }
        written
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.lock().bytes
    }

    fn make_room(&self) {
        let gone = self.table.lock().take_over(self.bytes_max);
        gone.into_iter().for_each(|key| self.remove_file(key));
    }

    fn remove(&self, key: Key) {
        self.table.lock().remove(key);
        self.remove_file(key);
    }

    fn remove_file(&self, key: Key) {
        if let Err(error) = self.env.disk.remove(&self.path(key)) {
            tracing::debug!(%error, "a fetched block could not be removed");
        }
    }

    fn path(&self, (number, index): Key) -> PathBuf {
        folder(&self.directory, number ^ index).join(format!("{number:x}-{index:x}"))
    }
}

impl Table {
    fn insert(&mut self, key: Key, bytes: u64) {
        self.remove(key);
        self.blocks.insert(key, Kept { bytes, was_read: false });
        self.order.push_back(key);
        self.bytes += bytes;
    }

    fn remove(&mut self, key: Key) {
        if let Some(kept) = self.blocks.remove(&key) {
            self.bytes -= kept.bytes;
        }
    }

    /// Takes out what is too much.
    fn take_over(&mut self, bytes_max: u64) -> Vec<Key> {
        let mut gone = Vec::new();
        while self.bytes > bytes_max || self.blocks.len() > BLOCKS_MAX {
            let Some(key) = self.order.pop_front() else { break };
            match self.blocks.get_mut(&key) {
                Some(kept) if kept.was_read => {
                    kept.was_read = false;
                    self.order.push_back(key);
                }
                Some(_) => {
                    self.remove(key);
                    gone.push(key);
                }
                None => {}
            }
        }
        gone
    }
}

fn folder(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{:02x}", number % DIRECTORIES))
}

fn parse_name(name: &str) -> Option<Key> {
    let (number, index) = name.split_once('-')?;
    Some((u64::from_str_radix(number, 16).ok()?, u64::from_str_radix(index, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn open(directory: &Path, bytes_max: u64) -> DiskBlocks {
        DiskBlocks::open(Env::real(), directory, bytes_max).unwrap()
    }

    #[test]
    fn blocks_are_kept_over_a_restart_and_damaged_ones_are_not() {
        let directory = tempfile::tempdir().unwrap();
        let blocks = open(directory.path(), 1 << 20);
        for index in 0..3 {
            blocks.put((7, index), "e", format!("block {index}").as_bytes());
        }
        assert_eq!(blocks.get((7, 1), "e").as_deref(), Some(b"block 1".as_slice()));
        let bytes = blocks.bytes();
        let again = open(directory.path(), 1 << 20);
        assert_eq!((again.bytes(), again.get((7, 2), "e").as_deref()), (bytes, Some(b"block 2".as_slice())));
        assert_eq!(again.get((7, 2), "another"), None, "another state of the object");
        assert_eq!(again.get((7, 2), "e"), None, "it went");
        let (disk, path) = (Env::real().disk, again.path((7, 1)));
        disk.open(&path, OpenMode::ReadWrite).unwrap().write_all_at(b"x", HEADER_BYTES as u64).unwrap();
        assert_eq!((again.get((7, 1), "e"), disk.exists(&path).unwrap()), (None, false));
        disk.open(&again.path((7, 1)).with_extension("new"), OpenMode::CreateNew).unwrap();
        assert_eq!(open(directory.path(), 1 << 20).table.lock().blocks.len(), 1);
    }

    #[test]
    fn a_pipe_or_a_directory_in_place_of_a_block_is_no_block() {
        let directory = tempfile::tempdir().unwrap();
        let blocks = open(directory.path(), 1 << 20);
        let path = |index| blocks.path((7, index));
        for index in 0..3 {
            blocks.put((7, index), "e", b"block");
            Env::real().disk.remove(&path(index)).unwrap();
        }
        mknodat(CWD, path(0), FileType::Fifo, Mode::RWXU, 0).unwrap();
        Env::real().disk.create_dir_all(&path(1)).unwrap();
        let large = Env::real().disk.open(&path(2), OpenMode::CreateNew).unwrap();
        large.set_len(1 << 40).unwrap();
        for index in 0..3 {
            assert_eq!(blocks.get((7, index), "e"), None, "{index}");
        }
        assert!(!Env::real().disk.exists(&path(0)).unwrap(), "the next fetch may take its place");
    }

    #[test]
    fn what_is_read_stays_when_others_go() {
        let directory = tempfile::tempdir().unwrap();
        let blocks = open(directory.path(), 10 * 1020);
        for index in 0..10 {
            blocks.put((1, index), "e", &[0; 1000]);
        }
        assert!(blocks.get((1, 0), "e").is_some());
        (10..15).for_each(|index| blocks.put((1, index), "e", &[0; 1000]));
        assert!(blocks.get((1, 0), "e").is_some() && blocks.get((1, 1), "e").is_none());
        assert_eq!(blocks.bytes(), 10 * 1020);
    }
}
