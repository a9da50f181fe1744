//! One connection of a load: choose, send, wait, check, count, again.
//!
//! Why:        the loop between two requests must cost microseconds, so that the server is what is measured.
//! Invariants: W1 a request is counted when it was due (open loop) or begun (closed loop) in the measured time,
//!             also when it ends later. W2 one request at a time.
//! Locking:    the statistics of a thread are shared by its workers only, which never run at the same moment.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use margay_env::Clock;

use super::content::Content;
use super::distribution::Chooser;
use super::mix::Operation;
use super::pace::Pacer;
use super::preset::Workload;
use super::series::{Failure, Series};
use super::sizes::Sizes;
use super::stats::Stats;
use crate::error::BenchError;
use crate::random::{Rng, mix};
use crate::stop::Stop;
use crate::target::Target;
use margay_client::ClientError;
use margay_client::client::{Client, ListQuery};
use margay_client::connection::Connection;
use margay_client::{PayloadHash, Scheme};

/// Pause after a failed connection, in milliseconds, so that a dead server is not hammered.
const RECONNECT_MS: u64 = 100;
/// Keys of its own that a worker remembers to delete.
const OWN_KEYS_MAX: usize = 100_000;
/// How long after its end an open loop still works off requests that were due, in seconds.
const BACKLOG_SECONDS_MAX: u64 = 10;

/// What all workers of a run share.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) target: Arc<Target>,
    pub(super) bucket: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) stop: Stop,
    pub(super) workload: Workload,
    pub(super) hashed: bool,
    pub(super) anonymous: bool,
    pub(super) seed: u64,
    /// A request without an answer for this long is given up and its connection dropped.
    pub(super) timeout_seconds: u64,
    pub(super) content: Content,
    /// When the measured time begins, on the monotonic clock.
    pub(super) begin: Duration,
    pub(super) measured: Duration,
    pub(super) pacer: Option<Arc<Pacer>>,
}

/// The name of an object made beforehand.
pub(super) fn prepared_key(index: u64) -> String {
    format!("k/{index:08}")
}

/// The size of an object made beforehand.
pub(super) fn prepared_size(sizes: &Sizes, seed: u64, index: u64) -> u64 {
    sizes.draw(&mut Rng::new(mix(index ^ seed)))
}

impl Job {
    fn end(&self) -> Duration {
        self.begin + self.measured
    }

    fn client(&self) -> Client {
        let connection = Connection::new(Arc::clone(&self.target));
        let scheme = if self.anonymous { Scheme::Anonymous } else { Scheme::V4 };
        Client::with_scheme(connection, scheme)
    }
}

struct Worker {
    job: Arc<Job>,
    client: Client,
    rng: Rng,
    chooser: Chooser,
    number: u64,
    /// PUTs so far; makes keys and stamps that no one else makes.
    puts: u64,
    /// Keys that this worker made and has not deleted.
    own: Vec<String>,
}

/// Works until the time is over and counts into `stats`.
pub(super) async fn run(job: Arc<Job>, number: u64, stats: Arc<Mutex<Stats>>) {
    let rng = Rng::new(mix(job.seed) ^ mix(number + 1));
    let Workload { distribution, keys, connections, .. } = job.workload;
    let chooser = Chooser::new(distribution, keys, number, connections);
    let mut worker = Worker { client: job.client(), rng, chooser, number, puts: 0, own: Vec::new(), job };
    while let Some(due) = worker.next_due().await {
        let operation = worker.choose();
        let outcome = worker.perform(operation).await;
        let now = worker.job.clock.monotonic();
        if due >= worker.job.begin {
            let (failure, bytes) = match &outcome {
                Ok(bytes) => (None, *bytes),
                Err(error) => (Some(Failure::of(error)), 0),
            };
            let mut stats = stats.lock().expect("no holder panics");
            stats.add(Series { operation, failure }, now - worker.job.begin, now - due, bytes);
        }
        if let Err(BenchError::Client(ClientError::Connect { .. })) = outcome {
            tokio::time::sleep(Duration::from_millis(RECONNECT_MS)).await;
        }
    }
}

impl Worker {
    /// When the next request is due; None when the time is over.
    async fn next_due(&self) -> Option<Duration> {
        if self.job.stop.is_set() {
            return None;
        }
        match &self.job.pacer {
            None => {
                let now = self.job.clock.monotonic();
                (now < self.job.end()).then_some(now)
            }
            Some(pacer) => {
                if self.job.clock.monotonic() >= self.job.end() + Duration::from_secs(BACKLOG_SECONDS_MAX) {
                    return None;
                }
                pacer.next().await
            }
        }
    }

    fn choose(&mut self) -> Operation {
        let number = self.rng.below(self.job.workload.mix.total());
        match self.job.workload.mix.pick(number) {
            // With nothing left to delete the worker makes something.
            Operation::Delete if self.own.is_empty() => Operation::Put,
            operation => operation,
        }
    }

    /// Does one request; gives the bytes of its body, either way.
    async fn perform(&mut self, operation: Operation) -> Result<u64, BenchError> {
        let seconds = self.job.timeout_seconds;
        let limit = Duration::from_secs(seconds);
        let outcome = match operation {
            Operation::Put => tokio::time::timeout(limit, self.put()).await,
            Operation::Get => tokio::time::timeout(limit, self.get()).await,
            Operation::Head => tokio::time::timeout(limit, self.head()).await,
            Operation::List => tokio::time::timeout(limit, self.list()).await,
            Operation::Delete => tokio::time::timeout(limit, self.delete()).await,
        };
        outcome.unwrap_or_else(|_| {
            // The answer may still come; on a new connection it cannot be taken for another one.
            self.client = self.job.client();
            Err(BenchError::Timeout { request: operation.name().to_owned(), seconds })
        })
    }

    fn some_key(&mut self) -> String {
        prepared_key(self.chooser.next(&mut self.rng))
    }

    async fn put(&mut self) -> Result<u64, BenchError> {
        let length = self.job.workload.sizes.draw(&mut self.rng);
        self.puts += 1;
        let key = match self.job.workload.overwrite {
            true => self.some_key(),
            false => format!("w{:05}/{:09}", self.number, self.puts),
        };
        let stamp = mix(self.number + 1) ^ self.puts;
        let (body, hash) = self.job.content.body(&key, length, stamp, self.job.hashed && !self.job.anonymous);
        self.client.put(&self.job.bucket, &key, body, hash, None).await?;
        if !self.job.workload.overwrite && self.own.len() < OWN_KEYS_MAX {
            self.own.push(key);
        }
        Ok(length)
    }

    async fn get(&mut self) -> Result<u64, BenchError> {
        let key = self.some_key();
        let hash = if self.job.hashed { PayloadHash::of(b"") } else { PayloadHash::Unsigned };
        let (info, mut body) = self.client.get(&self.job.bucket, &key, hash).await?;
        let mut check = self.job.workload.verify.then(|| self.job.content.check(&key, info.size));
        let mut bytes = 0;
        while let Some(chunk) = self.client.next_chunk(&mut body).await? {
            bytes += chunk.len() as u64;
            if let Some(check) = &mut check {
                check.feed(&chunk);
            }
        }
        match check.is_none_or(|check| check.finish() && self.job.workload.sizes.hold(bytes)) {
            true => Ok(bytes),
            false => Err(BenchError::Nonsense { request: format!("GET {key}"), reason: "wrong content".to_owned() }),
        }
    }

    async fn head(&mut self) -> Result<u64, BenchError> {
        let key = self.some_key();
        self.client.head(&self.job.bucket, &key).await?;
        Ok(0)
    }

    async fn list(&mut self) -> Result<u64, BenchError> {
        let start_after = self.some_key();
        let query = ListQuery { prefix: "k/", start_after: Some(&start_after), ..ListQuery::default() };
        let document = self.client.list_document(&self.job.bucket, &query).await?;
        Ok(document.len() as u64)
    }

    async fn delete(&mut self) -> Result<u64, BenchError> {
        let key = self.own.pop().expect("chosen only with a key to delete");
        self.client.delete(&self.job.bucket, &key).await?;
        Ok(0)
    }
}
