//! `margay bench load`: many connections that put, get, look at, list and delete, with latency percentiles.
//!
//! Why:      throughput without tails says little, and a closed loop alone flatters a server that stalls; so there
//!           is an open loop too (`--rate`), and every GET can be checked (`--verify`).
//! Layout:   `worker` is one connection, `pace` the open loop's clock, `content` what objects hold, `stats` the counts.
//! Not here: machines: start it on several and add their JSON up.

mod args;
mod content;
mod pace;
mod show;
mod stats;
mod worker;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use margay_env::Env;
use serde::Serialize;

pub(crate) use args::byte_count;
pub use args::{LoadArgs, Mix, Operation, PayloadMode, SizeRange};
pub use stats::OperationRow;

use crate::error::BenchError;
use crate::frame::{self, Report};
use crate::progress::Progress;
use crate::scratch::Scratch;
use crate::target::Credentials;

use content::Content;
use pace::Pacer;
use stats::Stats;
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
    /// Requests per second that were due; None in a closed loop.
    pub rate: Option<u64>,
    pub size_bytes_min: u64,
    pub size_bytes_max: u64,
    pub operations: Vec<OperationRow>,
    pub errors: std::collections::BTreeMap<String, u64>,
    /// Requests that were due and never sent, because all connections were busy to the end and after.
    pub unsent: u64,
    /// Successful requests in each second.
    pub per_second: Vec<u64>,
}

impl Report for LoadReport {
    fn text(&self) -> String {
        show::text(self)
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        show::write_files(self, env, directory)
    }
}

/// Runs the load and prints its report. Builds tokio runtimes: call it from a plain thread.
pub fn run(args: &LoadArgs, found: Option<Credentials>) -> Result<(), BenchError> {
    if args.overwrite && args.mix.has(Operation::Delete) {
        return Err(BenchError::Usage("--overwrite makes no keys of its own that `delete` could take".to_owned()));
    }
    let report = frame::run(&args.frame, found, async |scratch: &Scratch| measure(args, scratch).await)?;
    let failed: u64 = report.errors.values().sum();
    if failed > 0 || report.unsent > 0 {
        return Err(BenchError::Missed(format!("{failed} requests failed, {} were never sent", report.unsent)));
    }
    Ok(())
}

fn threads(args: &LoadArgs) -> u64 {
    let half = || std::thread::available_parallelism().map_or(1, |count| count.get() as u64 / 2);
    args.threads.unwrap_or_else(half).clamp(1, args.connections)
}

fn plan(args: &LoadArgs, scratch: &Scratch, content: Content, begin: Duration) -> Job {
    let measured = Duration::from_secs(args.seconds);
    let pacer = args.rate.map(|rate| {
        let start = begin - Duration::from_secs(args.warmup_seconds);
        Arc::new(Pacer::new(start, rate, rate * (args.warmup_seconds + args.seconds)))
    });
    Job {
        target: Arc::clone(scratch.target()),
        bucket: scratch.bucket.clone(),
        clock: Arc::clone(&scratch.env().clock),
        stop: scratch.stop().clone(),
        mix: args.mix.clone(),
        size: args.size,
        keys: args.keys,
        overwrite: args.overwrite,
        hashed: args.payload == PayloadMode::Signed,
        anonymous: args.anonymous,
        verify: args.verify,
        seed: args.seed,
        content,
        begin,
        measured,
        pacer,
    }
}

async fn prepare(args: &LoadArgs, scratch: &Scratch, content: &Content) -> Result<(), BenchError> {
    let sizes = Arc::new(plan(args, scratch, content.clone(), Duration::from_secs(u64::from(u32::MAX))));
    let bodies = content.clone();
    let body_of =
        Arc::new(move |index| bodies.body(&worker::prepared_key(index), sizes.prepared_size(index), 0, false).0);
    scratch.fill("prepare", args.keys, Arc::new(worker::prepared_key), body_of).await
}

async fn measure(args: &LoadArgs, scratch: &Scratch) -> Result<LoadReport, BenchError> {
    let content = Content::new(args.seed);
    if args.mix.reads() || args.overwrite {
        prepare(args, scratch, &content).await?;
    }
    let env = scratch.env();
    let begin = env.clock.monotonic() + Duration::from_millis(START_MS) + Duration::from_secs(args.warmup_seconds);
    let job = Arc::new(plan(args, scratch, content, begin));
    let threads = threads(args);
    let mut running = Vec::new();
    for thread in 0..threads {
        let numbers: Vec<usize> = (thread..args.connections).step_by(threads as usize).map(|n| n as usize).collect();
        running.push(start_thread(Arc::clone(&job), numbers)?);
    }
    if let Some(pacer) = job.pacer.clone() {
        let (job, workers) = (Arc::clone(&job), args.connections as usize);
        std::thread::spawn(move || pacer.run(&*job.clock, &job.stop, workers));
    }
    let mut stats = Stats::default();
    let ticking = tick(env, args.warmup_seconds + args.seconds);
    for finished in running {
        stats.merge(&finished.await.expect("a load thread ends by sending its counts"));
    }
    ticking.abort();
    stats.unsent = job.pacer.as_ref().map_or(0, |pacer| pacer.untaken());
    scratch.stop().check()?;
    Ok(LoadReport {
        endpoint: scratch.target().url(),
        connections: args.connections,
        threads,
        seconds: args.seconds,
        rate: args.rate,
        size_bytes_min: args.size.least,
        size_bytes_max: args.size.most,
        operations: stats.rows(args.seconds as f64),
        errors: stats.errors().clone(),
        unsent: stats.unsent,
        per_second: stats.per_second(args.seconds),
    })
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

/// Starts a thread with its own runtime that drives the connections with these numbers.
fn start_thread(job: Arc<Job>, numbers: Vec<usize>) -> Result<tokio::sync::oneshot::Receiver<Stats>, BenchError> {
    let runtime = crate::runtime()?;
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let stats = Arc::new(Mutex::new(Stats::default()));
        runtime.block_on(async {
            let mut workers = tokio::task::JoinSet::new();
            for number in numbers {
                workers.spawn(worker::run(Arc::clone(&job), number, Arc::clone(&stats)));
            }
            while let Some(ended) = workers.join_next().await {
                ended.expect("a worker counts its errors and does not panic");
            }
        });
        let counted = std::mem::take(&mut *stats.lock().expect("no holder panics"));
        // Nobody waits for the counts of a run that was given up.
        let _ = sender.send(counted);
    });
    Ok(receiver)
}
