//! Whether the bucket refuses to be listed: rights that were taken away, keys that are not valid any more, a bucket that is gone.
//!
//! Why:        such a bucket answers, so nothing is late; without this nobody would learn that what is shown here is old.
//! Invariants: U1 the log has a warning when it begins and a line when it ends, at most one of each a minute: with rights to some
//!                directories only, listings are refused and answered in turns. `status` shows it between.
//! Locking:    one short mutex.
//! Not here:   changes that are refused (send), a bucket that does not answer (`silence`).

use std::sync::Arc;
use std::time::Duration;

use margay_client::ClientError;
use margay_env::Clock;
use parking_lot::Mutex;

use crate::reason::{advice, code_of};

/// Statuses of a listing that say that the one who asks gets none: no rights, no keys, no bucket.
const REFUSALS: [u16; 3] = [401, 403, 404];
/// Between two warnings.
const TOLD_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Refusal {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The last refusal, if no listing was answered since.
    why: Option<String>,
    /// When the log was told last.
    told: Option<Duration>,
    /// The log was told of the one that lasts.
    is_told: bool,
}

impl Refusal {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Refusal {
        Refusal { clock, state: Mutex::default() }
    }

    /// Notes how a listing ended.
    pub(crate) fn note<T>(&self, listed: &Result<T, ClientError>) {
        match listed {
            Ok(_) => {
                let mut state = self.state.lock();
                state.why = None;
                if std::mem::take(&mut state.is_told) {
                    tracing::info!("the bucket can be listed again");
                }
            }
            Err(error) if error.status().is_some_and(|status| REFUSALS.contains(&status)) => {
                self.refused(error.to_string());
            }
            Err(_) => {}
        }
    }

    fn refused(&self, why: String) {
        let (now, mut state) = (self.clock.monotonic(), self.state.lock());
        let is_news = state.told.is_none_or(|told| now.saturating_sub(told) >= TOLD_EVERY);
        if is_news && !state.is_told {
            let what_to_do = advice(code_of(&why));
            tracing::warn!(why, what_to_do, "the bucket refuses to be listed: what is shown of it is old");
            (state.told, state.is_told) = (Some(now), true);
        }
        state.why = Some(why);
    }

    /// The last refusal, if no listing was answered since.
    pub(crate) fn why(&self) -> Option<String> {
        self.state.lock().why.clone()
    }
}
