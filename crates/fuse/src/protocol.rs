//! The requests of a kernel, without the types of any transport.
//!
//! Why:        the interface between session and operations. The empty file system of the benchmarks implements it too,
//!             so both pay the same for the session.
//! Invariants: P1 number 1 is the root.  P2 an operation documented so counts one lookup of the file that it answers
//!                with.
//! Not here:   bytes on the wire (session), what an operation means (operations, volume).

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
pub use margay_volume::posix::{AttributeChange, Attributes, FileKind, LockWish, Statistics};
/// Error numbers of the kernel.
pub use rustix::io::Errno;

/// A file's number in the kernel.
pub type Node = u64;
/// The root's number.
pub const ROOT: Node = 1;

/// The calling process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// 0 when the kernel itself calls.
    pub process: u32,
}

impl Caller {
    /// Whether a content change by this caller clears set-user-id and set-group-id. The kernel checks CAP_FSETID, but
    /// reports it for writes only; for other requests any user but root counts as lacking it.
    pub fn kills_privileges(&self) -> bool {
        self.uid != 0
    }
}

/// A file or directory to create, with the permissions that the caller asked for.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    pub parent: Node,
    pub name: &'a [u8],
    /// File type and permissions, as in `st_mode`.
    pub mode: u32,
    pub umask: u32,
}

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    pub parent: Node,
    pub name: &'a [u8],
}

/// One side of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Side {
    pub handle: u64,
    pub offset: u64,
}

/// One entry of a directory, as sent to the kernel.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryLine<'a> {
    pub node: Node,
    pub kind: FileKind,
    pub name: &'a [u8],
    pub cookie: u64,
    /// Present when the kernel asked for attributes.
    pub attributes: Option<&'a Attributes>,
}

/// Takes directory entries; returns false when an entry no longer fits, and does not take it.
pub type TakeLine<'a> = dyn FnMut(&DirectoryLine<'_>) -> bool + 'a;

pub type Answer<T> = Result<T, Errno>;

/// How a write arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFlags {
    /// The write clears set-user-id and set-group-id.
    pub kill_privileges: bool,
    /// A page of the kernel's cache: written at its own offset even on a handle opened with O_APPEND.
    pub page: bool,
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub handle: u64,
    /// The kernel may keep the pages that it has.
    pub keeps_pages: bool,
}

/// A file system. Each call is one request of the kernel; several run concurrently.
pub trait Operations: Send + Sync + Debug + 'static {
    /// `None` is cached by the kernel as a negative entry. Counts a lookup.
    fn lookup(&self, at: At<'_>) -> Answer<Option<Attributes>>;
    /// The kernel drops this many lookups of a number.
    fn forget(&self, node: Node, lookups: u64);
    fn attributes(&self, node: Node) -> Answer<Attributes>;
    /// How long the kernel may keep names in a directory, and the attributes of what they name.
    fn keep_time_in(&self, directory: Node) -> Duration;
    /// How long the kernel may keep that a name is not in a directory.
    fn keep_absent_time_in(&self, directory: Node) -> Duration;
    /// How long the kernel may keep the attributes of a file or directory.
    fn keep_time_of(&self, node: Node) -> Duration;
    fn set_attributes(&self, node: Node, change: &AttributeChange) -> Answer<Attributes>;
    fn read_symlink(&self, node: Node) -> Answer<Bytes>;

    /// Counts a lookup.
    fn make_file(&self, caller: Caller, new: NewNode<'_>, device: u32) -> Answer<Attributes>;
    /// Counts a lookup.
    fn make_directory(&self, caller: Caller, new: NewNode<'_>) -> Answer<Attributes>;
    /// Counts a lookup.
    fn make_symlink(&self, caller: Caller, at: At<'_>, target: &[u8]) -> Answer<Attributes>;
    /// Counts a lookup.
    fn link(&self, node: Node, at: At<'_>) -> Answer<Attributes>;
    fn unlink(&self, at: At<'_>) -> Answer<()>;
    fn remove_directory(&self, at: At<'_>) -> Answer<()>;
    /// `flags` are those of renameat2.
    fn rename(&self, from: At<'_>, to: At<'_>, flags: u32) -> Answer<()>;

    /// Returns a handle. Counts a lookup. `flags` are those of open.
    fn create(&self, caller: Caller, new: NewNode<'_>, flags: i32) -> Answer<(Attributes, u64)>;
    fn open(&self, caller: Caller, node: Node, flags: i32) -> Answer<Opened>;
    fn read(&self, handle: u64, offset: u64, len: usize) -> Answer<Bytes>;
    /// Calls `taken` once unless it returns an error: that call is the answer, and may come before the write has
    /// finished.
    fn write(&self, handle: u64, offset: u64, bytes: &[u8], flags: WriteFlags, taken: &mut dyn FnMut()) -> Answer<()>;
    /// Reclaims space for a call that failed with ENOSPC, which may take long; true when the call is worth a retry.
    fn make_room(&self) -> bool;
    /// A process closed a descriptor of the handle.
    fn flush(&self, handle: u64) -> Answer<()>;
    /// Whether `flush` may wait for a disk and should run on another thread.
    fn flush_waits(&self, handle: u64) -> bool;
    fn sync(&self, handle: u64) -> Answer<()>;
    fn release(&self, handle: u64) -> Answer<()>;
    /// `mode` is that of fallocate. Unless the caller is root, the file loses set-user-id and set-group-id.
    fn allocate(&self, caller: Caller, handle: u64, mode: i32, offset: u64, len: u64) -> Answer<()>;
    fn seek(&self, handle: u64, offset: u64, whence: i32) -> Answer<u64>;
    /// As `allocate`, for the destination file.
    fn copy_range(&self, caller: Caller, from: Side, to: Side, len: u64) -> Answer<u64>;

    /// Asked only if the session was told to ask for locks. Takes one, or fails with `AGAIN` while another program has one that
    /// excludes it; does not wait until it is free.
    fn lock(&self, _node: Node, _handle: u64, _wish: &LockWish) -> Answer<()> {
        Err(Errno::NOLCK)
    }
    /// Gives a range back; nothing is there to be given back where nobody gets one.
    fn unlock(&self, _handle: u64, _wish: &LockWish) -> Answer<()> {
        Ok(())
    }
    /// A process closed a descriptor of the handle: the owner has no locks on the file any more.
    fn unlock_closed(&self, _handle: u64, _owner: u64) -> Answer<()> {
        Ok(())
    }
    /// The lock that keeps this one from being taken.
    fn locked_by(&self, _handle: u64, _wish: &LockWish) -> Answer<Option<LockWish>> {
        Err(Errno::NOLCK)
    }

    fn open_directory(&self, node: Node) -> Answer<u64>;
    fn read_directory(&self, handle: u64, cookie: u64, with_attributes: bool, take: &mut TakeLine<'_>) -> Answer<()>;
    fn release_directory(&self, handle: u64);
    fn sync_directory(&self) -> Answer<()>;

    fn get_xattr(&self, node: Node, name: &[u8]) -> Answer<Bytes>;
    /// `flags` are those of setxattr.
    fn set_xattr(&self, caller: Caller, node: Node, name: &[u8], value: &[u8], flags: i32) -> Answer<()>;
    fn list_xattrs(&self, caller: Caller, node: Node) -> Answer<Vec<u8>>;
    fn remove_xattr(&self, node: Node, name: &[u8]) -> Answer<()>;
    fn statistics(&self) -> Answer<Statistics>;
}

/// Invalidates the kernel's caches. Must not be called inside a request.
pub trait Kernel: Send + Debug {
    /// Drops a name in a directory; a name that the kernel does not know is no error.
    fn forget_name(&self, parent: Node, name: &[u8]);
    /// Drops a file's attributes, and its pages if asked.
    fn forget_file(&self, node: Node, pages: bool);
    /// Asks the kernel to forget numbers that nobody uses. For each it may send a FORGET later, or none. `INVAL` means
    /// that this kernel does not support the request.
    fn prune(&self, nodes: &[Node]) -> Answer<()>;
}
