//! Asks the kernel to forget files, when it knows too many.
//!
//! Why:        a file costs memory here for as long as the kernel knows it by number, and a kernel with memory to spare
//!             keeps every number that it was ever told.
//! Invariants: R1 what is in use stays: the kernel forgets only what nobody has open or works in, and says so by FORGET.
//!             R2 asking costs little where it is of no use: the pause doubles while less than half of what was asked
//!                for goes, and an old kernel is asked once.
//!             R3 no lock is held while the kernel is told: it may wait for a request that needs one.
//! Not here:   which files (volume), the message (session).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use margay_volume::Ino;

use crate::door::Door;
use crate::metrics::Metrics;
use crate::protocol::{Errno, Kernel, Node, ROOT};

/// Of the most files that are to be known, the share that is asked back besides, so that it need not be done at once
/// again: one in so many.
const SHARE: usize = 16;
/// Files that are asked back before the kernel's answers are looked at.
const ASKED_MAX: usize = 16_384;
/// Files in one message, which is as many as the kernel takes in one step.
const MESSAGE_FILES_MAX: usize = 512;
/// For the kernel's FORGETs to come.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Between attempts when everything is in use.
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Pruner {
    door: Arc<Door>,
    kernel: Box<dyn Kernel>,
    most: usize,
    metrics: Arc<Metrics>,
}

/// What became of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gain {
    Enough,
    Little,
    /// The kernel cannot be asked, or the mount has ended.
    Over,
}

/// Ends when the mount's waiting is stopped.
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

    /// Asks for as many as there are too many, and gives the kernel the time to answer.
    fn attempt(&self, pause: Duration) -> Gain {
        let mount = &self.door.mount;
        let before = mount.known();
        let excess = before.saturating_sub(self.most - self.most / SHARE).min(ASKED_MAX);
        let mut asked = mount.choose_unused(excess);
        // It has another number in the kernel, and is always in use.
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
                // Of a mount that is ending, mostly; what was not asked for now is later.
                Err(error) => {
                    tracing::debug!(%error, "the kernel could not be asked to forget files");
                    break;
                }
            }
        }
        // A rush of new files ends a long pause.
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
