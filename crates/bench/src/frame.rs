//! What every benchmark of S3 servers does around its measuring: a bucket of its own before, a report after.
//!
//! Why:        each benchmark takes the same options for it, and ends cleanly in the same way.
//! Invariants: the bucket is removed also when the measuring fails or is interrupted.
//! Not here:   what is measured (`auth`, `load`, `ls`), how several are compared (`turns`, `comparison`).

use std::sync::Arc;

use margay_env::Env;

use crate::error::BenchError;
use crate::latency;
use crate::newest::Newest;
use crate::report::{OutputArgs, Report};
use crate::rivals::{self, Gives, RivalArgs, Rivals, Running};
use crate::scratch::{self, Scratch};
use crate::stop::Stop;
use crate::target::{Credentials, Target, TargetArgs};
use crate::turns::Turns;

/// The options that all benchmarks of S3 servers have.
#[derive(Debug, clap::Args)]
pub struct FrameArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub rivals: RivalArgs,
    /// How often each is measured when there are rivals
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// Name of the bucket to make and remove; it must not exist [default: a random name]
    #[arg(long, value_name = "NAME")]
    pub bucket: Option<String>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// What a benchmark of a server measured.
pub(crate) trait ServerReport: Report {
    /// The benchmark's name.
    const NAME: &'static str;
    /// The rivals that it can be run with.
    const RIVALS: &'static [Gives] = &[Gives::S3];
    /// What was measured, whoever did it.
    fn title(&self) -> String;
    /// What to compare by: phase, unit and value.
    fn figures(&self) -> Vec<(String, &'static str, f64)>;
    /// What went wrong while the measuring went on.
    fn failure(&self) -> Option<String>;
}

/// Measures in a new bucket and prints the report; with rivals the comparison, and None. Builds a tokio runtime: call it
/// from a plain thread.
pub(crate) fn run<R: ServerReport>(
    args: &FrameArgs,
    found: Option<Credentials>,
    measure: impl AsyncFn(&Scratch) -> Result<R, BenchError>,
) -> Result<Option<R>, BenchError> {
    if !args.rivals.rivals.is_empty() {
        return compare(args, found, measure).map(|()| None);
    }
    let env = Env::real();
    args.output.prepare(&env)?;
    let (target, _proxy) = latency::before(args.target.resolve(found)?, args.rivals.latency)?;
    let bucket = bucket(args, &env);
    let (report, removed) = crate::runtime()?.block_on(async {
        let stop = Stop::listen(format!("bucket {bucket}"));
        let scratch = Scratch::create(&env, &target, bucket, stop).await?;
        Ok::<_, BenchError>(scratch::with_scratch(scratch, measure).await)
    })?;
    let report = report?;
    args.output.show(&env, &report)?;
    if let Some(latency) = args.rivals.latency {
        eprintln!("a proxy added {latency:?} to each round trip");
    }
    // A server that died takes its bucket with it, and what it did until then is told first.
    removed?;
    match report.failure() {
        Some(failure) => Err(BenchError::Missed(failure)),
        None => Ok(Some(report)),
    }
}

fn bucket(args: &FrameArgs, env: &Env) -> String {
    args.bucket.clone().unwrap_or_else(|| scratch::bucket_name(env))
}

/// Measures the endpoint, if one was given, and the rivals in turns.
fn compare<R: ServerReport>(
    args: &FrameArgs,
    found: Option<Credentials>,
    measure: impl AsyncFn(&Scratch) -> Result<R, BenchError>,
) -> Result<(), BenchError> {
    let env = Env::real();
    args.output.prepare(&env)?;
    let (bucket, runtime) = (bucket(args, &env), crate::runtime()?);
    let work = rivals::work_directory(&args.rivals)?;
    let mut reports = Newest::default();
    let comparison = Stop::heard(rivals::left_behind(&format!("bucket {bucket}"), work.as_ref()), |stop| {
        let rivals = Rivals::start(&args.rivals, R::RIVALS, work, &env, stop)?;
        let (mut given, mut _proxy) = (Vec::new(), None);
        if args.target.endpoint.is_some() || (rivals.running.is_empty() && !rivals.clients.is_empty()) {
            let (target, before) = latency::before(args.target.resolve(found)?, args.rivals.latency)?;
            given.push((ENDPOINT.to_owned(), target));
            _proxy = before;
        }
        let mut turns = Turns::new(given, rivals, Running::target, args.rounds, stop)?;
        turns.measure(1, &mut |target: &Arc<Target>, entrant| {
            let (report, removed) = runtime.block_on(async {
                let scratch = Scratch::create(&env, target, bucket.clone(), stop.clone()).await?;
                Ok::<_, BenchError>(scratch::with_scratch(scratch, &measure).await)
            })?;
            let report = report?;
            report.figures().into_iter().for_each(|(phase, unit, value)| entrant.add(phase.into(), unit, value));
            let failure = report.failure();
            reports.keep(&entrant.name, report);
            failure.map_or(removed, |failure| Err(BenchError::Missed(failure)))
        })?;
        let title = reports.any().map(R::title).unwrap_or_default();
        Ok(turns.compare(R::NAME, title))
    })?;
    args.output.show(&env, &comparison)?;
    reports.write_files(&env, &args.output)
}

/// Name of the server that was given, beside rivals.
const ENDPOINT: &str = "endpoint";
