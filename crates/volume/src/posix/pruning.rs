//! Access to a mount's known files, for the door's pruner.
//!
//! Not here:   choosing files (known::pruning), asking the kernel (the door).

use std::time::Duration;

use margay_rows::Ino;

use crate::posix::mount::Mount;

impl Mount {
    /// Number of inodes that the kernel knows.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// Whether the kernel knows this inode.
    pub fn knows(&self, ino: Ino) -> bool {
        self.known.contains(ino)
    }

    /// Waits until the kernel knows more than `most` inodes, up to `longest`; false when [`Mount::stop_waiting`] was
    /// called, now or before. For one thread.
    pub fn wait_known_above(&self, most: usize, longest: Option<Duration>) -> bool {
        self.known.wait_above(most, longest)
    }

    /// Ends [`Mount::wait_known_above`] for good.
    pub fn stop_waiting(&self) {
        self.known.close();
    }

    /// Inodes that the kernel should forget, at least this many unless fewer are unused.
    pub fn choose_unused(&self, least: usize) -> Vec<Ino> {
        self.known.choose(least)
    }

    /// The kernel unmounted: it forgot everything without sending FORGETs.
    pub fn kernel_left(&self) {
        self.known.clear();
        self.removed.clear();
        // Their lease ends with the mount.
        self.lock_notes.clear();
        self.locks_owed.lock().clear();
    }
}
