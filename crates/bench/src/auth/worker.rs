//! One connection of a case: take the next object, send or fetch it, note when it ended and how long it took.
//!
//! Why:        the body and its hash are ready before the clock of a request starts, so a latency is the server's and
//!             the wire's, and the signature's.
//! Invariants: every object of a PUT case is taken by one connection, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::Clock;

use super::bodies::Bodies;
use super::case::Case;
use super::samples::Samples;
use crate::error::BenchError;
use crate::progress::Progress;
use crate::random::mix;
use crate::stop::Stop;
use crate::target::Target;
use margay_client::ClientError;
use margay_client::client::Client;
use margay_client::connection::Connection;
use margay_client::payload::Payload;

/// A request without an answer for this long, in seconds, is given up and its connection dropped.
const ANSWER_SECONDS_MAX: u64 = 60;
/// Pause after a failed connection, in milliseconds, so that a dead server is not hammered.
const RECONNECT_MS: u64 = 100;

/// What all connections of a case share.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) case: Case,
    pub(super) target: Arc<Target>,
    pub(super) bucket: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    pub(super) bodies: Arc<Bodies>,
    pub(super) keys: u64,
    pub(super) next: AtomicU64,
    pub(super) begin: Duration,
    pub(super) limit: Duration,
    pub(super) progress: Progress,
}

/// The name of an object.
pub(super) fn key(index: u64) -> String {
    format!("k/{index:08}")
}

impl Job {
    pub(super) fn client(&self) -> Client {
        Client::with_scheme(Connection::new(Arc::clone(&self.target)), self.case.scheme())
    }

    /// The next object, until all had their turn or the time is over.
    fn take(&self) -> Option<u64> {
        if self.stop.is_set() || self.clock.monotonic() >= self.begin + self.limit {
            return None;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index >= self.keys {
            return None;
        }
        // Reading in the order of writing would be too kind to any server.
        Some(if self.case.reads() { mix(index) % self.keys } else { index })
    }

    /// One request; gives the bytes of its body.
    pub(super) async fn perform(&self, client: &mut Client, index: u64) -> Result<u64, BenchError> {
        if self.case.reads() { self.get(client, index).await } else { self.put(client, index).await }
    }

    async fn put(&self, client: &mut Client, index: u64) -> Result<u64, BenchError> {
        let body = self.bodies.of(index);
        let payload = Payload::Whole(body.bytes.clone());
        client.put(&self.bucket, &key(index), payload, self.case.hash(body.sha256), None).await?;
        Ok(body.bytes.len() as u64)
    }

    async fn get(&self, client: &mut Client, index: u64) -> Result<u64, BenchError> {
        let wanted = &self.bodies.of(index).bytes;
        let hash = self.case.hash(EMPTY_SHA256);
        let (_, mut stream) = client.get(&self.bucket, &key(index), hash).await?;
        let (mut at, mut right) = (0, true);
        while let Some(chunk) = client.next_chunk(&mut stream).await? {
            right &= wanted.get(at..at + chunk.len()).is_some_and(|part| part == chunk);
            at += chunk.len();
        }
        if right && at == wanted.len() {
            return Ok(at as u64);
        }
        Err(BenchError::Nonsense { request: format!("GET {}", key(index)), reason: "wrong content".to_owned() })
    }
}

/// The SHA-256 of no bytes, which a GET has as its body.
const EMPTY_SHA256: [u8; 32] = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Works until nothing is left to take.
pub(super) async fn run(job: Arc<Job>) -> Samples {
    let mut samples = Samples::default();
    let mut client = job.client();
    while let Some(index) = job.take() {
        let started = job.clock.monotonic();
        let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
        let outcome = match tokio::time::timeout(limit, job.perform(&mut client, index)).await {
            Ok(outcome) => outcome,
            Err(_) => {
                // The answer may still come; on a new connection it cannot be taken for another one.
                client = job.client();
                Err(BenchError::Timeout { request: key(index), seconds: ANSWER_SECONDS_MAX })
            }
        };
        let now = job.clock.monotonic();
        match &outcome {
            Ok(bytes) => samples.success(now - job.begin, now - started, *bytes),
            Err(error) => samples.failure(now - job.begin, &error.kind()),
        }
        if let Err(BenchError::Client(ClientError::Connect { .. })) = outcome {
            tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
        }
        job.progress.add(1);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest, Sha256};

    #[test]
    fn the_digest_of_nothing() {
        assert_eq!(EMPTY_SHA256, <[u8; 32]>::from(Sha256::digest(b"")));
    }
}
