//! The report of `margay bench load` as text, CSV and SVG.

use std::path::Path;

use margay_env::Env;

use super::LoadReport;
use crate::error::BenchError;
use crate::report::{self, Chart, Line};
use crate::summary::Table;

fn operations(report: &LoadReport) -> Table {
    let mut table = Table::new(&[
        "operation",
        "requests",
        "per s",
        "MB/s",
        "mean ms",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
    ]);
    for row in &report.operations {
        table.row(vec![
            row.operation.to_owned(),
            row.requests.to_string(),
            format!("{:.0}", row.requests_per_second),
            format!("{:.2}", row.megabytes_per_second),
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

/// The whole report for a terminal.
pub(super) fn text(report: &LoadReport) -> String {
    let pace = match report.rate {
        Some(rate) => format!("{rate} requests due per second, latency from when they were due"),
        None => "each connection sends as soon as it is answered".to_owned(),
    };
    let mut out = format!(
        "margay bench load against {}: {} connections on {} threads, {} s, {} to {} bytes\n{pace}\n\n",
        report.endpoint,
        report.connections,
        report.threads,
        report.seconds,
        report.size_bytes_min,
        report.size_bytes_max
    );
    out.push_str(&operations(report).text());
    let slowest = report.per_second.iter().min().copied().unwrap_or(0);
    let fastest = report.per_second.iter().max().copied().unwrap_or(0);
    out.push_str(&format!("\nslowest second {slowest} requests, fastest {fastest}\n"));
    if report.errors.is_empty() {
        out.push_str("no errors\n");
    }
    for (kind, count) in &report.errors {
        out.push_str(&format!("error {count} x {kind}\n"));
    }
    if report.unsent > 0 {
        out.push_str(&format!(
            "{} requests were due and never sent: the server cannot keep this rate\n",
            report.unsent
        ));
    }
    out
}

/// Writes `load.json`, `load.csv`, `load-seconds.csv` and `load-seconds.svg`.
pub(super) fn write_files(report: &LoadReport, env: &Env, directory: &Path) -> Result<(), BenchError> {
    let mut seconds = Table::new(&["second", "requests"]);
    let mut points = Vec::new();
    for (second, count) in report.per_second.iter().enumerate() {
        seconds.row(vec![(second + 1).to_string(), count.to_string()]);
        points.push(((second + 1) as f64, *count as f64));
    }
    let chart = Chart {
        title: "requests per second".to_owned(),
        x: "second".to_owned(),
        y: "requests".to_owned(),
        lines: vec![Line { name: "all operations".to_owned(), points }],
    };
    let files = [
        ("load.json", report::json(report)),
        ("load.csv", operations(report).csv()),
        ("load-seconds.csv", seconds.csv()),
        ("load-seconds.svg", chart.svg()),
    ];
    report::write_files(env, directory, &files)
}
