//! The machine's own disk, clock and randomness.
//!
//! Why:        the only place where the program touches the operating system's files and clock.
//! Durability: `sync_data` is fdatasync, `sync_dir` is fsync of the directory.
//! Not here:   the simulated twins (`sim`).

#![allow(clippy::disallowed_methods, reason = "this module is the door to the operating system")]

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags};
use rustix::io::ReadWriteFlags;

use crate::{Clock, DirEntry, Disk, File, LockHandle, OpenMode, Random, Space, Timestamp};

/// Unit of the kernel's count of used blocks, on every file system.
const BLOCK_BYTES: u64 = 512;

#[derive(Debug)]
pub struct RealDisk;

#[derive(Debug)]
struct RealFile(fs::File);

#[derive(Debug)]
struct RealLock(#[allow(dead_code, reason = "held for its lock, released when dropped")] fs::File);

impl LockHandle for RealLock {}

fn names_a_dir(path: &Path) -> bool {
    path.as_os_str().is_empty() || path.is_dir()
}

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        match mode {
            OpenMode::Read => {}
            OpenMode::ReadRegular => {
                options.custom_flags(OFlags::NONBLOCK.bits() as i32);
            }
            OpenMode::ReadWrite => {
                options.write(true);
            }
            OpenMode::CreateNew => {
                options.write(true).create_new(true);
            }
            OpenMode::OpenOrCreate => {
                options.write(true).create(true).truncate(false);
            }
        }
        let file = options.open(path)?;
        if mode == OpenMode::ReadRegular && !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        Ok(Arc::new(RealFile(file)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<&Path> = path.ancestors().take_while(|path| !names_a_dir(path)).collect();
        fs::create_dir_all(path)?;
        for made in missing.iter().rev() {
            let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty());
            self.sync_dir(parent.unwrap_or(Path::new(".")))?;
        }
        Ok(())
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        self.create_dir_all(parent)?;
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => self.sync_dir(parent),
            // Whoever created it has chosen its permissions.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => self.create_dir_all(path),
            Err(error) => Err(error),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_dir = metadata.is_dir();
            let (len, used_bytes) = if is_dir { (0, 0) } else { (metadata.len(), metadata.blocks() * BLOCK_BYTES) };
            entries.push(DirEntry { name, is_dir, len, used_bytes });
        }
        Ok(entries)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        fs::File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn LockHandle>> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Box::new(RealLock(file)))
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(path)?;
        Ok(Space { total_bytes: stat.f_blocks * stat.f_frsize, free_bytes: stat.f_bavail * stat.f_frsize })
    }
}

impl File for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn read_cached_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut slices = [io::IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.0, &mut slices, offset, ReadWriteFlags::NOWAIT) {
            // A file system without non-blocking reads falls back to a plain read, and so does what has no such call at all:
            // a sandbox or an emulator of another processor.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => self.0.read_at(buffer, offset),
            Err(errno) => Err(errno.into()),
            Ok(count) => Ok(count),
        }
    }

    fn will_read(&self, offset: u64, len: u64) {
        // The read that follows reports errors.
        let _ = rustix::fs::fadvise(&self.0, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn write_all_at(&self, buffer: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, FallocateFlags::empty(), offset, len) {
            // The file system cannot reserve space: extend the file, and let writes fail when the disk is full.
            Err(rustix::io::Errno::OPNOTSUPP) => {
                let end = offset + len;
                if self.len()? < end { self.set_len(end) } else { Ok(()) }
            }
            other => Ok(other?),
        }
    }

    fn punch_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.0, flags, offset, len)?)
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks() * BLOCK_BYTES)
    }
}

#[derive(Debug)]
pub struct RealClock {
    started: Instant,
}

impl RealClock {
    #[allow(clippy::new_without_default, reason = "reading the clock is not a default value")]
    pub fn new() -> RealClock {
        RealClock { started: Instant::now() }
    }
}

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since.as_nanos() as i64)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, length: Duration) {
        std::thread::sleep(length);
    }

    fn sleep_exactly(&self) {
        if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
            tracing::debug!(%error, "this thread's sleeps may end later");
        }
    }
}

#[derive(Debug)]
pub struct RealRandom;

impl Random for RealRandom {
    fn fill(&self, buffer: &mut [u8]) {
        let mut filled = 0;
        while filled < buffer.len() {
            let rest = &mut buffer[filled..];
            match rustix::rand::getrandom(rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("the operating system gives no randomness: {errno}"),
            }
        }
    }
}
