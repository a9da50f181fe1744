//! A bucket of the benchmark's own: made, filled, emptied, removed.
//!
//! Why:        a benchmark must never touch data that it did not make.
//! Invariants: only a bucket that did not exist before is used, so whatever is in it came from here.
//! Not here:   what is measured inside (`ls`, `load`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use margay_env::Env;

use crate::error::BenchError;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::target::Target;
use margay_client::PayloadHash;
use margay_client::client::{Client, DELETE_KEYS_MAX, ListQuery};
use margay_client::connection::Connection;
use margay_client::payload::Payload;

/// Connections that fill a bucket.
pub const FILL_CONNECTIONS: usize = 64;
/// Passes over a bucket before giving up on emptying it: someone else must be writing into it.
const EMPTY_PASSES_MAX: usize = 4;

/// A made-up name that no one else uses.
pub fn bucket_name(env: &Env) -> String {
    format!("margay-bench-{:012x}", env.random.next_u64() >> 16)
}

#[derive(Debug)]
pub struct Scratch {
    pub bucket: String,
    target: Arc<Target>,
    env: Env,
    stop: Stop,
}

/// Names and bodies of the objects to make; called from many tasks.
pub type KeyOf = Arc<dyn Fn(u64) -> String + Send + Sync>;
pub type BodyOf = Arc<dyn Fn(u64) -> Payload + Send + Sync>;

impl Scratch {
    /// Makes the bucket; refuses one that exists.
    pub async fn create(env: &Env, target: &Arc<Target>, bucket: String, stop: Stop) -> Result<Scratch, BenchError> {
        let mut client = Client::new(Connection::new(Arc::clone(target)));
        match client.head_bucket(&bucket).await {
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error.into()),
            Ok(()) => {
                return Err(BenchError::Usage(format!(
                    "the bucket {bucket} exists already; a benchmark only works in a bucket that it makes and removes itself"
                )));
            }
        }
        client.make_bucket(&bucket).await?;
        Ok(Scratch { bucket, target: Arc::clone(target), env: env.clone(), stop })
    }

    pub fn client(&self) -> Client {
        Client::new(Connection::new(Arc::clone(&self.target)))
    }

    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Puts objects 0..count over many connections, in no strict order.
    pub async fn fill(&self, label: &str, count: u64, key_of: KeyOf, body_of: BodyOf) -> Result<(), BenchError> {
        let next = Arc::new(AtomicU64::new(0));
        let failed = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Progress::new(&self.env, label, count));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..FILL_CONNECTIONS.min(usize::try_from(count).unwrap_or(FILL_CONNECTIONS)) {
            let (next, progress, stop) = (Arc::clone(&next), Arc::clone(&progress), self.stop.clone());
            let (key_of, body_of, failed) = (Arc::clone(&key_of), Arc::clone(&body_of), Arc::clone(&failed));
            let (mut client, bucket) = (self.client(), self.bucket.clone());
            tasks.spawn(async move {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || failed.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                    stop.check()?;
                    client.put(&bucket, &key_of(index), body_of(index), PayloadHash::Unsigned, None).await?;
                    progress.add(1);
                }
            });
        }
        let mut outcome = Ok(());
        while let Some(finished) = tasks.join_next().await {
            let finished = finished.expect("a filling task does not panic");
            if finished.is_err() && outcome.is_ok() {
                // The others finish their request: one cut off could still make its object after the cleaning.
                failed.store(true, Ordering::Relaxed);
                outcome = finished;
            }
        }
        outcome
    }

    /// As [`Scratch::fill`] with tiny objects.
    pub async fn fill_small(&self, label: &str, count: u64, key_of: KeyOf) -> Result<(), BenchError> {
        self.fill(label, count, key_of, Arc::new(|_| Payload::Whole(Bytes::from_static(b"margay\n")))).await
    }

    /// Deletes every object and the bucket, also when the run was stopped.
    pub async fn remove(self) -> Result<(), BenchError> {
        let mut client = self.client();
        for _ in 0..EMPTY_PASSES_MAX {
            if self.empty_once(&mut client).await? == 0 {
                return Ok(client.remove_bucket(&self.bucket).await?);
            }
        }
        let reason = format!("still not empty after {EMPTY_PASSES_MAX} passes of deletion");
        Err(BenchError::Nonsense { request: format!("empty {}", self.bucket), reason })
    }

    /// One pass over the bucket; gives the number of deleted keys.
    async fn empty_once(&self, client: &mut Client) -> Result<usize, BenchError> {
        let mut deleted = 0;
        let mut last = String::new();
        loop {
            let start_after = (!last.is_empty()).then_some(last.as_str());
            let page = client.list(&self.bucket, &ListQuery { start_after, ..ListQuery::default() }).await?;
            let keys: Vec<&str> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
            for keys in keys.chunks(DELETE_KEYS_MAX) {
                client.delete_many(&self.bucket, keys).await?;
            }
            deleted += keys.len();
            match page.entries.into_iter().next_back() {
                Some(entry) if page.truncated => last = entry.key,
                _ => return Ok(deleted),
            }
        }
    }
}

/// Runs `measure` in a bucket of its own and removes the bucket whatever came out; what came of both.
pub async fn with_scratch<T>(
    scratch: Scratch,
    measure: impl AsyncFnOnce(&Scratch) -> Result<T, BenchError>,
) -> (Result<T, BenchError>, Result<(), BenchError>) {
    let outcome = measure(&scratch).await;
    // What fails after Ctrl-C was stopped by it: programs that were started hear that key, too.
    let outcome = outcome.or_else(|error| scratch.stop.check().and(Err(error)));
    let bucket = scratch.bucket.clone();
    let removed = scratch.remove().await;
    if let Err(leftover) = &removed {
        eprintln!("the bucket {bucket} could not be removed: {leftover}");
    }
    (outcome, removed)
}
