//! What happened in stretches of time: the numbers, their table, and their pictures of five panels.
//!
//! Source:   the columns and panels are those of basho_bench: throughput; mean and median; 95th; 99th; 99.9th
//!           percentile and maximum, over time.
//! Not here: how they are counted (`auth::samples` exactly, `load::stats` in histograms).

use serde::Serialize;

use crate::report::{self, Chart, Line};
use crate::summary::Table;

/// What happened in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Window {
    /// Its end, in seconds from the beginning of the case.
    pub elapsed_seconds: f64,
    /// Its length.
    pub window_seconds: f64,
    pub successful: u64,
    pub failed: u64,
    /// Successful ones only, as are the latencies.
    pub requests_per_second: f64,
    pub min_ms: f64,
    pub mean_ms: f64,
    pub median_ms: f64,
    pub p95_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
}

/// A line per window of each name; times in milliseconds.
pub(crate) fn table(first: &str, timelines: &[(&str, &[Window])]) -> Table {
    let columns = [
        first,
        "elapsed",
        "window",
        "n",
        "failed",
        "per_second",
        "min",
        "mean",
        "median",
        "95th",
        "99th",
        "99_9th",
        "max",
    ];
    let mut table = Table::new(&columns);
    for (name, windows) in timelines {
        for window in *windows {
            let mut cells = vec![
                (*name).to_owned(),
                format!("{:.3}", window.elapsed_seconds),
                format!("{:.3}", window.window_seconds),
                window.successful.to_string(),
                window.failed.to_string(),
                format!("{:.1}", window.requests_per_second),
            ];
            let Window { min_ms, mean_ms, median_ms, p95_ms, p99_ms, p999_ms, max_ms, .. } = *window;
            let times = [min_ms, mean_ms, median_ms, p95_ms, p99_ms, p999_ms, max_ms];
            cells.extend(times.map(|ms| format!("{ms:.3}")));
            table.row(cells);
        }
    }
    table
}

type Value = fn(&Window) -> f64;

/// Title, unit, and what is drawn: each line's name and its value.
type Panel = (&'static str, &'static str, &'static [(&'static str, Value)]);

fn failed_per_second(window: &Window) -> f64 {
    if window.window_seconds > 0.0 { window.failed as f64 / window.window_seconds } else { 0.0 }
}

/// The panels of one name, top to bottom.
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

/// The panels of several names, top to bottom: one value of each.
const COMPARED: [(&str, &str, Value); 5] = [
    ("throughput", "requests/s", |window| window.requests_per_second),
    ("median", "ms", |window| window.median_ms),
    ("95th percentile", "ms", |window| window.p95_ms),
    ("99th percentile", "ms", |window| window.p99_ms),
    ("maximum", "ms", |window| window.max_ms),
];

fn line(name: &str, windows: &[Window], value: Value) -> Line {
    let points = windows.iter().map(|window| (window.elapsed_seconds, value(window))).collect();
    Line { name: name.to_owned(), points }
}

fn chart(title: &str, y: &str, lines: Vec<Line>) -> Chart {
    Chart { title: title.to_owned(), x: "seconds".to_owned(), y: y.to_owned(), lines }
}

/// One name's picture.
pub(crate) fn picture(name: &str, windows: &[Window]) -> String {
    let panel = |(title, unit, values): &Panel| {
        let lines = values.iter().map(|(name, value)| line(name, windows, *value)).collect();
        chart(&format!("{name}: {title}"), unit, lines)
    };
    report::stacked(&PANELS.iter().map(panel).collect::<Vec<_>>())
}

/// All names over one another.
pub(crate) fn comparison(timelines: &[(&str, &[Window])]) -> String {
    let panel = |(title, unit, value): &(&str, &str, Value)| {
        chart(title, unit, timelines.iter().map(|(name, windows)| line(name, windows, *value)).collect())
    };
    report::stacked(&COMPARED.iter().map(panel).collect::<Vec<_>>())
}
