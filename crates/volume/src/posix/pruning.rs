//! What a kernel knows of a mount, for whoever makes it forget some of that.
//!
//! Not here:   which files those are (known::pruning), asking the kernel (the door).

use std::time::Duration;

use margay_rows::Ino;

use crate::posix::mount::Mount;

impl Mount {
    /// Numbers that the kernel holds.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// Whether the kernel holds this number.
    pub fn knows(&self, ino: Ino) -> bool {
        self.known.contains(ino)
    }

    /// Waits until the kernel holds more than `most` numbers, or for so long; false when [`Mount::stop_waiting`] was
    /// called, now or before. For one thread.
    pub fn wait_known_above(&self, most: usize, longest: Option<Duration>) -> bool {
        self.known.wait_above(most, longest)
    }

    /// Ends [`Mount::wait_known_above`] for good.
    pub fn stop_waiting(&self) {
        self.known.close();
    }

    /// Numbers that the kernel should forget, at least so many unless fewer were not in use lately.
    pub fn choose_unused(&self, least: usize) -> Vec<Ino> {
        self.known.choose(least)
    }

    /// The kernel unmounted: it forgot everything and does not say so of each number.
    pub fn kernel_left(&self) {
        self.known.clear();
        self.removed.clear();
    }
}
