//! What every benchmark does around its measuring: a bucket of its own before, a report after.
//!
//! Why:        each benchmark takes the same options for it, and ends cleanly in the same way.
//! Invariants: the bucket is removed also when the measuring fails or is interrupted.
//! Not here:   what is measured (`ls`, `load`).

use std::path::{Path, PathBuf};

use margay_env::Env;
use serde::Serialize;

use crate::error::BenchError;
use crate::report;
use crate::scratch::{self, Scratch};
use crate::stop::Stop;
use crate::target::{Credentials, TargetArgs};

/// The options that all benchmarks have.
#[derive(Debug, clap::Args)]
pub struct FrameArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Name of the bucket to make and remove; it must not exist [default: a random name]
    #[arg(long, value_name = "NAME")]
    pub bucket: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
    /// Also write JSON, CSV and SVG files into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// What a benchmark measured.
pub(crate) trait Report: Serialize {
    /// The whole report for a terminal.
    fn text(&self) -> String;
    /// Writes the files of `--report`.
    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError>;
}

/// Measures in a new bucket and prints the report. Builds a tokio runtime: call it from a plain thread.
pub(crate) fn run<R: Report>(
    args: &FrameArgs,
    found: Option<Credentials>,
    measure: impl AsyncFnOnce(&Scratch) -> Result<R, BenchError>,
) -> Result<R, BenchError> {
    let env = Env::real();
    let target = args.target.resolve(found)?;
    let (report, removed) = crate::runtime()?.block_on(async {
        let bucket = args.bucket.clone().unwrap_or_else(|| scratch::bucket_name(&env));
        let stop = Stop::listen(format!("bucket {bucket}"));
        let scratch = Scratch::create(&env, &target, bucket, stop).await?;
        Ok::<_, BenchError>(scratch::with_scratch(scratch, measure).await)
    })?;
    let report = report?;
    match args.json {
        true => report::print_json(&report),
        false => print!("{}", report.text()),
    }
    if let Some(directory) = &args.report {
        report.write_files(&env, directory)?;
    }
    // A server that died takes its bucket with it, and what it did until then is told first.
    removed.map(|()| report)
}
