//! The report of `margay bench load` as text, CSV and SVG.

use std::path::Path;

use margay_env::Env;

use super::LoadReport;
use super::log::Log;
use super::stats::{FailureRow, OperationRow, Timeline};
use crate::error::BenchError;
use crate::report;
use crate::summary::Table;
use crate::windows::{self, Window};

fn operations(rows: &[OperationRow]) -> Table {
    let mut table = Table::new(&[
        "operation",
        "requests",
        "failed",
        "per s",
        "MB/s",
        "mean ms",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
    ]);
    for row in rows {
        table.row(vec![
            row.operation.to_owned(),
            row.requests.to_string(),
            row.failed.to_string(),
            format!("{:.0}", row.requests_per_second),
            match row.megabytes_per_second {
                0.0 => "-".to_owned(),
                rate => format!("{rate:.2}"),
            },
            format!("{:.3}", row.mean_ms),
            format!("{:.3}", row.p50_ms),
            format!("{:.3}", row.p90_ms),
            format!("{:.3}", row.p99_ms),
            format!("{:.3}", row.p999_ms),
            format!("{:.3}", row.max_ms),
        ]);
    }
    table
}

fn failures(rows: &[FailureRow]) -> Table {
    let mut table = Table::new(&["operation", "kind", "error", "count"]);
    for row in rows {
        table.row(vec![row.operation.to_owned(), row.kind.to_owned(), row.what.clone(), row.count.to_string()]);
    }
    table
}

/// What was done, and what failed.
pub(super) fn tables(rows: &[OperationRow], failed: &[FailureRow]) -> String {
    let mut out = operations(rows).text();
    out.push('\n');
    match failed {
        [] => out.push_str("no errors\n"),
        failed => out.push_str(&failures(failed).text()),
    }
    out
}

/// What was asked for.
pub(super) fn title(report: &LoadReport) -> String {
    let LoadReport { connections, threads, seconds, mix, sizes, .. } = report;
    let which = match report.keys {
        0 => "new keys".to_owned(),
        keys => format!("{} over {keys} keys", report.distribution),
    };
    let threads = crate::threads::named(*threads);
    format!("{connections} connections on {threads}, {seconds} s, {mix} of {sizes} bytes, {which}")
}

/// The whole report for a terminal.
pub(super) fn text(report: &LoadReport) -> String {
    let pace = match report.rate {
        Some(rate) => format!("{rate} requests due per second, latency from when they were due"),
        None => "each connection sends as soon as it is answered".to_owned(),
    };
    let mut out = format!("margay bench load against {}: {}\n{pace}\n\n", report.endpoint, title(report));
    out.push_str(&tables(&report.operations, &report.failures));
    let all = report.timelines.last().map_or(&[][..], |timeline| &timeline.windows);
    let rates = || all.iter().map(|window| window.requests_per_second);
    let (slowest, fastest) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
    if slowest.is_finite() {
        let interval = report.interval_seconds;
        out.push_str(&format!("slowest interval of {interval} s {slowest:.0}/s, fastest {fastest:.0}/s\n"));
    }
    if report.unsent > 0 {
        out.push_str(&format!(
            "{} requests were due and never sent: the server cannot keep this rate\n",
            report.unsent
        ));
    }
    out
}

/// The tables and pictures that a load and the sum of several have.
pub(super) fn files(
    rows: &[OperationRow],
    failed: &[FailureRow],
    timelines: &[Timeline],
) -> Vec<(&'static str, String)> {
    let timelines: Vec<(&str, &[Window])> =
        timelines.iter().map(|timeline| (timeline.operation, timeline.windows.as_slice())).collect();
    let picture = match timelines[..] {
        [(name, windows)] => windows::picture(name, windows),
        _ => windows::comparison(&timelines),
    };
    let mut files = vec![
        ("load.csv", operations(rows).csv()),
        ("load-intervals.csv", windows::table("operation", &timelines).csv()),
        ("load-intervals.svg", picture),
    ];
    if !failed.is_empty() {
        files.push(("load-errors.csv", failures(failed).csv()));
    }
    files
}

/// Writes `load.json`, `load.csv`, `load.hlog`, the intervals as CSV and SVG, and the errors as CSV when there were any.
pub(super) fn write_files(report: &LoadReport, log: &Log, env: &Env, directory: &Path) -> Result<(), BenchError> {
    let mut files = files(&report.operations, &report.failures, &report.timelines);
    files.push(("load.json", report::json(report)));
    files.push(("load.hlog", log.write()));
    report::write_files(env, directory, &files)
}
