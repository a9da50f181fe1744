//! Counts the requests to a store, and tells whether it answers.
//!
//! Why:        who waits for a store wants to know whether it lives, how fast it is, and what it refuses.
//! Invariants: K1 a label is a fixed word or a code of the store, and there are at most `SERIES_MAX` pairs of them.
//!             K2 any answer counts as a sign of life, also one that refuses, except one that says that nobody is there to answer
//!                (`ABSENT`). A request for which there are no keys for now has no answer.
//!             K3 a request is in progress until its `Begun` is dropped.
//! Locking:    one short mutex.
//! Not here:   the text for Prometheus, log lines (the caller).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use margay_env::Clock;
use parking_lot::Mutex;

use crate::client::{Answer, Ask};
use crate::error::ClientError;

/// Pairs of a request and an outcome that are told apart; further ones count as `other`.
const SERIES_MAX: usize = 200;
/// Longest code of a store that is a label, in bytes.
const CODE_BYTES_MAX: usize = 48;
/// The rate is that of so many seconds.
const RATE_SECONDS: u64 = 60;
/// A store is silent if a request waits for so long, and longer by its bytes, while no other one is answered.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_BYTES_PER_SECOND: u64 = 64 << 10;

/// Statuses of a proxy or a store that has nobody who could answer.
const ABSENT: [u16; 3] = [502, 503, 504];

/// What was counted; times on the monotonic clock.
#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<(&'static str, String), u64>,
    retries: u64,
    sent_bytes: u64,
    fetched_bytes: u64,
    next: u64,
    /// When a request in progress began, and the bytes of it and of its answer.
    in_progress: BTreeMap<u64, (Duration, u64)>,
    last_answer: Option<Duration>,
    /// The first failure without an answer after the last answer, and the text of the newest one.
    failed: Option<(Duration, String)>,
    /// Those of the last minute that sent something, oldest first.
    seconds: VecDeque<Second>,
}

/// What one second has sent.
#[derive(Clone, Copy, Debug, Default)]
struct Second {
    number: u64,
    bytes: u64,
    objects: u64,
}

/// Requests to one store.
#[derive(Debug)]
pub struct Meter {
    clock: Arc<dyn Clock>,
    counts: Mutex<Counts>,
}

/// All counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// By request and outcome.
    pub requests: BTreeMap<(&'static str, String), u64>,
    pub retries: u64,
    pub sent_bytes: u64,
    pub fetched_bytes: u64,
}

/// Whether the store answers; both are ages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contact {
    pub last_answer: Option<Duration>,
    pub silent: Option<Silence>,
}

/// Requests without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    pub since: Duration,
    /// Of the newest failure; `None`: the request still waits.
    pub error: Option<String>,
}

/// Of the last minute, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    pub bytes: f64,
    /// Objects made, replaced or removed.
    pub objects: f64,
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct Begun<'m> {
    meter: &'m Meter,
    number: u64,
    kind: &'static str,
    bytes: u64,
}

/// The operation of a request.
fn kind_of(ask: &Ask) -> &'static str {
    let has = |name: &str| ask.query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let is_copy = || ask.headers.iter().any(|(name, _)| name == "x-amz-copy-source");
    match (&ask.method, ask.key.is_empty()) {
        (&Method::HEAD, _) => "head",
        (&Method::GET, true) => "list",
        (&Method::GET, false) => "get",
        (&Method::PUT, _) if has("partNumber") => "part",
        (&Method::PUT, _) if is_copy() => "copy",
        (&Method::PUT, _) => "put",
        (&Method::POST, true) if has("delete") => "delete_many",
        (&Method::POST, _) if has("uploads") => "begin_upload",
        (&Method::POST, _) if has("uploadId") => "complete_upload",
        (&Method::DELETE, _) if has("uploadId") => "abort_upload",
        (&Method::DELETE, _) => "delete",
        _ => "other",
    }
}

/// The outcome as a label.
fn outcome_of(answer: &Result<Answer, ClientError>) -> String {
    match answer {
        Ok(_) => "ok".to_owned(),
        Err(ClientError::Refused(refusal)) => {
            let is_plain =
                |code: &str| code.len() <= CODE_BYTES_MAX && code.bytes().all(|byte| byte.is_ascii_graphic());
            let code = if is_plain(&refusal.code) { &*refusal.code } else { "" };
            format!("{} {code}", refusal.status).trim_end().to_owned()
        }
        Err(ClientError::Connect { .. }) => "cannot connect".to_owned(),
        Err(ClientError::Transport { .. }) => "connection broke".to_owned(),
        Err(ClientError::Timeout { .. }) => "no answer".to_owned(),
        Err(ClientError::Nonsense { .. }) => "no sense".to_owned(),
        Err(ClientError::Usage(_) | ClientError::NoKeys(_) | ClientError::KeysLate(_) | ClientError::Source(_)) => {
            "not sent".to_owned()
        }
    }
}

/// Whether it is no sign of life (K2).
fn is_silence(error: &ClientError) -> bool {
    match error {
        ClientError::Connect { .. }
        | ClientError::Transport { .. }
        | ClientError::Timeout { .. }
        | ClientError::KeysLate(_) => true,
        ClientError::Refused(refusal) => ABSENT.contains(&refusal.status),
        _ => false,
    }
}

impl Meter {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Meter {
        Meter { clock, counts: Mutex::default() }
    }

    /// `is_again`: it was sent before.
    pub(crate) fn begin(&self, ask: &Ask, is_again: bool) -> Begun<'_> {
        let (now, kind) = (self.clock.monotonic(), kind_of(ask));
        let answer_bytes = if kind == "get" { ask.answer_bytes_max as u64 } else { 0 };
        let mut counts = self.counts.lock();
        counts.next += 1;
        counts.retries += u64::from(is_again);
        let number = counts.next;
        counts.in_progress.insert(number, (now, ask.body.len() as u64 + answer_bytes));
        Begun { meter: self, number, kind, bytes: ask.body.len() as u64 }
    }

    /// So many objects were removed by one request.
    pub(crate) fn removed(&self, objects: usize) {
        let now = self.clock.monotonic();
        self.counts.lock().add(now, 0, objects as u64);
    }

    pub fn read(&self) -> Metered {
        let counts = self.counts.lock();
        let (retries, sent_bytes, fetched_bytes) = (counts.retries, counts.sent_bytes, counts.fetched_bytes);
        Metered { requests: counts.requests.clone(), retries, sent_bytes, fetched_bytes }
    }

    pub fn contact(&self) -> Contact {
        let now = self.clock.monotonic();
        let counts = self.counts.lock();
        let ago = |at: Duration| now.saturating_sub(at);
        let last = counts.last_answer;
        let failed = counts.failed.as_ref();
        let silent = match (failed, counts.waits_since(now)) {
            (Some((at, error)), _) => Some(Silence { since: ago(*at), error: Some(error.clone()) }),
            (None, Some(at)) => Some(Silence { since: ago(at), error: None }),
            (None, None) => None,
        };
        Contact { last_answer: last.map(ago), silent }
    }

    /// As if a request had failed by this: somebody asked the store by another way.
    pub fn was_silent(&self, error: String) {
        let now = self.clock.monotonic();
        self.counts.lock().failed.get_or_insert((now, error));
    }

    pub fn rate(&self) -> Rate {
        let now = self.clock.monotonic().as_secs();
        let counts = self.counts.lock();
        let busy = || counts.seconds.iter().filter(|one| one.number + RATE_SECONDS > now);
        let Some(first) = busy().map(|one| one.number).next() else { return Rate::default() };
        let seconds = (now + 1 - first) as f64;
        let sum = |of: fn(&Second) -> u64| busy().map(of).sum::<u64>() as f64 / seconds;
        Rate { bytes: sum(|one| one.bytes), objects: sum(|one| one.objects) }
    }
}

impl Counts {
    /// Since when a request waits without patience.
    fn waits_since(&self, now: Duration) -> Option<Duration> {
        let waiting = self.in_progress.values().filter_map(|(begun, bytes)| {
            let since = (*begun).max(self.last_answer.unwrap_or_default());
            let patience = PATIENCE + Duration::from_secs(bytes / PATIENCE_BYTES_PER_SECOND);
            (now.saturating_sub(since) > patience).then_some(since)
        });
        waiting.min()
    }

    /// A request that began then has no answer.
    fn failed_at(&mut self, now: Duration, begun: Duration, error: String) {
        let own = begun.max(self.last_answer.unwrap_or_default());
        let since = self.waits_since(now).map_or(own, |since| since.min(own));
        let since = self.failed.as_ref().map_or(since, |(first, _)| *first);
        self.failed = Some((since, error));
    }

    fn add(&mut self, now: Duration, bytes: u64, objects: u64) {
        let number = now.as_secs();
        if self.seconds.back().is_none_or(|last| last.number < number) {
            self.seconds.push_back(Second { number, ..Second::default() });
        }
        while self.seconds.front().is_some_and(|first| first.number + RATE_SECONDS <= number) {
            self.seconds.pop_front();
        }
        if let Some(last) = self.seconds.back_mut() {
            last.bytes += bytes;
            last.objects += objects;
        }
    }
}

impl Begun<'_> {
    pub(crate) fn ended(self, answer: &Result<Answer, ClientError>) {
        let now = self.meter.clock.monotonic();
        let mut counts = self.meter.counts.lock();
        let mut series = (self.kind, outcome_of(answer));
        if counts.requests.len() >= SERIES_MAX && !counts.requests.contains_key(&series) {
            series.1 = "other".to_owned();
        }
        *counts.requests.entry(series).or_default() += 1;
        match answer {
            Ok(answer) => {
                counts.sent_bytes += self.bytes;
                counts.fetched_bytes += answer.body.len() as u64;
                let objects = u64::from(matches!(self.kind, "put" | "copy" | "complete_upload"));
                let bytes = if matches!(self.kind, "put" | "part") { self.bytes } else { 0 };
                if bytes + objects > 0 {
                    counts.add(now, bytes, objects);
                }
            }
            Err(error) if is_silence(error) => {
                let begun = counts.in_progress.get(&self.number).map_or(now, |(begun, _)| *begun);
                counts.failed_at(now, begun, error.to_string());
                return;
            }
            Err(ClientError::Refused(_) | ClientError::Nonsense { .. }) => {}
            Err(_) => return,
        }
        (counts.last_answer, counts.failed) = (Some(now), None);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.meter.counts.lock().in_progress.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;
    use margay_env::Timestamp;
    use margay_env::sim::SimClock;

    use super::*;
    use crate::error::Refusal;

    fn ok() -> Result<Answer, ClientError> {
        Ok(Answer { headers: HeaderMap::new(), body: Bytes::from_static(b"answer") })
    }

    fn unreachable() -> Result<Answer, ClientError> {
        Err(ClientError::Connect { address: "here".to_owned(), source: std::io::ErrorKind::ConnectionRefused.into() })
    }

    fn put(bytes: usize) -> Ask {
        Ask { body: vec![0; bytes].into(), ..Ask::new(Method::PUT, "bucket", "key") }
    }

    #[test]
    fn requests_are_counted_by_kind_and_outcome() {
        let meter = Meter::new(Arc::new(SimClock::new(Timestamp(0))));
        meter.begin(&put(10), false).ended(&ok());
        meter.begin(&put(5), true).ended(&ok());
        let refusal = Refusal { status: 403, code: "AccessDenied".to_owned(), ..Refusal::default() };
        meter.begin(&Ask::copy("b", "a", "c"), false).ended(&Err(ClientError::Refused(Box::new(refusal))));
        meter.begin(&Ask::delete_many("b", ["a"]), false).ended(&unreachable());
        let read = meter.read();
        let count = |kind, outcome: &str| read.requests.get(&(kind, outcome.to_owned())).copied().unwrap_or_default();
        assert_eq!((count("put", "ok"), count("copy", "403 AccessDenied")), (2, 1));
        assert_eq!((count("delete_many", "cannot connect"), read.retries), (1, 1));
        assert_eq!((read.sent_bytes, read.fetched_bytes), (15, 12));
        for number in 0..2 * SERIES_MAX {
            let refusal = Refusal { status: 400, code: format!("Code{number}"), ..Refusal::default() };
            meter.begin(&put(0), false).ended(&Err(ClientError::Refused(Box::new(refusal))));
        }
        assert!(meter.read().requests.len() <= SERIES_MAX + 1);
    }

    #[test]
    fn a_store_is_silent_until_it_answers() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let meter = Meter::new(Arc::clone(&clock) as Arc<dyn Clock>);
        assert_eq!(meter.contact(), Contact::default());
        meter.begin(&put(1), false).ended(&ok());
        clock.advance(Duration::from_secs(100));
        assert_eq!(meter.contact(), Contact { last_answer: Some(Duration::from_secs(100)), silent: None });
        meter.begin(&put(1), false).ended(&unreachable());
        clock.advance(Duration::from_secs(5));
        let silent = meter.contact().silent.unwrap();
        assert!(silent.since == Duration::from_secs(5) && silent.error.unwrap().contains("cannot connect"));
        meter.begin(&put(1), true).ended(&ok());
        assert_eq!(meter.contact().silent, None);
        let refused = |status| Err(ClientError::Refused(Box::new(Refusal { status, ..Refusal::default() })));
        meter.begin(&put(1), false).ended(&refused(503));
        assert!(meter.contact().silent.is_some(), "a proxy without a store");
        meter.begin(&put(1), false).ended(&refused(403));
        assert_eq!(meter.contact().silent, None);
        meter.was_silent("asked elsewhere".to_owned());
        clock.advance(Duration::from_secs(5));
        meter.begin(&put(1), false).ended(&Err(ClientError::KeysLate("no role for now".to_owned())));
        let silence = Silence { since: Duration::from_secs(5), error: Some("no role for now".to_owned()) };
        assert_eq!(meter.contact().silent, Some(silence));
        meter.begin(&put(1), true).ended(&ok());
        let waits = meter.begin(&put(10 * PATIENCE_BYTES_PER_SECOND as usize), false);
        clock.advance(Duration::from_secs(20));
        assert_eq!(meter.contact().silent, None, "so many bytes take time");
        clock.advance(Duration::from_secs(1));
        assert_eq!(meter.contact().silent, Some(Silence { since: Duration::from_secs(21), error: None }));
        meter.begin(&put(1), false).ended(&unreachable());
        let since = meter.contact().silent.map(|silence| silence.since);
        assert_eq!(since, Some(Duration::from_secs(21)), "a later failure is not its begin");
        meter.counts.lock().failed = None;
        drop(waits);
        assert_eq!(meter.contact().silent, None, "nobody waits any more");
    }

    #[test]
    fn the_rate_is_of_the_busy_part_of_the_last_minute() {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        let meter = Meter::new(Arc::clone(&clock) as Arc<dyn Clock>);
        clock.advance(Duration::from_secs(1000));
        assert_eq!(meter.rate(), Rate::default());
        for _ in 0..10 {
            meter.begin(&put(1000), false).ended(&ok());
            meter.removed(3);
            clock.advance(Duration::from_secs(1));
        }
        let rate = meter.rate();
        assert!((rate.bytes - 10_000.0 / 11.0).abs() < 1e-6 && (rate.objects - 40.0 / 11.0).abs() < 1e-6, "{rate:?}");
        clock.advance(Duration::from_secs(120));
        assert_eq!(meter.rate(), Rate::default());
    }
}
