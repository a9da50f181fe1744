//! What a kernel asks of a file system, without the types of any transport.
//!
//! Why:        the seam between the session and the operations; the empty file system of the benchmarks answers through
//!             it too, so that both pay the same for the session.
//! Invariants: P1 number 1 is the root.  P2 what says so counts one lookup of the file that it answers with.
//! Not here:   bytes on the wire (session), what an operation means (operations, volume).

use std::fmt::Debug;

use bytes::Bytes;
pub use margay_volume::posix::{AttributeChange, Attributes, FileKind, Statistics};
/// Error numbers as the kernel knows them.
pub use rustix::io::Errno;

/// Number of a file in the kernel.
pub type Node = u64;
/// Number of the root.
pub const ROOT: Node = 1;

/// Who asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// 0 when the kernel itself asks.
    pub process: u32,
}

impl Caller {
    /// Whether a change of a file's content by this caller takes its set-user-id and set-group-id away. The kernel asks
    /// for CAP_FSETID, which it tells of writes only; without it, who is not root counts as not having it.
    pub fn kills_privileges(&self) -> bool {
        self.uid != 0
    }
}

/// What is to be made, with the rights that the caller asked for.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    pub parent: Node,
    pub name: &'a [u8],
    /// Kind and rights as `st_mode` has them.
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

/// One line of a directory as the kernel is shown it.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryLine<'a> {
    pub node: Node,
    pub kind: FileKind,
    pub name: &'a [u8],
    pub cookie: u64,
    /// Present when attributes were asked for.
    pub attributes: Option<&'a Attributes>,
}

/// Takes lines; gives false when it has no room for one, which it then did not take.
pub type TakeLine<'a> = dyn FnMut(&DirectoryLine<'_>) -> bool + 'a;

pub type Answer<T> = Result<T, Errno>;

/// How bytes come to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteFlags {
    /// The writer may not keep set-user-id and set-group-id.
    pub kill_privileges: bool,
    /// A page that the kernel kept: it belongs where it is, also on a handle that appends.
    pub page: bool,
}

/// A file system. Each call is one request of the kernel; several run at once.
pub trait Operations: Send + Sync + Debug + 'static {
    /// `None` is an answer too: the kernel keeps it that there is no such name. Counts a lookup.
    fn lookup(&self, at: At<'_>) -> Answer<Option<Attributes>>;
    /// The kernel forgot a number as often as this.
    fn forget(&self, node: Node, lookups: u64);
    fn attributes(&self, node: Node) -> Answer<Attributes>;
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

    /// Gives a handle. Counts a lookup. `flags` are those of open.
    fn create(&self, caller: Caller, new: NewNode<'_>, flags: i32) -> Answer<(Attributes, u64)>;
    fn open(&self, caller: Caller, node: Node, flags: i32) -> Answer<u64>;
    fn read(&self, handle: u64, offset: u64, len: usize) -> Answer<Bytes>;
    /// Calls `taken` once, unless it gives an error: that is the answer, and may come before the bytes are where they
    /// belong.
    fn write(&self, handle: u64, offset: u64, bytes: &[u8], flags: WriteFlags, taken: &mut dyn FnMut()) -> Answer<()>;
    /// Gives space back for a call that found none (ENOSPC), which may take long; true when it is worth another try.
    fn make_room(&self) -> bool;
    /// Somebody closed a descriptor of it.
    fn flush(&self, handle: u64) -> Answer<()>;
    /// Whether `flush` may wait for a disk, so that it should not hold up other requests.
    fn flush_waits(&self, handle: u64) -> bool;
    fn sync(&self, handle: u64) -> Answer<()>;
    fn release(&self, handle: u64) -> Answer<()>;
    /// `mode` is that of fallocate. The caller loses set-user-id and set-group-id of the file unless it is root.
    fn allocate(&self, caller: Caller, handle: u64, mode: i32, offset: u64, len: u64) -> Answer<()>;
    fn seek(&self, handle: u64, offset: u64, whence: i32) -> Answer<u64>;
    /// As `allocate`, for the file that is written.
    fn copy_range(&self, caller: Caller, from: Side, to: Side, len: u64) -> Answer<u64>;

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

/// Makes the kernel forget. Must not be called inside a request.
pub trait Kernel: Send + Debug {
    /// A name in a directory; one that the kernel does not know is fine.
    fn forget_name(&self, parent: Node, name: &[u8]);
    /// Attributes of a file, and its pages if asked.
    fn forget_file(&self, node: Node, pages: bool);
    /// Numbers that it may forget, and does where nobody uses them: each is answered by a FORGET, sooner or later, or not
    /// at all. `INVAL` is the answer of a kernel that cannot be asked.
    fn prune(&self, nodes: &[Node]) -> Answer<()>;
}
