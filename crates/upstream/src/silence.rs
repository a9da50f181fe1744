//! What is said and done while the bucket answers nobody.
//!
//! Why:        names and bytes that are here are of use without it, and everything else must end with its name and the time, not
//!             after minutes of retries.
//! Invariants: N1 what is told is silent is also asked every few seconds (watch). So nothing else has to ask it, and an answer is
//!                seen at once.
//! Not here:   what counts as an answer (the meter of margay-client), names that are not here (tracked/absences).

use std::future::Future;
use std::time::Duration;

use margay_client::upstream::{Contact, Upstream};

/// A connection that broke, and a request that was answered when it was sent again, are nothing to tell.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(3);
/// So long somebody waits for a bucket that answers nobody. Retries of the request may take minutes.
pub(crate) const SILENT_TIME_MAX: Duration = Duration::from_secs(30);
/// How often that is looked at.
pub(crate) const SILENT_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Whether it has been silent for so long that people are told.
pub(crate) fn is_told(contact: &Contact) -> bool {
    contact.silent.as_ref().is_some_and(|silence| silence.since >= TOLD_AFTER)
}

/// What the silence is, with the bucket's name; `None`: it answers.
pub(crate) fn told(upstream: &Upstream) -> Option<String> {
    let silence = upstream.meter().contact().silent?;
    let (name, seconds) = (upstream.name(), silence.since.as_secs());
    let why = silence.error.unwrap_or_else(|| "a request waits".to_owned());
    Some(format!("the bucket {name} has not answered for {seconds} s: {why}"))
}

/// `None`: it has waited for long, and `silent` says that so has everybody else.
pub(crate) async fn unless_silent<T>(
    get: impl Future<Output = T>,
    silent: impl Fn() -> Option<Duration>,
    patience: Duration,
    look_every: Duration,
) -> Option<T> {
    let (mut get, begun) = (std::pin::pin!(get), tokio::time::Instant::now());
    loop {
        tokio::select! {
            got = &mut get => return Some(got),
            () = tokio::time::sleep(look_every) => {
                let is_silent = silent().is_some_and(|since| since >= patience);
                if is_silent && begun.elapsed() >= patience {
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_waits_no_longer_than_for_a_bucket_that_answers_nobody() {
        let (patience, look_every) = (Duration::from_millis(20), Duration::from_millis(2));
        let never = std::future::pending::<()>;
        let begun = tokio::time::Instant::now();
        let silent = || Some(Duration::from_secs(1000));
        assert_eq!(unless_silent(never(), silent, patience, look_every).await, None);
        assert!(begun.elapsed() >= patience, "who comes when it has been silent for long waits, too");
        let answered = || async { tokio::time::sleep(3 * patience).await };
        assert_eq!(unless_silent(answered(), || None, patience, look_every).await, Some(()), "others are answered");
        let newly = || Some(patience / 2);
        assert_eq!(unless_silent(answered(), newly, patience, look_every).await, Some(()));
    }
}
