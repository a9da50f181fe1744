//! Takes spans from the queue and posts them to a collector.
//!
//! Invariants: P1 connecting and answering are bounded in time, messages and answers in size.
//!             P2 a message is tried `TRIES_MAX` times where the protocol allows it again; then its spans are counted as lost.
//!             P3 when the server stops, what waits is sent within `CLOSE_TIME_MAX`; the rest is lost.
//! Not here:   what goes into the queue (`spans`), its form (`otlp`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use margay_client::endpoint::Endpoint;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Counts, Ended, otlp};

/// Spans of one message.
const BATCH_SPANS_MAX: usize = 512;
/// Bytes of spans in one message, about.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// How long a span waits for others.
const BATCH_TIME_MAX: Duration = Duration::from_secs(2);
/// From the first byte of a message to the end of its answer, connecting included.
const POST_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest body of an answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// Tries of one message.
const TRIES_MAX: u32 = 4;
/// Before the second try; doubled before each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that a collector may ask for.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// For what waits when the server stops.
pub(super) const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);
/// Between two lines in the log about a collector that takes nothing.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// Why a message was not taken.
#[derive(Debug)]
struct NotTaken {
    reason: String,
    /// Whether it may be sent again, and when if the collector says so.
    again: Option<Option<Duration>>,
}

impl NotTaken {
    fn unanswered(reason: String) -> NotTaken {
        NotTaken { reason, again: Some(None) }
    }
}

pub(super) struct Exporter {
    pub endpoint: Endpoint,
    pub resource: Vec<(&'static str, String)>,
    pub counts: Arc<Counts>,
    open: Option<SendRequest<Full<Bytes>>>,
    told: Option<Instant>,
}

impl Exporter {
    pub(super) fn new(endpoint: Endpoint, resource: Vec<(&'static str, String)>, counts: Arc<Counts>) -> Exporter {
        Exporter { endpoint, resource, counts, open: None, told: None }
    }

    /// Sends until the end is wished and the queue is empty.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Ended>, mut end: watch::Receiver<bool>) {
        loop {
            let first = tokio::select! {
                first = queue.recv() => first,
                () = wished(&mut end), if !queue.is_closed() => {
                    queue.close();
                    continue;
                }
            };
            let Some(first) = first else { return };
            let batch = gather(first, &mut queue, &mut end).await;
            self.counts.waiting.fetch_sub(batch.len() as u64, Ordering::Relaxed);
            self.send(&batch).await;
        }
    }

    async fn send(&mut self, batch: &[Ended]) {
        let (message, count) = (Bytes::from(otlp::message(&self.resource, batch)), batch.len() as u64);
        let mut wait = FIRST_WAIT;
        for left in (0..TRIES_MAX).rev() {
            let posted = tokio::time::timeout(POST_TIME_MAX, self.post(message.clone())).await;
            let posted = posted.unwrap_or_else(|_| {
                self.open = None;
                Err(NotTaken::unanswered(format!("no answer within {} s", POST_TIME_MAX.as_secs())))
            });
            let refused = match posted {
                Ok(rejected) => {
                    let rejected = rejected.min(count);
                    self.counts.rejected.fetch_add(rejected, Ordering::Relaxed);
                    self.counts.sent.fetch_add(count - rejected, Ordering::Relaxed);
                    return;
                }
                Err(refused) => refused,
            };
            self.tell(&refused.reason);
            let Some(asked) = refused.again.filter(|_| left > 0) else { break };
            tokio::time::sleep(asked.unwrap_or(wait).min(WAIT_MAX)).await;
            wait *= 2;
        }
        self.counts.not_taken.fetch_add(count, Ordering::Relaxed);
    }

    fn tell(&mut self, reason: &str) {
        let now = Instant::now();
        if self.told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY) {
            self.told = Some(now);
            tracing::warn!(collector = ?self.endpoint, reason, "spans are not taken; requests go on without");
        }
    }

    /// How many of the spans the collector rejected.
    async fn post(&mut self, message: Bytes) -> Result<u64, NotTaken> {
        // The collector may have closed the idle connection: that is not a failure.
        if let Some(sender) = self.open.take().filter(SendRequest::is_ready)
            && let done @ (Ok(_) | Err(NotTaken { again: None, .. })) = self.exchange(sender, message.clone()).await
        {
            return done;
        }
        let sender = self.endpoint.connect().await.map_err(NotTaken::unanswered)?;
        self.exchange(sender, message).await
    }

    async fn exchange(&mut self, mut sender: SendRequest<Full<Bytes>>, message: Bytes) -> Result<u64, NotTaken> {
        let request = self.endpoint.request(Method::POST, message.to_vec()).map_err(NotTaken::unanswered)?;
        let answer = sender.send_request(request).await.map_err(|error| NotTaken::unanswered(error.to_string()))?;
        let status = answer.status();
        let asked = answer.headers().get(http::header::RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        if status.is_success() {
            // The spans are there whatever the body was; only the connection cannot be used again.
            let body = body.map(|body| body.to_bytes());
            self.open = body.is_ok().then_some(sender);
            return Ok(body.map_or(0, |body| otlp::rejected(&body)));
        }
        let again = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        let again = again.then_some(asked.map(Duration::from_secs));
        Err(NotTaken { reason: format!("answered {status}"), again })
    }
}

/// Returns when the end is wished, or nobody is left who could wish it.
async fn wished(end: &mut watch::Receiver<bool>) {
    let _ = end.wait_for(|ended| *ended).await;
}

/// The first one and what comes soon after it.
async fn gather(first: Ended, queue: &mut mpsc::Receiver<Ended>, end: &mut watch::Receiver<bool>) -> Vec<Ended> {
    let (mut bytes, due) = (first.bytes(), tokio::time::sleep(BATCH_TIME_MAX));
    let mut batch = vec![first];
    tokio::pin!(due);
    while batch.len() < BATCH_SPANS_MAX && bytes < BATCH_BYTES_MAX {
        tokio::select! {
            biased;
            next = queue.recv() => match next {
                Some(next) => {
                    bytes += next.bytes();
                    batch.push(next);
                }
                None => break,
            },
            () = &mut due => break,
            () = wished(end), if !queue.is_closed() => queue.close(),
        }
    }
    batch
}
