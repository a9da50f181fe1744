//! Publishes files that were written but stay open.
//!
//! Why:        a memory map writes long after the last close, and a log file is never closed.
//! Not here:   who calls it, and when (the door).

use std::time::Duration;

use crate::posix::api::PosixError;
use crate::posix::mount::Mount;

/// Unpublished changes are published after this time.
pub const PUBLISH_AFTER: Duration = Duration::from_secs(5);

impl Mount {
    /// Publishes every file with changes older than `PUBLISH_AFTER` (called by a timer), or all of them. Continues
    /// after an error and returns the first.
    pub fn publish_written(&self, all: bool) -> Result<(), PosixError> {
        let now = self.volume.monotonic();
        let mut done = Ok(());
        for file in self.volume.open_files.all() {
            let since = file.state.read().dirty_since;
            // It was said once that the mount was taken over.
            if !all && file.lease.check().is_err() {
                continue;
            }
            if since.is_some_and(|since| all || now.saturating_sub(since) >= PUBLISH_AFTER)
                && let Err(error) = self.volume.publish(&file)
            {
                tracing::error!(ino = file.ino.0, %error, "what was written to a file could not be published");
                done = done.and(Err(error));
            }
        }
        done
    }
}
