//! The report of `margay bench ls` as text, CSV and SVG.
//!
//! Why:      the terminal shows what to look at; the files hold what to compare later.
//! Not here: measuring.

use std::path::Path;

use margay_env::Env;

use super::LsReport;
use super::deleted::DeletedReport;
use super::pages::PrefixReport;
use crate::error::BenchError;
use crate::report::{self, Chart, Line};
use crate::summary::Table;

fn yes_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

/// The whole report for a terminal.
pub(super) fn text(report: &LsReport) -> String {
    let mut out = format!("margay bench ls against {}\n", report.endpoint);
    match &report.s3cmd_version {
        Some(version) if !report.s3cmd.is_empty() => {
            out.push_str(&format!("\n{version} ls, seconds (medians; cpu is s3cmd's own user and system time)\n"));
            out.push_str(&s3cmd_medians(report).text());
        }
        Some(_) => {}
        None => out.push_str("\ns3cmd was left out: it is not installed, or --no-s3cmd was given\n"),
    }
    if !report.prefixes.is_empty() {
        out.push_str("\npages, ms (net: less the median HEAD over the same connection)\n");
        out.push_str(&pages(&report.prefixes).text());
        out.push_str("\nwhole listings in pages of 1000, ms\n");
        out.push_str(&whole(&report.prefixes).text());
    }
    if !report.growth.is_empty() {
        out.push_str("\npages in growing prefixes, ms (ratio: net median against the first size)\n");
        out.push_str(&growth(report).text());
        out.push_str("\nwhole listings in pages of 1000, ms\n");
        out.push_str(&whole(&report.growth).text());
    }
    if !report.deleted.is_empty() {
        out.push_str("\ndelete one, list first, ms (ratio: against a prefix that was always empty)\n");
        out.push_str(&steps(&report.deleted).text());
        out.push_str("\nthe emptied prefix, ms\n");
        out.push_str(&emptied(&report.deleted).text());
    }
    for missed in &report.missed {
        out.push_str(&format!("missed: {missed}\n"));
    }
    out
}

fn s3cmd_medians(report: &LsReport) -> Table {
    let mut table = Table::new(&["keys", "real", "cpu", "real/cpu"]);
    for row in &report.s3cmd {
        let ratio = if row.median_cpu_s > 0.0 { row.median_real_s / row.median_cpu_s } else { 0.0 };
        table.row(vec![row.keys.to_string(), three(row.median_real_s), three(row.median_cpu_s), format!("{ratio:.2}")]);
    }
    table
}

fn s3cmd_runs(report: &LsReport) -> Table {
    let mut table = Table::new(&["keys", "run", "real_s", "user_s", "sys_s"]);
    for row in &report.s3cmd {
        for (index, run) in row.runs.iter().enumerate() {
            let number = (index + 1).to_string();
            table.row(vec![row.keys.to_string(), number, three(run.real_s), three(run.user_s), three(run.sys_s)]);
        }
    }
    table
}

fn pages(prefixes: &[PrefixReport]) -> Table {
    let mut table =
        Table::new(&["keys", "page", "delimiter", "median", "p99", "head", "net median", "net p99", "samples"]);
    for prefix in prefixes {
        for row in &prefix.pages {
            table.row(vec![
                prefix.keys.to_string(),
                row.page.to_owned(),
                yes_no(row.delimiter),
                three(row.page_time.median_ms),
                three(row.page_time.p99_ms),
                three(prefix.head.median_ms),
                three(row.net_median_ms),
                three(row.net_p99_ms),
                row.page_time.samples.to_string(),
            ]);
        }
    }
    table
}

fn whole(prefixes: &[PrefixReport]) -> Table {
    let mut table = Table::new(&["keys", "runs", "median", "per page"]);
    for prefix in prefixes {
        let per_page = prefix.whole_ms / prefix.keys.div_ceil(1000) as f64;
        table.row(vec![
            prefix.keys.to_string(),
            prefix.whole_runs.to_string(),
            three(prefix.whole_ms),
            three(per_page),
        ]);
    }
    table
}

fn growth(report: &LsReport) -> Table {
    let mut table = Table::new(&["keys", "page", "delimiter", "median", "p99", "net median", "net p99", "ratio"]);
    for (prefix, row, ratio) in report.growth_ratios() {
        table.row(vec![
            prefix.keys.to_string(),
            row.page.to_owned(),
            yes_no(row.delimiter),
            three(row.page_time.median_ms),
            three(row.page_time.p99_ms),
            three(row.net_median_ms),
            three(row.net_p99_ms),
            format!("{ratio:.2}"),
        ]);
    }
    table
}

fn steps(deleted: &[DeletedReport]) -> Table {
    let mut table =
        Table::new(&["order", "deleted", "delete", "list median", "list p99", "empty median", "empty p99", "ratio"]);
    for report in deleted {
        for stretch in &report.stretches {
            table.row(vec![
                report.order.name().to_owned(),
                stretch.deleted.to_string(),
                three(stretch.delete.median_ms),
                three(stretch.list_first.median_ms),
                three(stretch.list_first.p99_ms),
                three(stretch.baseline.median_ms),
                three(stretch.baseline.p99_ms),
                format!("{:.2}", stretch.ratio),
            ]);
        }
    }
    table
}

fn emptied(deleted: &[DeletedReport]) -> Table {
    let mut table = Table::new(&["order", "emptied median", "emptied p99", "empty median", "empty p99", "ratio"]);
    for report in deleted {
        table.row(vec![
            report.order.name().to_owned(),
            three(report.emptied.median_ms),
            three(report.emptied.p99_ms),
            three(report.always_empty.median_ms),
            three(report.always_empty.p99_ms),
            format!("{:.2}", report.emptied_ratio),
        ]);
    }
    table
}

/// Writes `ls.json`, one CSV per table that has rows, and charts.
pub(super) fn write_files(report: &LsReport, env: &Env, directory: &Path) -> Result<(), BenchError> {
    let mut files = vec![("ls.json", report::json(report))];
    if !report.s3cmd.is_empty() {
        files.push(("ls-s3cmd.csv", s3cmd_runs(report).csv()));
        files.push(("ls-s3cmd.svg", s3cmd_chart(report).svg()));
    }
    if !report.prefixes.is_empty() {
        files.push(("ls-pages.csv", pages(&report.prefixes).csv()));
        files.push(("ls-whole.csv", whole(&report.prefixes).csv()));
    }
    if !report.growth.is_empty() {
        files.push(("ls-growth.csv", growth(report).csv()));
    }
    if !report.deleted.is_empty() {
        files.push(("ls-deleted.csv", steps(&report.deleted).csv()));
        files.push(("ls-emptied.csv", emptied(&report.deleted).csv()));
        files.push(("ls-deleted.svg", deleted_chart(report).svg()));
    }
    report::write_files(env, directory, &files)
}

fn s3cmd_chart(report: &LsReport) -> Chart {
    let points = |value: fn(&super::s3cmd::Row) -> f64| {
        report.s3cmd.iter().map(|row| (row.keys as f64, value(row))).collect::<Vec<_>>()
    };
    Chart {
        title: "s3cmd ls".to_owned(),
        x: "keys".to_owned(),
        y: "seconds".to_owned(),
        lines: vec![
            Line { name: "real".to_owned(), points: points(|row| row.median_real_s) },
            Line { name: "s3cmd's own cpu".to_owned(), points: points(|row| row.median_cpu_s) },
        ],
    }
}

fn deleted_chart(report: &LsReport) -> Chart {
    let lines = report.deleted.iter().map(|deleted| Line {
        name: deleted.order.name().to_owned(),
        points: deleted
            .stretches
            .iter()
            .map(|stretch| (stretch.deleted as f64, stretch.list_first.median_ms))
            .collect(),
    });
    Chart {
        title: "list first, after each delete".to_owned(),
        x: "keys deleted".to_owned(),
        y: "ms".to_owned(),
        lines: lines.collect(),
    }
}
