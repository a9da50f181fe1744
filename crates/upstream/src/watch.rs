//! Tells the log when the bucket stops answering and when it answers again, and asks it meanwhile.
//!
//! Why:        one line at each change says more than a line for each request that fails meanwhile. Whoever has nothing to send
//!             would not see that it answers again.
//! Not here:   what counts as an answer (the meter of margay-client), refused keys (told).

use std::time::Duration;

use margay_client::upstream::{Contact, Upstream};

use crate::silence::TOLD_AFTER;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A silent bucket is asked so often, and has so long to answer.
const ASK_EVERY: Duration = Duration::from_secs(5);
const ASK_TIME_MAX: Duration = Duration::from_secs(5);

/// What is to be told.
#[derive(Debug, PartialEq, Eq)]
enum News {
    Silent(String),
    /// After so many seconds.
    Answers(u64),
}

/// When the silence began that was told, on the caller's clock.
#[derive(Debug, Default)]
struct Watch(Option<Duration>);

impl Watch {
    fn look(&mut self, now: Duration, contact: &Contact) -> Option<News> {
        match (&contact.silent, self.0) {
            (Some(silence), None) if silence.since >= TOLD_AFTER => {
                self.0 = Some(now.saturating_sub(silence.since));
                let waits = || format!("a request has waited for {} s", silence.since.as_secs());
                Some(News::Silent(silence.error.clone().unwrap_or_else(waits)))
            }
            (None, Some(since)) => {
                self.0 = None;
                Some(News::Answers(now.saturating_sub(since).as_secs()))
            }
            _ => None,
        }
    }
}

/// Never ends; `answers` is called when the bucket answers again.
pub(crate) async fn watch(upstream: Upstream, answers: impl Fn() + Send) {
    // Who began without the bucket has said so.
    let silent = upstream.meter().contact().silent.map(|_| Duration::ZERO);
    let (mut watch, begun) = (Watch(silent), tokio::time::Instant::now());
    let mut asked = Duration::ZERO;
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if watch.0.is_some() && begun.elapsed() >= asked + ASK_EVERY {
            asked = begun.elapsed();
            upstream.look(ASK_TIME_MAX).await;
        }
        match watch.look(begun.elapsed(), &upstream.meter().contact()) {
            Some(News::Silent(why)) => tracing::warn!(
                why,
                bucket = ?upstream,
                "the bucket does not answer: look at the network and at the endpoint. What is written is kept here and sent later"
            ),
            Some(News::Answers(seconds)) => {
                tracing::info!(seconds, "the bucket answers again");
                answers();
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use margay_client::upstream::Silence;

    use super::*;

    #[test]
    fn a_silence_is_told_once_and_its_end_too() {
        let at = Duration::from_secs;
        let silent = |seconds, error: Option<&str>| Contact {
            last_answer: None,
            silent: Some(Silence { since: at(seconds), error: error.map(str::to_owned) }),
        };
        let mut watch = Watch::default();
        assert_eq!(watch.look(at(10), &Contact::default()), None);
        assert_eq!(watch.look(at(11), &silent(1, Some("broke"))), None, "it may answer at once");
        assert_eq!(watch.look(at(14), &silent(4, Some("broke"))), Some(News::Silent("broke".to_owned())));
        assert_eq!(watch.look(at(15), &silent(5, Some("broke"))), None);
        assert_eq!(watch.look(at(30), &Contact::default()), Some(News::Answers(20)));
        assert_eq!(watch.look(at(31), &Contact::default()), None);
        assert!(matches!(watch.look(at(60), &silent(12, None)), Some(News::Silent(why)) if why.contains("12 s")));
    }
}
