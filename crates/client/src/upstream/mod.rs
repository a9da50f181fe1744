//! A bucket of another store, used by many tasks concurrently.
//!
//! Why:        a remote file store has many requests in progress; their memory and the load on the store must be
//!             limited.
//! Layout:     `room` limits concurrency, `multipart` sends large objects by a `grid`, `objects` writes and copies with metadata,
//!             `listed` reads a page's metadata, `meter` counts requests, `way` is how they get there, `store` names who answers.
//! Invariants: U1 at most `Limits` requests and bytes are in progress; a response's bytes count until it is dropped.
//!             U2 a request that waits for its retry holds no slot.
//!             U3 a range that was read is of one state of the object, and its ETag is returned.
//! Not here:   blocking calls (`bucket`), retries (`retry`).

mod grid;
mod listed;
mod meter;
mod multipart;
mod objects;
mod room;
mod store;
mod way;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderName, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Method};
use margay_env::Env;
use md5::{Digest, Md5};

pub use self::grid::Grid;
pub use self::listed::described;
pub use self::meter::{Contact, Meter, Metered, Rate, Silence};
pub use self::multipart::{OpenUpload, PartOf, Source};
pub use self::objects::{Metadata, StateOf, WRITE_ID, goes_together};
use self::room::Room;
pub use self::room::{Flow, Held, Limits};
pub use self::store::StoreName;
use self::way::Way;
pub use self::way::{Carried, Carrier};
use crate::calls::{Calls, late};
use crate::client::{Answer, Ask, ListQuery};
use crate::condition::{Condition, etag_value, range_header};
use crate::error::ClientError;
use crate::retry::{self, Budget};
use crate::target::Target;
use crate::xml;

/// Cheap to clone.
#[derive(Clone)]
pub struct Upstream(Arc<Inner>);

struct Inner {
    way: Way,
    bucket: String,
    room: Room,
    budget: Budget,
    meter: Meter,
    /// By its first answer.
    store: OnceLock<StoreName>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Upstream {} at {:?}", self.0.bucket, self.0.way)
    }
}

/// The required state of an object.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    Any,
    /// The state with this ETag; otherwise the error's status is 412.
    Same(&'a str),
    /// Any state except the one with this ETag.
    Other(&'a str),
}

/// Bytes of an object.
#[derive(Debug)]
pub struct Fetched {
    pub bytes: Bytes,
    pub etag: String,
    /// Of the whole object.
    pub size: u64,
    /// The bytes' share of the limit, released on drop.
    pub held: Held,
}

/// Facts about an object from a HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    pub etag: String,
    pub size: u64,
    pub headers: HeaderMap,
}

impl Upstream {
    /// Sends no request yet.
    pub fn new(target: Arc<Target>, bucket: &str, limits: Limits) -> Upstream {
        Upstream::by(Way::Connections(Calls::new(target, limits.requests_max)), bucket, limits)
    }

    /// A bucket that requests reach by this carrier.
    pub fn carried(carrier: Arc<dyn Carrier>, bucket: &str, limits: Limits) -> Upstream {
        Upstream::by(Way::Carrier(carrier), bucket, limits)
    }

    fn by(way: Way, bucket: &str, limits: Limits) -> Upstream {
        let (bucket, room) = (bucket.to_owned(), Room::new(limits));
        let meter = Meter::new(Env::real().clock);
        Upstream(Arc::new(Inner { way, bucket, room, budget: Budget::default(), meter, store: OnceLock::new() }))
    }

    /// The bucket and its store, for people.
    pub fn name(&self) -> String {
        format!("{} at {:?}", self.0.bucket, self.0.way)
    }

    /// Counters of all its requests.
    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Who answers; `None`: it has not answered with success yet.
    pub fn store(&self) -> Option<&StoreName> {
        self.0.store.get()
    }

    /// Requests in progress, and how many may be.
    pub fn flow(&self) -> Flow {
        self.0.room.flow()
    }

    /// `None` if the object does not exist.
    pub async fn describe(&self, key: &str) -> Result<Option<Described>, ClientError> {
        let ask = self.ask(Method::HEAD, key);
        match self.send(&ask).await {
            Ok(answer) => {
                let size = number(&answer, CONTENT_LENGTH).ok_or_else(|| nonsense(&ask, "no length"))?;
                Ok(Some(Described { etag: answer.etag(), size, headers: answer.headers }))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a range that is not empty; returns less if the object ends earlier. `None`: the object still has the ETag
    /// of [`Wanted::Other`].
    pub async fn get(&self, key: &str, range: Range<u64>, wanted: Wanted<'_>) -> Result<Option<Fetched>, ClientError> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Err(usage("a range without a byte cannot be asked for"));
        }
        let held = self.0.room.hold_fetched(len).await?;
        let mut ask = self.ask(Method::GET, key);
        ask.answer_bytes_max = usize::try_from(len).map_err(|_| usage("a range is larger than memory"))?;
        ask.headers.push(range_header(range.clone()));
        match wanted {
            Wanted::Any => {}
            Wanted::Same(etag) => ask.headers.push((IF_MATCH, etag_value(etag)?)),
            Wanted::Other(etag) => ask.headers.push((IF_NONE_MATCH, etag_value(etag)?)),
        }
        let answer = match self.send(&ask).await {
            Err(error) if error.status() == Some(304) && matches!(wanted, Wanted::Other(_)) => return Ok(None),
            outcome => outcome?,
        };
        // A store without support for ranges sends the object from its beginning.
        let (first, size) = content_range(&answer).ok_or_else(|| nonsense(&ask, "no range"))?;
        let expected = range.end.min(size).saturating_sub(range.start);
        if first != range.start || answer.body.len() as u64 != expected {
            return Err(nonsense(&ask, "another range than was asked for"));
        }
        let etag = answer.etag();
        if matches!(wanted, Wanted::Same(same) if same != etag) {
            return Err(nonsense(&ask, "another ETag than was asked for"));
        }
        Ok(Some(Fetched { bytes: answer.body, etag, size, held }))
    }

    /// Puts an object in one request; returns its ETag.
    ///
    /// If a response was lost and the condition no longer holds, an object of that key with the same bytes counts as
    /// this one. So a caller that takes locks with conditions must send unique bytes.
    pub async fn put(&self, key: &str, body: Bytes, condition: Condition<'_>) -> Result<String, ClientError> {
        let _held = self.0.room.hold_sent(body.len() as u64).await?;
        let mut ask = Ask { body, ..self.ask(Method::PUT, key) };
        ask.headers.extend(condition.header()?);
        let (outcome, unsure) = self.send_unsure(&ask).await;
        match outcome {
            Err(error) if unsure && error.status() == Some(412) => {
                let etag = format!("\"{:x}\"", Md5::digest(&ask.body));
                let there = self.describe(key).await?;
                if there.is_some_and(|there| there.etag == etag) { Ok(etag) } else { Err(error) }
            }
            outcome => outcome.map(|answer| answer.etag()),
        }
    }

    /// Succeeds if the object does not exist.
    pub async fn delete(&self, key: &str) -> Result<(), ClientError> {
        match self.send(&self.ask(Method::DELETE, key)).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// One page of a listing.
    pub async fn list(&self, query: &ListQuery<'_>) -> Result<xml::Page, ClientError> {
        let ask = Ask { query: query.encode(), ..self.ask(Method::GET, "") };
        let answer = self.send(&ask).await?;
        xml::parse_page(&answer.body).map_err(|reason| nonsense(&ask, &reason))
    }

    /// Asks once whether the bucket answers, beside all limits; what it answers counts in the meter alone.
    pub async fn look(&self, time_max: Duration) {
        let query = ListQuery { keys_max: 1, ..ListQuery::default() }.encode();
        let ask = Ask { query, ..self.ask(Method::GET, "") };
        let begun = self.0.meter.begin(&ask, true);
        let outcome = tokio::time::timeout(time_max, self.0.way.once(&ask)).await;
        begun.ended(&outcome.unwrap_or_else(|_| Err(late(&ask, time_max))));
    }

    fn ask(&self, method: Method, key: &str) -> Ask {
        Ask::new(method, &self.0.bucket, key)
    }

    async fn send(&self, ask: &Ask) -> Result<Answer, ClientError> {
        self.send_unsure(ask).await.0
    }

    /// Also returns whether an earlier attempt may have succeeded although its response was lost.
    async fn send_unsure(&self, ask: &Ask) -> (Result<Answer, ClientError>, bool) {
        self.send_while(ClientError::is_passing, ask).await
    }

    /// Not again after an attempt that may have succeeded.
    async fn send_once(&self, ask: &Ask) -> Result<Answer, ClientError> {
        self.send_while(retry::is_passing_undone, ask).await.0
    }

    /// As `send_unsure`, again after failures that are worth it.
    async fn send_while(
        &self,
        is_worth_another: fn(&ClientError) -> bool,
        ask: &Ask,
    ) -> (Result<Answer, ClientError>, bool) {
        let (inner, unsure, is_again) = (&*self.0, AtomicBool::new(false), AtomicBool::new(false));
        let once = || async {
            let slot = inner.room.slot().await;
            let begun = inner.meter.begin(ask, is_again.swap(true, Ordering::Relaxed));
            let outcome = inner.way.once(ask).await;
            begun.ended(&outcome);
            if let Ok(answer) = &outcome {
                inner.store.get_or_init(|| StoreName::told(&answer.headers, inner.way.place()));
            }
            let status = outcome.as_ref().map_or_else(ClientError::status, |_| Some(200));
            // A connection that broke says nothing.
            if let Some(status) = status {
                slot.answered(matches!(status, 429 | 503));
            }
            drop(slot);
            let lost = matches!(outcome, Err(ClientError::Transport { .. } | ClientError::Timeout { .. }));
            // A server that answers 500 or 503 may have executed the request.
            let broken = matches!(&outcome, Err(error) if error.status().is_some_and(|status| status >= 500));
            unsure.fetch_or(lost || broken, Ordering::Relaxed);
            outcome
        };
        let pause = |length| inner.way.pause(length);
        let outcome = retry::until_done(is_worth_another, retry::TRIES_MAX, Some(&inner.budget), once, pause).await;
        (outcome, unsure.into_inner())
    }
}

fn usage(text: &str) -> ClientError {
    ClientError::Usage(text.to_owned())
}

fn nonsense(ask: &Ask, reason: &str) -> ClientError {
    let request = format!("{} /{}/{}", ask.method, ask.bucket, ask.key);
    ClientError::Nonsense { request, reason: reason.to_owned() }
}

fn number(answer: &Answer, name: HeaderName) -> Option<u64> {
    answer.headers.get(name)?.to_str().ok()?.parse().ok()
}

/// First byte and size of the whole object.
fn content_range(answer: &Answer) -> Option<(u64, u64)> {
    let (range, size) = answer.headers.get(CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, size.parse().ok()?))
}
