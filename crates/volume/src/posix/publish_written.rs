//! Publishing what was written and not closed.
//!
//! Why:        a memory map writes long after the last close, and a log is never closed.
//! Not here:   who calls it, and when (the door).

use std::time::Duration;

use crate::posix::api::PosixError;
use crate::posix::mount::Mount;

/// What was written is published after this time, if nobody did before.
pub const PUBLISH_AFTER: Duration = Duration::from_secs(5);

impl Mount {
    /// Publishes every file that has been written and not closed for a while (called by a timer), or all of them.
    /// Goes on after an error and gives the first.
    pub fn publish_written(&self, all: bool) -> Result<(), PosixError> {
        let now = self.volume.monotonic();
        let mut done = Ok(());
        for file in self.volume.open_files.all() {
            let since = file.state.read().dirty_since;
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
