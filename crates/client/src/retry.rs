//! Retries: which errors, how often and when.
//!
//! Invariants: T1 only errors that say nothing about the request are retried: a lost connection, a busy or failing
//!                server.
//!             T2 waits grow exponentially and are random, so that many rejected clients do not return at once.
//!             T3 with a budget, a store that refuses everything gets at most a fifth more requests than successes.

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Method;

use crate::client::{Answer, Ask};
use crate::error::ClientError;

/// Attempts per request.
pub(crate) const TRIES_MAX: u32 = 8;
/// Attempts of the first request of all, for which a person waits.
pub(crate) const CHECK_TRIES_MAX: u32 = 2;
/// Upper limit of the wait before the second attempt; it doubles with each further one.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// Upper limit of every wait.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Timeout of a request with little to send or receive.
const SHORT_TIME_MAX: Duration = Duration::from_secs(30);
/// Timeout of a request with content (a piece of a file, a part of an object), and of completing a multipart upload.
const CONTENT_TIME_MAX: Duration = Duration::from_secs(180);

/// Initial and maximum value of a budget.
const BUDGET_MAX: u32 = 500;
/// Cost of a retry; a success returns 1.
const RETRY_COST: u32 = 5;

/// Retry budget, shared by all requests to one store.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Budget {
        Budget(AtomicU32::new(BUDGET_MAX))
    }
}

impl Budget {
    fn take(&self) -> bool {
        let less = |left: u32| left.checked_sub(RETRY_COST);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self) {
        let more = |left: u32| (left < BUDGET_MAX).then_some(left + 1);
        // Usually it is full.
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

/// Timeout of one attempt.
pub(crate) fn time_of(ask: &Ask) -> Duration {
    let content = matches!(ask.method, Method::GET | Method::PUT | Method::POST) && !ask.key.is_empty();
    if content { CONTENT_TIME_MAX } else { SHORT_TIME_MAX }
}

/// As `ClientError::is_passing`, of a request that must not be executed a second time: an attempt that may have been is the last
/// one.
pub(crate) fn is_passing_undone(error: &ClientError) -> bool {
    error.is_passing() && !error.may_be_done()
}

/// Upper limit of the wait after this many attempts.
fn longest_wait(tries: u32) -> Duration {
    WAIT_FIRST.saturating_mul(1 << (tries - 1).min(16)).min(WAIT_MAX)
}

/// Sends until the outcome is final or the budget is exhausted; `is_worth_another` says which failures are not final, `pause`
/// waits.
pub(crate) async fn until_done<F, P>(
    is_worth_another: impl Fn(&ClientError) -> bool,
    tries_max: u32,
    budget: Option<&Budget>,
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
            Err(error) if tries < tries_max && is_worth_another(&error) && budget.is_none_or(Budget::take) => {
                let wait = longest_wait(tries).mul_f64(random_share());
                let wait_ms = wait.as_millis() as u64;
                match budget {
                    // Who has many requests in progress tells once that the store does not answer (`Meter`).
                    Some(_) => tracing::debug!(%error, tries, wait_ms, "a request to a store is sent again"),
                    None => tracing::info!(%error, tries, wait_ms, "a request to a store is sent again"),
                }
                pause(wait).await;
                tries += 1;
            }
            outcome => {
                if let (Ok(_), Some(budget)) = (&outcome, budget) {
                    budget.give();
                }
                return outcome;
            }
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

    /// Returns these outcomes in turn, then the last one for ever; yields the final status and the number of attempts.
    fn run(outcomes: &[u16]) -> (u16, usize) {
        run_within(None, outcomes)
    }

    fn run_within(budget: Option<&Budget>, outcomes: &[u16]) -> (u16, usize) {
        let asked = Cell::new(0);
        let send = || {
            let status = outcomes[asked.get().min(outcomes.len() - 1)];
            asked.set(asked.get() + 1);
            let answer = Answer { headers: HeaderMap::new(), body: Bytes::new() };
            std::future::ready(if status == 200 { Ok(answer) } else { Err(refused(status)) })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome =
            runtime.block_on(until_done(ClientError::is_passing, TRIES_MAX, budget, send, |_| std::future::ready(())));
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
    #[test]
    fn a_budget_ends_retries_and_successes_fill_it_again() {
        let budget = Budget::default();
        let asked: usize = (0..1000).map(|_| run_within(Some(&budget), &[503]).1).sum();
        assert_eq!(asked, 1000 + (BUDGET_MAX / RETRY_COST) as usize);
        assert_eq!(run_within(Some(&budget), &[503, 200]), (503, 1));
        for _ in 0..RETRY_COST {
            assert_eq!(run_within(Some(&budget), &[200]), (200, 1));
        }
        assert_eq!(run_within(Some(&budget), &[503, 200]), (200, 2));
        for _ in 0..2 * BUDGET_MAX {
            run_within(Some(&budget), &[200]);
        }
        assert_eq!(budget.0.load(Ordering::Relaxed), BUDGET_MAX);
    }
}
