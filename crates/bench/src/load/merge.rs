//! `margay bench merge`: the logs of several loads as one.
//!
//! Why:      one machine may be too slow to load a cluster; percentiles of several must come from added histograms.
//! Not here: bytes: a log holds none, so the sums of `load.json` tell the throughput in MB/s.

use std::path::{Path, PathBuf};
use std::time::Duration;

use margay_env::{Env, OpenMode};
use serde::Serialize;

use super::log::Log;
use super::show;
use super::stats::{FailureRow, Grid, OperationRow, Stats, Timeline};
use crate::error::BenchError;
use crate::report::{self, OutputArgs, Report};

/// The largest log that is read, in bytes.
const LOG_BYTES_MAX: u64 = 256 << 20;
/// Loads that began further apart than this, in seconds, did not run together.
const APART_SECONDS_MAX: u64 = 86_400;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench load --mix get=100 --report here/          (on every machine, at the same time)
  margay bench merge one/load.hlog two/load.hlog
  margay bench merge */load.hlog --report all/            (load.hlog, JSON, CSV and SVG of all together)")]
pub struct MergeArgs {
    /// Logs that `margay bench load --report` wrote, with the same interval
    #[arg(value_name = "LOG", required = true)]
    pub logs: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Serialize)]
struct MergeReport {
    logs: Vec<String>,
    /// From the begin of the first to the end of the last.
    seconds: f64,
    operations: Vec<OperationRow>,
    failures: Vec<FailureRow>,
    timelines: Vec<Timeline>,
    #[serde(skip)]
    log: Log,
}

impl Report for MergeReport {
    fn text(&self) -> String {
        let tables = show::tables(&self.operations, &self.failures);
        format!("{} loads as one, {} s\n\n{tables}", self.logs.len(), self.seconds)
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        let mut files = show::files(&self.operations, &self.failures, &self.timelines);
        files.push(("load.json", report::json(self)));
        files.push(("load.hlog", self.log.write()));
        report::write_files(env, directory, &files)
    }
}

/// Reads the logs, and shows them as one.
pub fn run(args: &MergeArgs) -> Result<(), BenchError> {
    let env = Env::real();
    let logs: Vec<Log> = args.logs.iter().map(|path| read(&env, path)).collect::<Result<_, _>>()?;
    let merged = merge(&logs)?;
    let stats = &merged.stats;
    let report = MergeReport {
        logs: args.logs.iter().map(|path| path.display().to_string()).collect(),
        seconds: stats.grid().measured.as_secs_f64(),
        operations: stats.rows(),
        failures: stats.failures(),
        timelines: stats.timelines(),
        log: merged,
    };
    args.output.show(&env, &report)
}

fn read(env: &Env, path: &Path) -> Result<Log, BenchError> {
    let failed = BenchError::file(path);
    let wrong = |reason: String| BenchError::Usage(format!("{}: {reason}", path.display()));
    let file = env.disk.open(path, OpenMode::Read).map_err(&failed)?;
    let length = file.len().map_err(&failed)?;
    if length > LOG_BYTES_MAX {
        return Err(wrong(format!("larger than {} MiB", LOG_BYTES_MAX >> 20)));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let text = String::from_utf8(bytes).map_err(|_| wrong("not text".to_owned()))?;
    Log::read(&text).map_err(|error| wrong(error.to_string()))
}

/// All logs on the time of the first that began; a log is moved by whole intervals.
fn merge(logs: &[Log]) -> Result<Log, BenchError> {
    let started_ms = logs.iter().map(|log| log.started_ms).min().unwrap_or(0);
    let Some(interval) = logs.first().map(|log| log.stats.grid().interval) else {
        return Err(BenchError::Usage("name a log".to_owned()));
    };
    if logs.iter().any(|log| log.stats.grid().interval != interval) {
        return Err(BenchError::Usage("the logs have different intervals; run the loads with --interval".to_owned()));
    }
    // In whole intervals, the nearest.
    let shift = |log: &Log| {
        let (apart, interval) = (log.started_ms - started_ms, interval.as_millis() as u64);
        interval * ((apart + interval / 2) / interval)
    };
    if logs.iter().any(|log| shift(log) > APART_SECONDS_MAX * 1000) {
        return Err(BenchError::Usage("these loads began more than a day apart: they are no one run".to_owned()));
    }
    let end = |log| Duration::from_millis(shift(log)) + log.stats.grid().measured;
    let measured = logs.iter().map(end).max().unwrap_or_default();
    let grid = Grid { interval, measured };
    let mut stats = Stats::new(grid);
    for log in logs {
        let (own, shift) = (log.stats.grid(), Duration::from_millis(shift(log)));
        for (place, interval) in log.stats.intervals().iter().enumerate() {
            // What ended after its own run stays out of the throughput of all.
            let place = match place.checked_sub(own.count()) {
                Some(late) => grid.count() + late,
                None => grid.place(shift + own.bounds(place).0),
            };
            for (series, counted) in interval {
                stats.add_histogram(place, series.clone(), &counted.latency);
            }
        }
    }
    Ok(Log { started_ms, stats })
}

#[cfg(test)]
mod tests {
    use super::super::mix::Operation;
    use super::super::series::Series;
    use super::*;

    fn log(started_ms: u64, seconds: u64, interval: u64, latency_ms: u64) -> Log {
        let (interval, measured) = (Duration::from_secs(interval), Duration::from_secs(seconds));
        let mut stats = Stats::new(Grid { interval, measured });
        for second in 0..=seconds {
            let series = Series { operation: Operation::Get, failure: None };
            stats.add(series, Duration::from_secs(second), Duration::from_millis(latency_ms), 0);
        }
        Log { started_ms, stats }
    }

    #[test]
    fn loads_are_added_on_one_time() {
        let merged = merge(&[log(12_900, 4, 1, 10), log(10_000, 4, 1, 20)]).unwrap();
        let stats = &merged.stats;
        assert_eq!((merged.started_ms, stats.grid().measured), (10_000, Duration::from_secs(7)));
        let row = &stats.rows()[0];
        assert_eq!((row.requests, row.requests_per_second), (10, 8.0 / 7.0));
        assert!((row.p50_ms - 10.0).abs() < 0.1 && (row.p90_ms - 20.0).abs() < 0.1, "{row:?}");
        let successful: Vec<u64> = stats.timelines()[0].windows.iter().map(|window| window.successful).collect();
        assert_eq!(successful, [1, 1, 1, 2, 1, 1, 1]);
        let alone = log(5, 3, 1, 7);
        assert!(merge(std::slice::from_ref(&alone)).unwrap().write() == alone.write(), "one load is itself");
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        assert!(merge(&[log(0, 4, 1, 1), log(0, 4, 2, 1)]).is_err());
        assert!(merge(&[log(0, 4, 1, 1), log(90_000_000, 4, 1, 1)]).is_err());
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        report::write_files(&env, folder.path(), &[("x", "hello\n".to_owned()), ("y", log(9, 2, 1, 1).write())])
            .unwrap();
        assert!(matches!(read(&env, &folder.path().join("x")), Err(BenchError::Usage(_))));
        assert!(matches!(read(&env, &folder.path().join("none")), Err(BenchError::File { .. })));
        assert_eq!(read(&env, &folder.path().join("y")).unwrap().started_ms, 9);
    }
}
