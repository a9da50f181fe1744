//! The caches of the kernel, emptied before a phase that is to be cold.
//!
//! Why:      what a directory or file costs the first time is what people wait for; the second time shows the cache.
//! Not here: caches of servers and of mounts' processes, which nobody outside can empty.

#![allow(clippy::disallowed_methods, reason = "a file of the kernel")]

use std::fs::{self, OpenOptions};
use std::io;

const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";
/// Pages, and names and inodes.
const EVERYTHING: &str = "3";

/// Whether this process may empty them, which only root may.
pub(crate) fn may_drop() -> bool {
    OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

/// Drops every clean page, name and inode that is not in use; what is not yet written stays.
pub(crate) fn drop_all() -> io::Result<()> {
    fs::write(DROP_CACHES, EVERYTHING)
}
