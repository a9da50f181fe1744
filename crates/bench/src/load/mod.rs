//! `margay bench load`: many connections that put, get, look at, list and delete, with latency percentiles.
//!
//! Why:      throughput without tails says little, and a closed loop alone flatters a server that stalls; so there
//!           is an open loop too (`--rate`), and every GET can be checked (`--verify`).
//! Layout:   `preset`, `sizes`, `mix` and `distribution` say what is asked for, `worker` is one connection, `pace` the open
//!           loop's clock, `content` what objects hold, `stats` the counts of each `series`, `log` their file.
//! Not here: machines: start it on several; `merge` adds their logs up.

mod args;
mod content;
mod distribution;
mod log;
mod merge;
mod mix;
mod pace;
mod preset;
mod series;
mod show;
mod sizes;
mod stats;
mod worker;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use margay_env::Env;
use serde::Serialize;

pub use args::{LoadArgs, PayloadMode};
pub use distribution::Distribution;
pub use merge::{MergeArgs, run as run_merge};
pub use mix::{Mix, Operation};
pub use preset::Preset;
pub(crate) use sizes::byte_count;
pub use sizes::{SizeRange, Sizes};
pub use stats::{FailureRow, OperationRow, Timeline};

use crate::comparison::{MILLISECONDS, PER_SECOND};
use crate::error::BenchError;
use crate::frame::{self, ServerReport};
use crate::progress::Progress;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::target::Credentials;
use crate::threads;

use content::Content;
use log::Log;
use pace::Pacer;
use preset::Workload;
use stats::{Grid, Stats};
use worker::Job;

/// Time between building the plan and its first request, in milliseconds: threads start and connect.
const START_MS: u64 = 50;

/// What a load measured.
#[derive(Debug, Serialize)]
pub struct LoadReport {
    pub endpoint: String,
    pub connections: u64,
    pub threads: u64,
    pub seconds: u64,
    pub interval_seconds: u64,
    /// Requests per second that were due; None in a closed loop.
    pub rate: Option<u64>,
    /// As the options take them.
    pub mix: String,
    pub sizes: String,
    pub distribution: String,
    /// Objects made beforehand; 0 when the mix makes its own.
    pub keys: u64,
    pub operations: Vec<OperationRow>,
    pub failures: Vec<FailureRow>,
    /// Requests that were due and never sent, because all connections were busy to the end and after.
    pub unsent: u64,
    pub timelines: Vec<Timeline>,
    #[serde(skip)]
    log: Log,
}

impl Report for LoadReport {
    fn text(&self) -> String {
        show::text(self)
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        show::write_files(self, &self.log, env, directory)
    }
}

impl ServerReport for LoadReport {
    const NAME: &'static str = "load";

    fn title(&self) -> String {
        show::title(self)
    }

    fn figures(&self) -> Vec<(String, &'static str, f64)> {
        let figures = |row: &OperationRow| {
            let named = |what: &str| format!("{}{what}", row.operation);
            [
                (named(""), PER_SECOND, row.requests_per_second),
                (named(", median"), MILLISECONDS, row.p50_ms),
                (named(", 99 %"), MILLISECONDS, row.p99_ms),
            ]
        };
        self.operations.iter().flat_map(figures).collect()
    }

    fn failure(&self) -> Option<String> {
        let failed: u64 = self.failures.iter().map(|row| row.count).sum();
        (failed > 0 || self.unsent > 0).then(|| format!("{failed} requests failed, {} were never sent", self.unsent))
    }
}

/// Runs the load and prints its report. Builds tokio runtimes: call it from a plain thread.
pub fn run(args: &LoadArgs, found: Option<Credentials>) -> Result<(), BenchError> {
    let (workload, interval) = (args.workload()?, args.interval()?);
    let interval = Duration::from_secs(interval);
    frame::run(&args.frame, found, async |scratch: &Scratch| measure(args, &workload, interval, scratch).await)
        .map(drop)
}

fn plan(args: &LoadArgs, workload: &Workload, scratch: &Scratch, content: Content, begin: Duration) -> Job {
    let pacer = args.rate.map(|rate| {
        let start = begin - Duration::from_secs(args.warmup_seconds);
        Arc::new(Pacer::new(start, rate, rate * (args.warmup_seconds + args.seconds)))
    });
    Job {
        target: Arc::clone(scratch.target()),
        bucket: scratch.bucket.clone(),
        clock: Arc::clone(&scratch.env().clock),
        stop: scratch.stop().clone(),
        workload: workload.clone(),
        hashed: args.payload == PayloadMode::Signed,
        anonymous: args.anonymous,
        seed: args.seed,
        timeout_seconds: args.timeout,
        content,
        begin,
        measured: Duration::from_secs(args.seconds),
        pacer,
    }
}

async fn prepare(args: &LoadArgs, workload: &Workload, scratch: &Scratch, content: &Content) -> Result<(), BenchError> {
    let (sizes, seed, bodies) = (workload.sizes.clone(), args.seed, content.clone());
    let body_of = Arc::new(move |index| {
        let length = worker::prepared_size(&sizes, seed, index);
        bodies.body(&worker::prepared_key(index), length, 0, false).0
    });
    scratch.fill("prepare", workload.keys, Arc::new(worker::prepared_key), body_of).await
}

async fn measure(
    args: &LoadArgs,
    workload: &Workload,
    interval: Duration,
    scratch: &Scratch,
) -> Result<LoadReport, BenchError> {
    let content = Content::new(args.seed);
    let prepared = workload.mix.reads() || workload.overwrite;
    if prepared {
        prepare(args, workload, scratch, &content).await?;
    }
    let env = scratch.env();
    let wait = Duration::from_millis(START_MS) + Duration::from_secs(args.warmup_seconds);
    let (begin, started) = (env.clock.monotonic() + wait, env.clock.now());
    let started_ms = started.0.max(0) as u64 / 1_000_000 + wait.as_millis() as u64;
    let job = Arc::new(plan(args, workload, scratch, content, begin));
    let threads = threads::count(args.threads, workload.connections);
    let grid = Grid { interval, measured: job.measured };
    if let Some(pacer) = job.pacer.clone() {
        let (job, workers) = (Arc::clone(&job), workload.connections as usize);
        std::thread::spawn(move || pacer.run(&*job.clock, &job.stop, workers));
    }
    let mut stats = Stats::new(grid);
    let ticking = tick(env, args.warmup_seconds + args.seconds);
    let work = |numbers| connections(Arc::clone(&job), grid, numbers);
    for counted in threads::run(threads, workload.connections, work).await? {
        stats.merge(&counted);
    }
    ticking.abort();
    scratch.stop().check()?;
    Ok(LoadReport {
        endpoint: scratch.target().url(),
        connections: workload.connections,
        threads,
        seconds: args.seconds,
        interval_seconds: interval.as_secs(),
        rate: args.rate,
        mix: workload.mix.to_string(),
        sizes: workload.sizes.to_string(),
        distribution: workload.distribution.to_string(),
        keys: if prepared { workload.keys } else { 0 },
        operations: stats.rows(),
        failures: stats.failures(),
        unsent: job.pacer.as_ref().map_or(0, |pacer| pacer.untaken()),
        timelines: stats.timelines(),
        log: Log { started_ms, stats },
    })
}

/// For the fuzz target: what a log says again when it was read, or None when it is none.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn reread_log(text: &str) -> Option<String> {
    Log::read(text).ok().map(|log| log.write())
}

/// Shows the passing seconds on a terminal.
fn tick(env: &Env, seconds: u64) -> tokio::task::JoinHandle<()> {
    let progress = Progress::new(env, "load, seconds", seconds);
    tokio::spawn(async move {
        for _ in 0..seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            progress.add(1);
        }
    })
}

/// The connections with these numbers at work on one thread; what they counted.
async fn connections(job: Arc<Job>, grid: Grid, numbers: Vec<u64>) -> Stats {
    let stats = Arc::new(Mutex::new(Stats::new(grid)));
    let mut workers = tokio::task::JoinSet::new();
    for number in numbers {
        workers.spawn(worker::run(Arc::clone(&job), number, Arc::clone(&stats)));
    }
    while let Some(ended) = workers.join_next().await {
        ended.expect("a worker counts its errors and does not panic");
    }
    stats.lock().expect("no holder panics").clone()
}
