//! Parameters and results of POSIX operations: the interface to the POSIX door.
//!
//! Not here: the operations (one file each, as `impl Mount` blocks), errno (the door's table).

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Timestamp;
use margay_rows::Ino;

use crate::api::Error;
use crate::sessions::MountHolder;

/// Longest name that POSIX may make, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest target of a symbolic link, in bytes.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Most names of one file.
pub const LINKS_MAX: u32 = 65_000;
/// Longest name of an extended attribute, in bytes.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute, in bytes.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 * 1024;

/// How long a kernel keeps names and attributes of a volume that other processes change too. It is told of changes within a second;
/// this is the limit where that fails.
pub const NAMES_KEPT: Duration = Duration::from_secs(5);

/// What a kernel may keep of a file that it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its pages and attributes.
    All,
    /// It has no pages; its attributes may be old.
    Pages,
    /// Pages and attributes may be old.
    Nothing,
}

/// A lock that a program asks for, or gives back; ranges are of bytes, and the last byte is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWish {
    /// Whose it is: a number of the kernel.
    pub owner: u64,
    /// The open file through which it is asked for; each has a number of its own.
    pub handle: u64,
    /// For people.
    pub process: u32,
    pub first: u64,
    pub last: u64,
    pub exclusive: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockTaken {
    /// The kernel may keep so much of what it has of the file.
    Yes(Kept),
    /// Another program has a lock that excludes it.
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Regular,
    Directory,
    Symlink,
    Fifo,
    Socket,
    CharDevice,
    BlockDevice,
}

/// A name as the tree stores it (S3's form), and which of the two entries of that name is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// The directory of this name if there is one, else the file.
    Plain(String),
    /// The file of this name beside a directory of the same name; absent when there is no such directory.
    Beside(String),
    /// The name with this prefix and this [`long_name_hash`]; `beside` as in [`Name::Beside`].
    Long { prefix: String, hash: u64, beside: bool },
}

/// A stored name's bytes may grow by this factor when they are shown, if each is an escape.
const SHOWN_FACTOR_MAX: usize = 5;
/// Size of the mark of a file beside a directory.
const BESIDE_BYTES: usize = 7;

/// Whether a name may be too long to show, so that a hash represents it.
pub(crate) fn may_be_long(name: &str) -> bool {
    name.len() * SHOWN_FACTOR_MAX + BESIDE_BYTES > NAME_BYTES_MAX
}

/// The hash that represents a name too long to show: the first 8 bytes, big-endian, of its MD5.
pub fn long_name_hash(name: &str) -> u64 {
    use md5::{Digest, Md5};
    let digest = Md5::digest(name.as_bytes());
    u64::from_be_bytes(std::array::from_fn(|index| digest[index]))
}

/// `stat` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    pub ino: Ino,
    pub kind: FileKind,
    /// The twelve bits that `chmod` sets.
    pub rights: u32,
    /// 1 for a directory, 0 for an open file without a name.
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    pub size: u64,
    /// Bytes outside holes.
    pub stored: u64,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
}

/// The creator of a file, and its permissions before the umask, which only applies in directories without a default
/// ACL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewFile {
    pub rights: u32,
    pub umask: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// `None` leaves a field unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    pub rights: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub accessed: Option<SetTime>,
    pub modified: Option<SetTime>,
    /// Clears set-user-id and set-group-id, as a write by an unprivileged process does.
    pub kill_privileges: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags {
    pub read: bool,
    pub write: bool,
    pub append: bool,
    pub truncate: bool,
    /// The file must not exist (`create` only).
    pub exclusive: bool,
    pub kill_privileges: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    #[default]
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    #[default]
    Any,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

/// Modes of `fallocate` that are supported; others are `Unsupported`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    Reserve { keep_size: bool },
    PunchHole,
    ZeroRange { keep_size: bool },
}

/// How a write arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// The write clears set-user-id and set-group-id.
    pub kill_privileges: bool,
    /// A page written through a memory map: it is written at its own offset even on a handle opened with O_APPEND.
    pub page: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTo {
    Data,
    Hole,
}

/// One entry of a directory. The door adds `.` and `..`.
#[derive(Clone, Copy, Debug)]
pub struct DirectoryItem<'a> {
    pub ino: Ino,
    pub kind: FileKind,
    /// As stored, without the `/` of a directory.
    pub name: &'a str,
    /// A file whose plain name belongs to a directory.
    pub beside: bool,
    /// Pass it to `read_directory` to continue after this entry.
    pub cookie: u64,
    /// If requested; the file counts as looked up once if the visitor took the entry.
    pub attributes: Option<Attributes>,
}

/// `statfs`, in bytes and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Free bytes that data may use.
    pub available_bytes: u64,
    pub files: u64,
}

#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Every change is durable before its call returns.
    pub sync: bool,
    pub read_only: bool,
    /// Written data is stored unencrypted even if it replaces an encrypted object or the bucket encrypts by default.
    /// Without this, such files cannot be opened for writing.
    pub plain: bool,
    /// Whether others may write there at the same time; of a read-only mount it does not matter.
    pub claim: Claim,
    /// `fsync` waits for it too. A mount with one has no hard links: an object has one key.
    pub upstream: Option<Arc<dyn UpstreamSync>>,
}

/// What a mount that writes claims of its directory, where processes share the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// Nothing: for a volume that only one process mounts.
    #[default]
    Nothing,
    /// No other process mounts it, or what is below or above it, to write.
    Alone,
    /// Others may, if they share it too. The last one that publishes a file wins.
    Shared,
}

/// A store that gets what the volume has.
pub trait UpstreamSync: Send + Sync + Debug {
    /// Blocks until it has the state of the file at the call, or of everything.
    fn sync(&self, file: Option<Ino>) -> Result<(), Error>;

    /// What it has of a file, in a line: the value of [`UPSTREAM_STATE`].
    fn state(&self, file: Ino) -> String;

    /// A file of this directory is about to be opened: what it has of the file counts only if that is not old. No turn is held.
    /// The file may not exist any more when this returns.
    fn will_open(&self, directory: Ino, file: Ino);

    /// A name (without `/`) that was looked up in this directory is not known: its absence counts only if that is not old. No turn
    /// is held. Whether it may be there now.
    fn will_miss(&self, directory: Ino, name: &str) -> bool;

    /// How long what is known of the names in a directory still counts.
    fn fresh_for(&self, directory: Ino) -> Duration;

    /// As `fresh_for`, of names that are not known.
    fn absent_for(&self, directory: Ino) -> Duration;

    /// A directory is about to be removed, if it is empty: its rows are read next.
    fn will_remove(&self, directory: Ino);
}

/// The extended attribute that tells what the upstream has of a file. It can be read only, and is not listed: programs that
/// copy attributes do not see it.
pub const UPSTREAM_STATE: &[u8] = b"user.margay.status";

/// Why a POSIX operation failed.
#[derive(Debug, thiserror::Error)]
pub enum PosixError {
    #[error("no such file or directory")]
    NotFound,
    #[error("the file exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("the directory is not empty")]
    NotEmpty,
    #[error("the name is too long")]
    NameTooLong,
    #[error("too many links")]
    TooManyLinks,
    #[error("a directory cannot move below itself, or an argument is out of range")]
    Invalid,
    #[error("operation not permitted")]
    NotPermitted,
    #[error("the file system is read-only")]
    ReadOnlyMount,
    #[error("no such attribute")]
    NoAttribute,
    #[error("the value is too large")]
    TooLarge,
    #[error("the file is too large")]
    FileTooLarge,
    #[error("no data or hole there")]
    NoSuchOffset,
    /// The number is no longer known: the name must be looked up again.
    #[error("stale file number")]
    Stale,
    #[error("not supported")]
    Unsupported,
    #[error("the handle is not open for this")]
    BadHandle,
    /// Others would not see them, or the file has too many.
    #[error("there are no locks for this file")]
    NoLocks,
    #[error("it is mounted read-write by another server ({})", .0.host)]
    MountedElsewhere(Box<MountHolder>),
    #[error(transparent)]
    Failed(#[from] Error),
}
