//! The tree as POSIX sees it: operations by number and name, open files, and the kernel's caches.
//!
//! Invariants: X1 a number identifies one file for ever; an object that S3 puts over a file is a new file.
//!             X2 changes are visible when the call returns, and durable after `sync`, `sync_directory` or the engine's
//!                sync interval; a record never becomes durable before the bytes it refers to.
//!             X3 an open file keeps its bytes by pinning its segments, so a crash leaves nothing behind.
//!             X4 a change by POSIX in an implicit directory makes it explicit.
//!             X5 the file `a` and the directory `a/` have one POSIX name: creating it asserts both entries.
//! Locking:    `Known::turn(ino)` first, two in ascending order of stripes; then a file's state; then the latches of
//!             `open`. Nothing is locked while a watcher is waited for.

mod acl;
mod allocate;
pub(crate) mod api;
mod attempt;
mod attributes;
mod copy_range;
mod create;
#[cfg(test)]
mod data_tests;
mod defragment;
mod directories;
mod file_lock;
mod fresh_open;
mod handle;
mod inherit;
mod link;
mod locate;
mod lock_notes;
mod lookup;
mod make_directory;
mod make_local;
mod mount;
mod moved;
mod opened;
mod piece_limit;
pub(crate) mod places;
mod plan;
mod pruning;
mod publish;
mod publish_version;
mod publish_written;
mod read;
mod read_directory;
mod remove_directory;
mod removed;
mod rename;
mod resize;
mod resolve;
mod seek;
mod set_attributes;
mod statistics;
mod stream;
mod symlink;
mod unlink;
mod versions;
mod write;
mod xattr;
mod xattr_headers;

pub use crate::watch::{Notice, Watcher};
pub use api::*;
pub use handle::Handle;
pub use mount::Mount;
pub use places::{OpenParts, Place, is_unmoved};
pub use publish_written::PUBLISH_AFTER;
pub use read_directory::DirectoryHandle;
pub use xattr::imported_xattr;
