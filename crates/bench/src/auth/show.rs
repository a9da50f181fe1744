//! The report of `margay bench auth` as text, CSV and pictures of five panels.
//!
//! Source:   the columns and panels are those of basho_bench: throughput; mean and median; 95th; 99th; 99.9th
//!           percentile and maximum, over time.

use std::path::Path;

use margay_env::Env;

use super::{AuthReport, CaseReport, Window};
use crate::error::BenchError;
use crate::report::{self, Chart, Line};
use crate::summary::Table;

fn cases(report: &AuthReport) -> Table {
    let columns =
        ["case", "requests", "failed", "per s", "MB/s", "mean ms", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"];
    let mut table = Table::new(&columns);
    for case in report.cases.iter().filter(|case| case.refused.is_none()) {
        let total = &case.total;
        let mut cells = vec![
            case.case.to_owned(),
            total.successful.to_string(),
            total.failed.to_string(),
            format!("{:.0}", total.requests_per_second),
            format!("{:.1}", case.megabytes_per_second),
        ];
        let times = [total.mean_ms, total.median_ms, total.p95_ms, total.p99_ms, total.p999_ms, total.max_ms];
        cells.extend(times.map(|ms| format!("{ms:.3}")));
        table.row(cells);
    }
    table
}

pub(super) fn text(report: &AuthReport) -> String {
    let mut out = format!(
        "margay bench auth against {}: {} connections on {} threads, {} objects of {} to {} bytes\n\n",
        report.endpoint, report.connections, report.threads, report.keys, report.size_bytes_min, report.size_bytes_max
    );
    out.push_str(&cases(report).text());
    for case in &report.cases {
        if let Some(answer) = &case.refused {
            out.push_str(&format!("\n{} was refused: {answer}", case.case));
        }
        for (kind, count) in &case.errors {
            out.push_str(&format!("\n{}: error {count} x {kind}", case.case));
        }
    }
    out.push('\n');
    out
}

/// A line per interval; times in milliseconds.
fn intervals(case: &CaseReport) -> Table {
    let columns =
        ["elapsed", "window", "n", "failed", "per_second", "min", "mean", "median", "95th", "99th", "99_9th", "max"];
    let mut table = Table::new(&columns);
    for window in &case.windows {
        let mut cells = vec![
            format!("{:.3}", window.elapsed_seconds),
            format!("{:.3}", window.window_seconds),
            window.successful.to_string(),
            window.failed.to_string(),
            format!("{:.1}", window.requests_per_second),
        ];
        let times = [
            window.min_ms,
            window.mean_ms,
            window.median_ms,
            window.p95_ms,
            window.p99_ms,
            window.p999_ms,
            window.max_ms,
        ];
        cells.extend(times.map(|ms| format!("{ms:.3}")));
        table.row(cells);
    }
    table
}

type Value = fn(&Window) -> f64;

/// Title, unit, and what is drawn: each line's name and its value.
type Panel = (&'static str, &'static str, &'static [(&'static str, Value)]);

fn failed_per_second(window: &Window) -> f64 {
    if window.window_seconds > 0.0 { window.failed as f64 / window.window_seconds } else { 0.0 }
}

/// The panels, top to bottom.
const PANELS: [Panel; 5] = [
    ("throughput", "requests/s", &[("ok", |window| window.requests_per_second), ("error", failed_per_second)]),
    ("mean and median", "ms", &[("mean", |window| window.mean_ms), ("median", |window| window.median_ms)]),
    ("95th percentile", "ms", &[("95th", |window| window.p95_ms)]),
    ("99th percentile", "ms", &[("99th", |window| window.p99_ms)]),
    (
        "99.9th percentile and maximum",
        "ms",
        &[("99.9th", |window| window.p999_ms), ("maximum", |window| window.max_ms)],
    ),
];

fn line(name: &str, case: &CaseReport, value: Value) -> Line {
    let points = case.windows.iter().map(|window| (window.elapsed_seconds, value(window))).collect();
    Line { name: name.to_owned(), points }
}

fn chart(title: &str, y: &str, lines: Vec<Line>) -> Chart {
    Chart { title: title.to_owned(), x: "seconds".to_owned(), y: y.to_owned(), lines }
}

/// One case's picture.
fn picture(case: &CaseReport) -> String {
    let panels: Vec<Chart> = PANELS
        .iter()
        .map(|(title, unit, values)| {
            let lines = values.iter().map(|(name, value)| line(name, case, *value)).collect();
            chart(&format!("{}: {title}", case.case), unit, lines)
        })
        .collect();
    report::stacked(&panels)
}

/// All cases over one another: the first value of each panel, but the median and the maximum.
fn comparison(report: &AuthReport) -> String {
    let taken: Vec<&CaseReport> = report.cases.iter().filter(|case| case.refused.is_none()).collect();
    let compared: [(&str, &str, Value); 5] = [
        ("throughput", "requests/s", |window| window.requests_per_second),
        ("median", "ms", |window| window.median_ms),
        ("95th percentile", "ms", |window| window.p95_ms),
        ("99th percentile", "ms", |window| window.p99_ms),
        ("maximum", "ms", |window| window.max_ms),
    ];
    let panels: Vec<Chart> = compared
        .iter()
        .map(|(title, unit, value)| {
            chart(title, unit, taken.iter().map(|case| line(case.case, case, *value)).collect())
        })
        .collect();
    report::stacked(&panels)
}

/// Writes `auth.json`, `auth.csv`, `auth.svg`, and `auth-CASE.csv` and `auth-CASE.svg` of each case.
pub(super) fn write_files(report: &AuthReport, env: &Env, directory: &Path) -> Result<(), BenchError> {
    let mut files = vec![
        ("auth.json".to_owned(), report::json(report)),
        ("auth.csv".to_owned(), cases(report).csv()),
        ("auth.svg".to_owned(), comparison(report)),
    ];
    for case in report.cases.iter().filter(|case| case.refused.is_none()) {
        files.push((format!("auth-{}.csv", case.case), intervals(case).csv()));
        files.push((format!("auth-{}.svg", case.case), picture(case)));
    }
    report::write_files(env, directory, &files)
}
