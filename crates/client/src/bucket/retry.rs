//! What is tried again, how often and when.
//!
//! Invariants: T1 only what says nothing about the request is tried again: a lost connection, a busy or broken server.
//!             T2 waits grow, and are random, so that many who were refused at once do not come back at once.

use std::future::Future;
use std::time::Duration;

use http::Method;

use crate::client::{Answer, Ask};
use crate::error::ClientError;

/// Times that a request is sent.
pub(super) const TRIES_MAX: u32 = 8;
/// Times that the first request of all is sent, for which a person waits.
pub(super) const CHECK_TRIES_MAX: u32 = 2;
/// Longest wait before the second time; it doubles each time.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// Longest wait.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// From the first byte of a request without much to send or answer to the last one of its answer.
const SHORT_TIME_MAX: Duration = Duration::from_secs(30);
/// The same for content, of `disk::PIECE_BYTES` at most.
const CONTENT_TIME_MAX: Duration = Duration::from_secs(180);

/// How long one sending may take.
pub(super) fn time_of(ask: &Ask) -> Duration {
    let content = matches!(ask.method, Method::GET | Method::PUT) && !ask.key.is_empty();
    if content { CONTENT_TIME_MAX } else { SHORT_TIME_MAX }
}

fn is_worth_another(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { .. } | ClientError::Transport { .. } | ClientError::Timeout { .. } => true,
        ClientError::Refused(refusal) => {
            matches!(refusal.status, 408 | 429 | 500 | 502..=504) || refusal.code == "RequestTimeout"
        }
        ClientError::Usage(_) | ClientError::Nonsense { .. } => false,
    }
}

/// Longest wait before the next time, after this many.
fn longest_wait(tries: u32) -> Duration {
    WAIT_FIRST.saturating_mul(1 << (tries - 1).min(16)).min(WAIT_MAX)
}

/// Sends until there is an outcome that counts; `pause` waits.
pub(super) async fn until_done<F, P>(
    tries_max: u32,
    mut send: impl FnMut() -> F,
    pause: impl Fn(Duration) -> P,
) -> Result<Answer, ClientError>
where
    F: Future<Output = Result<Answer, ClientError>>,
    P: Future<Output = ()>,
{
    let mut tries = 1;
    loop {
        match send().await {
            Err(error) if tries < tries_max && is_worth_another(&error) => {
                let wait = longest_wait(tries).mul_f64(random_share());
                tracing::info!(%error, tries, wait_ms = wait.as_millis() as u64, "a request to a store is sent again");
                pause(wait).await;
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// From 0 to 1.
fn random_share() -> f64 {
    let mut bytes = [0; 4];
    margay_env::Env::real().random.fill(&mut bytes);
    f64::from(u32::from_le_bytes(bytes)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;
    use crate::error::Refusal;

    fn refused(status: u16) -> ClientError {
        ClientError::Refused(Box::new(Refusal { status, ..Refusal::default() }))
    }

    /// Outcomes in turn, the last one from then on; gives the outcome's status and how often was asked.
    fn run(outcomes: &[u16]) -> (u16, usize) {
        let asked = Cell::new(0);
        let send = || {
            let status = outcomes[asked.get().min(outcomes.len() - 1)];
            asked.set(asked.get() + 1);
            let answer = Answer { headers: HeaderMap::new(), body: Bytes::new() };
            std::future::ready(if status == 200 { Ok(answer) } else { Err(refused(status)) })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(until_done(TRIES_MAX, send, |_| std::future::ready(())));
        (outcome.map_or_else(|error| error.status().unwrap(), |_| 200), asked.get())
    }

    #[test]
    fn only_passing_trouble_is_tried_again_and_not_forever() {
        assert_eq!(run(&[200]), (200, 1));
        assert_eq!(run(&[503, 500, 429, 200]), (200, 4));
        assert_eq!(run(&[403, 200]), (403, 1));
        assert_eq!(run(&[412, 200]), (412, 1));
        assert_eq!(run(&[501, 200]), (501, 1));
        assert_eq!(run(&[503]), (503, TRIES_MAX as usize));
        assert!(longest_wait(1) == WAIT_FIRST && longest_wait(3) == WAIT_FIRST * 4 && longest_wait(30) == WAIT_MAX);
    }
}
