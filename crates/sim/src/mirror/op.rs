//! Operations of the mirror test, run with plain system calls below a directory, whatever file system that is on.
//!
//! Why:        the same bytes of the same program run on the mount and on the reference, so that a difference is the
//!             file system's.
//! Invariants: one operation makes at most one commit (a write opens a file that exists), so that a crash leaves the
//!             tree as it was between two operations.
//! Not here:   what S3 does (mod).

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;

use crate::blob::Blob;

/// Handles that may be held at once.
pub(super) const SLOTS: usize = 3;
/// Writes of one operation that cuts a file into pieces, and the bytes from one to the next.
const SCATTERED: u64 = 12;
const APART_BYTES: u64 = 1500;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Create(String, bool),
    Mkdir(String, u32),
    Rmdir(String),
    Unlink(String),
    Link(String, String),
    Symlink(String, String),
    Rename(String, String, How),
    Write(String, u64, Blob),
    /// Bytes apart from each other, so that the file is cut into pieces.
    Scatter(String, u64),
    Append(String, Blob),
    Truncate(String, u64),
    Punch(String, u64, u64),
    Chmod(String, u32),
    SetXattr(String, String),
    RemoveXattr(String),
    CopyRange(String, String, u64),
    Sync(String),
    Read(String),
    Stat(String),
    Readdir(String),
    Hold(String, usize),
    HeldWrite(usize, u64, Blob),
    HeldRead(usize),
    LetGo(usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Replace,
    NoReplace,
    Exchange,
}

/// What an operation shows; errors are compared too.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Done,
    Bytes(Vec<u8>),
    Names(Vec<String>),
    Stat(Stat),
}

/// What two file systems must agree on; sizes and links of directories are their own affair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    mode: u32,
    owner: (u32, u32),
    links_and_size: Option<(u64, u64)>,
}

pub(super) const XATTR: &str = "user.mirror";

/// A tree that operations run in, and the handles held there.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) root: PathBuf,
    held: [Option<File>; SLOTS],
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc_eio()))
}

fn libc_eio() -> i32 {
    Errno::IO.raw_os_error()
}

impl Side {
    pub(super) fn new(root: PathBuf) -> Side {
        Side { root, held: Default::default() }
    }

    pub(super) fn let_all_go(&mut self) {
        self.held = Default::default();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        rustix::fs::open(self.path(name), flags, Mode::from_raw_mode(0o640)).map(File::from)
    }

    pub(super) fn run(&mut self, op: &Op) -> Result<Shown, Errno> {
        match op {
            Op::Hold(name, slot) => {
                self.held[*slot] = None;
                self.held[*slot] = Some(self.open(name, OFlags::RDWR)?);
                Ok(Shown::Done)
            }
            Op::HeldWrite(slot, at, blob) => {
                let Some(file) = &self.held[*slot] else { return Ok(Shown::Done) };
                file.write_all_at(&blob.bytes(), *at).map_err(errno)?;
                Ok(Shown::Done)
            }
            Op::HeldRead(slot) => self.held[*slot].as_ref().map_or(Ok(Shown::Done), content),
            Op::LetGo(slot) => {
                self.held[*slot] = None;
                Ok(Shown::Done)
            }
            Op::Read(name) => content(&self.open(name, OFlags::RDONLY)?),
            Op::Stat(name) => stat(&self.path(name)).map(Shown::Stat),
            Op::Readdir(name) => names(&self.path(name)).map(Shown::Names),
            other => self.change(other).map(|()| Shown::Done),
        }
    }

    fn change(&self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Create(name, exclusive) => {
                let exclusive = if *exclusive { OFlags::EXCL } else { OFlags::empty() };
                self.open(name, OFlags::WRONLY | OFlags::CREATE | exclusive).map(drop)
            }
            Op::Mkdir(name, mode) => rustix::fs::mkdir(self.path(name), Mode::from_raw_mode(*mode)),
            Op::Rmdir(name) => rustix::fs::rmdir(self.path(name)),
            Op::Unlink(name) => rustix::fs::unlink(self.path(name)),
            Op::Link(from, to) => rustix::fs::linkat(CWD, self.path(from), CWD, self.path(to), AtFlags::empty()),
            Op::Symlink(target, name) => rustix::fs::symlink(target, self.path(name)),
            Op::Rename(from, to, how) => {
                let flags = match how {
                    How::Replace => RenameFlags::empty(),
                    How::NoReplace => RenameFlags::NOREPLACE,
                    How::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, self.path(from), CWD, self.path(to), flags)
            }
            Op::Chmod(name, mode) => {
                // Not through a symlink, whose target may be anywhere.
                if stat(&self.path(name))?.mode & 0o170_000 == 0o120_000 {
                    return Err(Errno::LOOP);
                }
                rustix::fs::chmod(self.path(name), Mode::from_raw_mode(*mode))
            }
            Op::SetXattr(name, value) => {
                rustix::fs::lsetxattr(self.path(name), XATTR, value.as_bytes(), XattrFlags::empty())
            }
            Op::RemoveXattr(name) => rustix::fs::lremovexattr(self.path(name), XATTR),
            _ => self.change_bytes(op),
        }
    }

    fn change_bytes(&self, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Write(name, at, blob) => {
                self.open(name, OFlags::WRONLY)?.write_all_at(&blob.bytes(), *at).map_err(errno)
            }
            Op::Scatter(name, at) => {
                let file = self.open(name, OFlags::WRONLY)?;
                (0..SCATTERED)
                    .try_for_each(|number| file.write_all_at(b"scattered", at + number * APART_BYTES))
                    .map_err(errno)
            }
            Op::Append(name, blob) => {
                use std::io::Write;
                self.open(name, OFlags::WRONLY | OFlags::APPEND)?.write_all(&blob.bytes()).map_err(errno)
            }
            Op::Truncate(name, len) => self.open(name, OFlags::WRONLY)?.set_len(*len).map_err(errno),
            Op::Punch(name, at, len) => {
                let file = self.open(name, OFlags::WRONLY)?;
                rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, *at, *len)
            }
            Op::CopyRange(from, to, len) => {
                let (from, to) = (self.open(from, OFlags::RDONLY)?, self.open(to, OFlags::WRONLY)?);
                copy_range(&from, &to, *len)
            }
            Op::Sync(name) => rustix::fs::fsync(self.open(name, OFlags::RDONLY)?),
            other => unreachable!("{other:?} changes no bytes"),
        }
    }
}

/// How much one call copies is the file system's choice, so it is called until nothing is left.
fn copy_range(from: &File, to: &File, len: u64) -> Result<(), Errno> {
    let (mut at, mut there, end) = (0, 0, len);
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        if rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut there), left)? == 0 {
            break;
        }
    }
    Ok(())
}

fn content(file: &File) -> Result<Shown, Errno> {
    let len = file.metadata().map_err(errno)?.len();
    let mut bytes = vec![0; len as usize + 1];
    let mut have = 0;
    loop {
        match file.read_at(&mut bytes[have..], have as u64).map_err(errno)? {
            0 => break,
            more => have += more,
        }
        if have == bytes.len() {
            break;
        }
    }
    bytes.truncate(have);
    Ok(Shown::Bytes(bytes))
}

fn stat(path: &Path) -> Result<Stat, Errno> {
    let data = std::fs::symlink_metadata(path).map_err(errno)?;
    let links_and_size = (!data.is_dir()).then_some((data.nlink(), data.len()));
    Ok(Stat { mode: data.mode(), owner: (data.uid(), data.gid()), links_and_size })
}

fn names(path: &Path) -> Result<Vec<String>, Errno> {
    let mut names = Vec::new();
    for line in std::fs::read_dir(path).map_err(errno)? {
        names.push(line.map_err(errno)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// Everything below a directory: path, attributes, content or target, extended attribute.
pub(super) type Dump = Vec<(String, Stat, Vec<u8>, Option<Vec<u8>>)>;

pub(super) fn dump(root: &Path) -> Result<Dump, Errno> {
    let mut lines = Vec::new();
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for name in names(&root.join(&directory))? {
            let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
            let full = root.join(&path);
            let stat = stat(&full)?;
            let bytes = match stat.mode & 0o170_000 {
                0o040_000 => {
                    open.push(path.clone());
                    Vec::new()
                }
                0o120_000 => rustix::fs::readlink(&full, Vec::new())?.into_bytes(),
                _ => match content(&File::open(&full).map_err(errno)?)? {
                    Shown::Bytes(bytes) => bytes,
                    _ => Vec::new(),
                },
            };
            let mut value = vec![0; 256];
            let xattr = match rustix::fs::lgetxattr(&full, XATTR, &mut value[..]) {
                Ok(len) => Some(value[..len].to_vec()),
                Err(_) => None,
            };
            lines.push((path, stat, bytes, xattr));
        }
    }
    lines.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    Ok(lines)
}
