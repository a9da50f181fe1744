//! The report of `margay bench auth` as text, CSV and pictures.

use std::path::Path;

use margay_env::Env;

use super::AuthReport;
use crate::error::BenchError;
use crate::report;
use crate::summary::Table;
use crate::windows::{self, Window};

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

/// What was done.
pub(super) fn title(report: &AuthReport) -> String {
    let AuthReport { connections, threads, keys, size_bytes_min, size_bytes_max, .. } = report;
    let threads = crate::threads::named(*threads);
    format!("{connections} connections on {threads}, {keys} objects of {size_bytes_min} to {size_bytes_max} bytes")
}

pub(super) fn text(report: &AuthReport) -> String {
    let mut out = format!("margay bench auth against {}: {}\n\n", report.endpoint, title(report));
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

/// Writes `auth.json`, `auth.csv`, `auth.svg`, and `auth-CASE.csv` and `auth-CASE.svg` of each case.
pub(super) fn write_files(report: &AuthReport, env: &Env, directory: &Path) -> Result<(), BenchError> {
    let taken: Vec<(&str, &[Window])> = report
        .cases
        .iter()
        .filter(|case| case.refused.is_none())
        .map(|case| (case.case, case.windows.as_slice()))
        .collect();
    let mut files = vec![
        ("auth.json".to_owned(), report::json(report)),
        ("auth.csv".to_owned(), cases(report).csv()),
        ("auth.svg".to_owned(), windows::comparison(&taken)),
    ];
    for &(case, windows) in &taken {
        files.push((format!("auth-{case}.csv"), windows::table("case", &[(case, windows)]).csv()));
        files.push((format!("auth-{case}.svg"), windows::picture(case, windows)));
    }
    report::write_files(env, directory, &files)
}
