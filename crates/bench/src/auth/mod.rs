//! `margay bench auth`: what signatures cost, shown by the same objects sent in every form.
//!
//! Why:      LeoFS published this comparison for its gateway; the same cases against any server make it comparable.
//! Layout:   `case` what is sent, `worker` one connection, `samples` the counts, `show` text, CSV and pictures.
//! Not here: processor time per request (the example `auth_cost` of the S3 door measures that without a network).

mod args;
mod bodies;
mod case;
mod samples;
mod show;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use margay_env::Env;
use serde::Serialize;

pub use args::AuthArgs;
pub use case::Case;

use crate::comparison::{MILLISECONDS, PER_SECOND};
use crate::error::BenchError;
use crate::frame::{self, ServerReport};
use crate::progress::Progress;
use crate::report::Report;
use crate::scratch::Scratch;
use crate::target::Credentials;
use crate::threads;
use crate::windows::Window;
use margay_client::ClientError;
use margay_client::payload::Payload;

use bodies::Bodies;
use samples::Samples;
use worker::Job;

/// What one case measured.
#[derive(Debug, Serialize)]
pub struct CaseReport {
    pub case: &'static str,
    /// The server's answer, when it does not take this form; there are no counts then.
    pub refused: Option<String>,
    pub total: Window,
    /// Bodies only, in units of 1,000,000 bytes.
    pub megabytes_per_second: f64,
    pub errors: BTreeMap<String, u64>,
    pub windows: Vec<Window>,
}

/// What all cases measured.
#[derive(Debug, Serialize)]
pub struct AuthReport {
    pub endpoint: String,
    pub connections: u64,
    pub threads: u64,
    pub keys: u64,
    pub size_bytes_min: u64,
    pub size_bytes_max: u64,
    pub interval_seconds: u64,
    pub cases: Vec<CaseReport>,
}

impl Report for AuthReport {
    fn text(&self) -> String {
        show::text(self)
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        show::write_files(self, env, directory)
    }
}

impl ServerReport for AuthReport {
    const NAME: &'static str = "auth";

    fn title(&self) -> String {
        show::title(self)
    }

    fn figures(&self) -> Vec<(String, &'static str, f64)> {
        let figures = |case: &CaseReport| {
            [
                (case.case.to_owned(), PER_SECOND, case.total.requests_per_second),
                (format!("{}, 99 %", case.case), MILLISECONDS, case.total.p99_ms),
            ]
        };
        self.cases.iter().filter(|case| case.refused.is_none()).flat_map(figures).collect()
    }

    fn failure(&self) -> Option<String> {
        let failed: u64 = self.cases.iter().map(|case| case.total.failed).sum();
        if self.cases.iter().all(|case| case.refused.is_some()) {
            return Some("the server refused every case".to_owned());
        }
        (failed > 0).then(|| format!("{failed} requests failed"))
    }
}

/// Runs the cases and prints the report. Builds tokio runtimes: call it from a plain thread.
pub fn run(args: &AuthArgs, found: Option<Credentials>) -> Result<(), BenchError> {
    frame::run(&args.frame, found, async |scratch: &Scratch| measure(args, scratch).await).map(drop)
}

async fn measure(args: &AuthArgs, scratch: &Scratch) -> Result<AuthReport, BenchError> {
    let bodies = Arc::new(Bodies::new(args.size, args.keys, args.seed));
    if args.cases.iter().any(|case| matches!(case, Case::Unsigned | Case::GetUnsigned)) {
        open_to_everybody(scratch).await?;
    }
    let mut cases = Vec::new();
    let mut filled = false;
    for &case in &args.cases {
        if case.reads() && !filled {
            fill(args, scratch, &bodies).await?;
            filled = true;
        }
        let report = measure_case(args, scratch, &bodies, case).await?;
        filled |= !case.reads() && report.total.successful == args.keys;
        cases.push(report);
        scratch.stop().check()?;
    }
    Ok(AuthReport {
        endpoint: scratch.target().url(),
        connections: args.connections,
        threads: threads::count(args.threads, args.connections),
        keys: args.keys,
        size_bytes_min: args.size.least,
        size_bytes_max: args.size.most,
        interval_seconds: args.interval,
        cases,
    })
}

/// A server that refuses this will refuse the unsigned cases, and the report says so.
async fn open_to_everybody(scratch: &Scratch) -> Result<(), BenchError> {
    match scratch.client().open_bucket(&scratch.bucket).await {
        Ok(()) | Err(ClientError::Refused(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

async fn fill(args: &AuthArgs, scratch: &Scratch, bodies: &Arc<Bodies>) -> Result<(), BenchError> {
    let bodies = Arc::clone(bodies);
    let body_of = Arc::new(move |index| Payload::Whole(bodies.of(index).bytes.clone()));
    scratch.fill("prepare", args.keys, Arc::new(worker::key), body_of).await
}

async fn measure_case(
    args: &AuthArgs,
    scratch: &Scratch,
    bodies: &Arc<Bodies>,
    case: Case,
) -> Result<CaseReport, BenchError> {
    let env = scratch.env();
    let job = Arc::new(Job {
        case,
        target: Arc::clone(scratch.target()),
        bucket: scratch.bucket.clone(),
        clock: Arc::clone(&env.clock),
        stop: scratch.stop().clone(),
        bodies: Arc::clone(bodies),
        keys: args.keys,
        next: AtomicU64::new(0),
        begin: env.clock.monotonic(),
        limit: Duration::from_secs(args.seconds),
        progress: Progress::new(env, case.name(), args.keys),
    });
    // The first request tells whether the server takes this form at all, and is not counted.
    let refused = match job.perform(&mut job.client(), 0).await {
        Ok(_) => None,
        Err(BenchError::Client(ClientError::Refused(refusal))) => {
            Some(format!("{} {}: {}", refusal.status, refusal.code, refusal.message))
        }
        Err(error) => return Err(error),
    };
    let mut samples = Samples::default();
    if refused.is_none() {
        let work = |numbers: Vec<u64>| connections(Arc::clone(&job), numbers.len());
        let threads = threads::count(args.threads, args.connections);
        for seen in threads::run(threads, args.connections, work).await? {
            samples.merge(seen);
        }
    }
    let total = samples.whole();
    let seconds = total.elapsed_seconds.max(f64::MIN_POSITIVE);
    Ok(CaseReport {
        case: case.name(),
        megabytes_per_second: samples.bytes() as f64 / 1e6 / seconds,
        errors: samples.errors().clone(),
        windows: if refused.is_none() { samples.windows(Duration::from_secs(args.interval)) } else { Vec::new() },
        refused,
        total,
    })
}

/// So many connections at work on one thread; what they saw.
async fn connections(job: Arc<Job>, count: usize) -> Samples {
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..count {
        workers.spawn(worker::run(Arc::clone(&job)));
    }
    let mut samples = Samples::default();
    while let Some(ended) = workers.join_next().await {
        samples.merge(ended.expect("a worker counts its errors and does not panic"));
    }
    samples
}
