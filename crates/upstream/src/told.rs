//! The log of changes that are not in the bucket yet: a line for each refused key and cause, and few while a cause lasts.
//!
//! Why:        a bucket that does not answer fails a thousand files a minute for one cause, and all are tried again.
//! Invariants: L1 a cause has at most `LINES_MAX` lines a minute; the first line of the next minute tells how many were left out.
//!             L2 a key has at most one line a minute of a cause.
//! Locking:    one short mutex.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;

use crate::reason::{advice, code_of};

/// Lines of one cause in `WINDOW`: of refusals each names a key that somebody must look at.
const LINES_MAX: usize = 10;
const WINDOW: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Cause {
    since: Duration,
    keys: HashSet<String>,
    left_out: u64,
}

/// Lines of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<HashMap<String, Cause>>);

impl Told {
    /// Tells that a request for a key failed, unless that was told; `now` is of the monotonic clock.
    pub(crate) fn tell(&self, now: Duration, key: &str, why: &str, is_refused: bool) {
        let lines_max = if is_refused { LINES_MAX } else { 1 };
        let Some(left_out) = self.take(now, code_of(why), key, lines_max) else { return };
        let what_to_do = advice(code_of(why));
        if is_refused {
            tracing::warn!(
                key,
                why,
                what_to_do,
                left_out,
                "the bucket refuses a change; it is kept here, and tried again in 5 minutes"
            );
        } else {
            tracing::warn!(
                key,
                why,
                what_to_do,
                left_out,
                "a change is not in the bucket yet; it is kept here, and tried again"
            );
        }
    }

    /// As `tell` of what fails without a key: how many lines were left out before, or `None` if it was told.
    pub(crate) fn is_news(&self, now: Duration, what: &str, why: &str) -> Option<u64> {
        self.take(now, &format!("{what} {}", code_of(why)), "", 1)
    }

    /// Whether to tell it, and how many lines were left out before.
    fn take(&self, now: Duration, cause: &str, key: &str, lines_max: usize) -> Option<u64> {
        let mut causes = self.0.lock();
        causes.retain(|_, cause| cause.left_out > 0 || now.saturating_sub(cause.since) < WINDOW);
        let begun = || Cause { since: now, keys: HashSet::new(), left_out: 0 };
        let cause = causes.entry(cause.to_owned()).or_insert_with(begun);
        let is_over = now.saturating_sub(cause.since) >= WINDOW;
        let left_out = if is_over { std::mem::replace(cause, begun()).left_out } else { 0 };
        if cause.keys.len() >= lines_max || cause.keys.contains(key) {
            cause.left_out += 1;
            return None;
        }
        cause.keys.insert(key.to_owned());
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once_a_minute_and_a_refused_key_too() {
        let (told, at) = (Told::default(), Duration::from_secs);
        assert_eq!(told.take(at(1), "Unreachable", "a", 1), Some(0));
        for second in 1..61 {
            assert_eq!(told.take(at(second), "Unreachable", &format!("{second}"), 1), None);
        }
        assert_eq!(told.take(at(61), "Unreachable", "b", 1), Some(60));
        let denied = |second, key: &str| told.take(at(second), "AccessDenied", key, LINES_MAX);
        let refused = (0..100).filter(|key| denied(61, &format!("{key}")).is_some());
        assert_eq!(refused.count(), LINES_MAX);
        assert_eq!(denied(62, "0"), None);
        assert_eq!(denied(121, "0"), Some(91));
        assert_eq!(denied(500, "0"), Some(0));
        assert_eq!(told.is_news(at(500), "list", "cannot connect to h:1: refused"), Some(0));
        assert_eq!(told.is_news(at(501), "list", "cannot connect to h:1: broken"), None);
        assert_eq!(told.is_news(at(501), "list", "no answer within 30 s"), Some(0));
    }
}
