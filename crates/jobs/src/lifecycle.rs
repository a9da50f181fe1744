//! Expiry in the background: a round over all buckets with lifecycle rules, each day after midnight UTC.
//!
//! Why:        days end at midnight, so one round a day is enough; a bucket whose settings change is examined at once.
//! Invariants: L1 a bucket is examined again only when the day or the bucket's generation has changed.
//!             L2 at most `rate_max` removals a second; memory holds one page of a listing.
//!             L3 after a stop at any moment the next round resumes where this one was, or starts again.
//!             L4 a round uses a time that `clock` trusts, and the date of its own day.
//!             L5 where processes share a volume, the holder of a lease makes rounds; without it nothing is removed.
//! Not here:   one bucket (`pass`, its versions `replaced`), the rules (margay-s3), removals (margay-volume).

pub mod clock;
mod pass;
mod progress;
mod replaced;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::{Clock, Env};
use margay_metrics::{Exposition, Kind};
use margay_s3::lifecycle::{self, Days};
use margay_volume::{BucketInfo, Error, Lease, Setting, Volume};
use tokio::task::JoinHandle;

use self::clock::ClockGuard;
use self::pass::Pass;
use self::progress::{Progress, ProgressFile};

/// The lease of rounds: one process at a time makes them.
const LEASE: &str = "lifecycle";
/// Buckets read at a time.
const PAGE_BUCKETS: usize = 1000;
/// A changed bucket is noticed within this time.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(60);

/// Limits of expiry; see the settings of the same names.
#[derive(Clone, Copy, Debug)]
pub struct ExpiryLimits {
    /// Seconds.
    pub day: u32,
    /// Removals per second.
    pub rate_max: u64,
    /// How long a clock that is days ahead must run evenly to be trusted; zero: until the operator confirms it.
    pub clock_wait: Duration,
}

/// Counts since the server started.
#[derive(Debug, Default)]
struct Counters {
    rounds: AtomicU64,
    failed: AtomicU64,
    objects: AtomicU64,
    versions: AtomicU64,
    uploads: AtomicU64,
    skipped: AtomicU64,
}

/// Rate limiter for removals.
#[derive(Clone, Copy, Debug)]
struct Pace {
    between: Duration,
    /// When the next removal may happen, on the monotonic clock.
    next: Duration,
}

impl Pace {
    fn new(rate_max: u64) -> Pace {
        Pace {
            between: Duration::from_secs(1) / u32::try_from(rate_max.max(1)).unwrap_or(u32::MAX),
            next: Duration::ZERO,
        }
    }

    async fn next(&mut self, clock: &dyn Clock) {
        let now = clock.monotonic();
        let ahead = self.next.saturating_sub(now);
        self.next = self.next.max(now) + self.between;
        // Timers have no finer resolution.
        if ahead >= Duration::from_millis(1) {
            tokio::time::sleep(ahead).await;
        }
    }
}

/// The background task; ends when it is dropped.
#[derive(Debug)]
pub struct Expiry {
    pub clock: Arc<ClockGuard>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Expiry {
    /// Must be called inside a tokio runtime.
    pub fn start(env: &Env, volume: &Arc<Volume>, data: &Path, limits: ExpiryLimits) -> Expiry {
        let counters = Arc::new(Counters::default());
        let clock = ClockGuard::open(env, volume, data, limits.clock_wait);
        let rounds = Rounds::new(env, volume, data, limits, (&counters, &clock));
        let look_every = LOOK_EVERY_MAX.min(Duration::from_secs(limits.day.into()) / 4);
        Expiry { clock, counters, task: tokio::spawn(rounds.run(look_every)) }
    }

    pub fn stop(&self) {
        self.task.abort();
    }

    pub fn write_metrics(&self, out: &mut Exposition) {
        let counters = &self.counters;
        for (name, help, counter) in [
            ("margay_expiry_rounds_total", "Rounds over all buckets with lifecycle rules.", &counters.rounds),
            ("margay_expiry_failed_total", "Buckets whose pass failed; it is made again.", &counters.failed),
            ("margay_expiry_objects_total", "Objects removed, or hidden by a delete marker.", &counters.objects),
            ("margay_expiry_versions_total", "Replaced versions and delete markers removed.", &counters.versions),
            ("margay_expiry_uploads_total", "Unfinished uploads aborted.", &counters.uploads),
            ("margay_expiry_skipped_total", "Due, but replaced or locked meanwhile.", &counters.skipped),
        ] {
            out.value(name, Kind::Counter, help, counter.load(Ordering::Relaxed));
        }
        self.clock.write_metrics(out);
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The rounds, and the buckets that were already examined.
#[derive(Debug)]
struct Rounds {
    env: Env,
    volume: Arc<Volume>,
    days: Days,
    pace: Pace,
    counters: Arc<Counters>,
    clock: Arc<ClockGuard>,
    file: ProgressFile,
    /// The day and the bucket generation at which each bucket with rules was last examined.
    seen: HashMap<String, (i64, u64)>,
    /// Where the round of an earlier process stopped; used once.
    resumed: Option<Progress>,
}

impl Rounds {
    fn new(
        env: &Env,
        volume: &Arc<Volume>,
        data: &Path,
        limits: ExpiryLimits,
        (counters, clock): (&Arc<Counters>, &Arc<ClockGuard>),
    ) -> Rounds {
        let file = ProgressFile::new(env, data);
        Rounds {
            env: env.clone(),
            volume: Arc::clone(volume),
            days: Days::of_seconds(limits.day),
            pace: Pace::new(limits.rate_max),
            counters: Arc::clone(counters),
            clock: Arc::clone(clock),
            resumed: file.read(),
            file,
            seen: HashMap::new(),
        }
    }

    /// Runs rounds until its task is aborted.
    async fn run(mut self, look_every: Duration) {
        loop {
            self.look().await;
            tokio::time::sleep(look_every).await;
        }
    }

    /// Makes a pass over every bucket that needs one.
    async fn look(&mut self) {
        // While the clock is not trusted, nothing is due.
        let Some(now) = self.clock.look() else { return };
        let lease = match self.volume.lease(LEASE).await {
            Ok(Some(lease)) => lease,
            // Another process makes the rounds.
            Ok(None) => return,
            Err(error) => return self.failed("", &error),
        };
        let day = self.days.number(now);
        let mut resumed = self.resumed.take().filter(|progress| progress.day == day);
        let mut looked = 0u64;
        let mut after: Option<String> = None;
        loop {
            let page = match self.volume.list_buckets("", after.as_deref(), PAGE_BUCKETS).await {
                Ok(page) => page,
                Err(error) => return self.failed("", &error),
            };
            for bucket in page.iter().filter(|bucket| bucket.settings.contains(Setting::Lifecycle)) {
                let from = resumed.as_ref().map(|progress| progress.starts(&bucket.name));
                if let Some(Start::Done) = from {
                    self.seen.insert(bucket.name.clone(), (day, bucket.generation));
                }
                if self.seen.get(&bucket.name) == Some(&(day, bucket.generation)) {
                    continue;
                }
                let from = if let Some(Start::After(key)) = from { Some(key) } else { None };
                looked += 1;
                match self.bucket(bucket, (day, &lease), from).await {
                    Ok(()) => drop(self.seen.insert(bucket.name.clone(), (day, bucket.generation))),
                    Err(error) => self.failed(&bucket.name, &error),
                }
            }
            match page.last() {
                Some(last) if page.len() == PAGE_BUCKETS => after = Some(last.name.clone()),
                _ => break,
            }
        }
        // Drops buckets that are gone, and days that are over.
        self.seen.retain(|_, (of, _)| *of == day);
        if looked > 0 {
            self.counters.rounds.fetch_add(1, Ordering::Relaxed);
            self.file.write(&Progress { day, complete: true, ..Progress::default() });
        } else if let Some(progress) = resumed.take() {
            // Records that nothing is left to do, for the next process.
            self.file.write(&Progress { complete: true, ..progress });
        }
    }

    async fn bucket(
        &mut self,
        bucket: &BucketInfo,
        (day, lease): (i64, &Lease),
        after: Option<String>,
    ) -> Result<(), Error> {
        let Some(document) = self.volume.bucket_setting(&bucket.name, Setting::Lifecycle).await? else { return Ok(()) };
        let Some(now) = self.clock.look() else { return Err(Error::Busy) };
        let rules = match lifecycle::read(&document) {
            Ok(rules) => rules,
            Err(error) => {
                tracing::error!(bucket = bucket.name, %error, "its lifecycle rules cannot be read: nothing expires");
                return Ok(());
            }
        };
        let before = self.counters.objects.load(Ordering::Relaxed);
        let mut pass = Pass {
            env: &self.env,
            volume: &self.volume,
            bucket: &bucket.name,
            rules: &rules,
            days: self.days,
            now,
            lease,
            pace: self.pace,
            counters: &self.counters,
        };
        let file = &self.file;
        let mut reached = |key: &str| {
            file.write(&Progress { day, complete: false, bucket: bucket.name.clone(), key: Some(key.to_owned()) });
        };
        let outcome = pass.run(after, &mut reached).await;
        self.pace = pass.pace;
        let objects = self.counters.objects.load(Ordering::Relaxed) - before;
        if objects > 0 {
            tracing::info!(bucket = bucket.name, objects, "expired by the bucket's lifecycle");
        }
        match outcome {
            Err(Error::NoSuchBucket) => Ok(()),
            outcome => outcome,
        }
    }

    fn failed(&self, bucket: &str, error: &Error) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(bucket, %error, "expiry failed, the next look tries again");
    }
}

/// Where an interrupted round resumes in a bucket.
#[derive(Debug)]
enum Start {
    Done,
    Beginning,
    After(String),
}

impl Progress {
    fn starts(&self, bucket: &str) -> Start {
        match (self.complete, bucket.cmp(&self.bucket), &self.key) {
            (true, ..) | (_, std::cmp::Ordering::Less, _) => Start::Done,
            (_, std::cmp::Ordering::Equal, Some(key)) => Start::After(key.clone()),
            _ => Start::Beginning,
        }
    }
}
