//! Asks the kernel to forget inodes when it knows too many.
//!
//! Why:        an inode costs memory in the server for as long as the kernel knows it, and a kernel with free memory
//!             never forgets one by itself.
//! Invariants: R1 inodes in use stay: the kernel forgets only what no process has open or works in, and confirms by
//!                FORGET.
//!             R2 useless requests are rare: the pause doubles while the kernel forgets less than half of what was
//!                asked, and a kernel that does not support the request is asked once.
//!             R3 no lock is held while the kernel is called: it may wait for a request that needs one.
//! Not here:   choosing inodes (volume), the message (session).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_volume::Ino;

use crate::door::Door;
use crate::metrics::Metrics;
use crate::protocol::{Errno, Kernel, Node, ROOT};

/// Prune below the limit by one part in so many, so that the next new file does not start another pass at once.
const SHARE: usize = 16;
/// Inodes that one attempt asks the kernel to forget at most.
const ASKED_MAX: usize = 16_384;
/// Inodes per message: the kernel takes as many in one step.
const MESSAGE_FILES_MAX: usize = 512;
/// Shortest pause after an attempt, in which the kernel's FORGETs arrive.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause between attempts, when everything is in use.
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Pruner {
    door: Arc<Door>,
    kernel: Box<dyn Kernel>,
    most: usize,
    metrics: Arc<Metrics>,
}

/// Result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gain {
    Enough,
    Little,
    /// The kernel does not support the request, or the mount has ended.
    Over,
}

/// Starts the thread, which ends when the mount's waiting is stopped.
pub(crate) fn start(
    door: Arc<Door>,
    kernel: Box<dyn Kernel>,
    known_files_max: usize,
    metrics: Arc<Metrics>,
) -> io::Result<()> {
    let pruner = Pruner { door, kernel, most: known_files_max, metrics };
    std::thread::Builder::new().name("fuse-prune".to_owned()).spawn(move || pruner.run()).map(drop)
}

impl Pruner {
    fn run(&self) {
        let mut pause = PAUSE_MIN;
        while self.door.mount.wait_known_above(self.most, None) {
            pause = match self.attempt(pause) {
                Gain::Enough => PAUSE_MIN,
                Gain::Little => (pause * 2).min(PAUSE_MAX),
                Gain::Over => return,
            };
        }
    }

    /// Asks the kernel to forget the excess, then gives it time to answer.
    fn attempt(&self, pause: Duration) -> Gain {
        let mount = &self.door.mount;
        let before = mount.known();
        let excess = before.saturating_sub(self.most - self.most / SHARE).min(ASKED_MAX);
        let mut asked = mount.choose_unused(excess);
        // The root has another number in the kernel, and is always in use.
        asked.retain(|ino| self.door.node(*ino) != ROOT);
        for some in asked.chunks(MESSAGE_FILES_MAX) {
            let nodes: Vec<Node> = some.iter().map(|ino| self.door.node(*ino)).collect();
            match self.kernel.prune(&nodes) {
                Ok(()) => {}
                Err(Errno::INVAL) => {
                    tracing::info!(
                        known_files = before,
                        "this kernel cannot be asked to forget files (Linux 6.18 can), so limits.known_files_max does nothing"
                    );
                    return Gain::Over;
                }
                // Mostly because the mount is ending; inodes that were not sent now are chosen again later.
                Err(error) => {
                    tracing::debug!(%error, "the kernel could not be asked to forget files");
                    break;
                }
            }
        }
        // A burst of new files ends a long pause.
        if !mount.wait_known_above(before.saturating_add(self.most / SHARE), Some(pause)) {
            return Gain::Over;
        }
        let gone = asked.iter().filter(|ino: &&Ino| !mount.knows(**ino)).count();
        self.metrics.pruned.fetch_add(gone as u64, Ordering::Relaxed);
        tracing::debug!(known_files = before, asked = asked.len(), gone, "asked the kernel to forget files");
        if gone > 0 && gone >= asked.len() / 2 { Gain::Enough } else { Gain::Little }
    }
}

#[cfg(test)]
mod tests;
