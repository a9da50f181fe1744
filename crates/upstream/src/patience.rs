//! How long somebody who waits for the bucket goes on without an answer of it, and why a wait ends.
//!
//! Invariants: P1 each answer is progress, whatever it answers; the number of dirty files is not, since others may be written all
//!                the time.
//! Locking:    the caller's lock of the table of files.
//! Not here:   a writer that waits for room (evict): there only bytes that were sent count.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::tracked::{Files, Tracked};

/// Time without progress after which somebody who waits is told why.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why waiting ended before everything was sent.
#[derive(Debug, thiserror::Error)]
pub enum NotSent {
    #[error("the bucket refuses a change: {0}")]
    Refused(String),
    #[error("the bucket does not answer; what was written is kept here")]
    Unanswered,
    #[error("the bucket has not taken a change for {seconds} s: {why}; what was written is kept here")]
    Failing { seconds: u64, why: String },
    #[error("it was stopped; what was written is kept here")]
    Stopped,
    #[error(
        "sending has ended by a fault of the program ({0}); what was written is kept here: unmount and mount again"
    )]
    Broken(String),
}

/// The number of answers that was seen last, and when it was another one.
pub(crate) struct Patience {
    answers: u64,
    since: Duration,
}

impl Patience {
    pub(crate) fn begin(tracked: &Tracked, files: &Files) -> Patience {
        Patience { answers: tracked.answers.load(Ordering::Relaxed), since: files.now() }
    }

    /// Fails if nothing is sent any more, or the bucket has answered nothing for too long; `failing` tells why a request failed.
    pub(crate) fn look(
        &mut self,
        tracked: &Tracked,
        files: &Files,
        failing: impl FnOnce() -> Option<String>,
    ) -> Result<(), NotSent> {
        if let Some(why) = tracked.broken.get() {
            return Err(NotSent::Broken(why.clone()));
        }
        let now = Patience::begin(tracked, files);
        if now.answers != self.answers {
            *self = now;
        } else if now.since.saturating_sub(self.since) > PATIENCE {
            let seconds = PATIENCE.as_secs();
            return Err(failing().map_or(NotSent::Unanswered, |why| NotSent::Failing { seconds, why }));
        }
        Ok(())
    }
}
