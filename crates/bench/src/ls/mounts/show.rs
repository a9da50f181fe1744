//! The report of listings through mounts: tables, files and curves, beside what was measured in 2013.

use std::path::Path;

use margay_env::Env;

use super::cited::LEOFS_2013;
use super::{Case, MountsReport, Row};
use crate::error::BenchError;
use crate::report::{self, Chart, Line, Report};
use crate::summary::Table;

impl Report for MountsReport {
    fn text(&self) -> String {
        let mut out = format!("margay bench ls --mounts {}\n", self.mounts.join(" "));
        let entries = if self.long { "with the attributes of each entry" } else { "names only" };
        let caches = match self.cold {
            true => "the kernel's caches emptied before each",
            false => "with whatever the kernel has cached: only root may empty its caches",
        };
        out.push_str(&format!("\nlistings in ms, {} runs, {entries}, {caches}\n", self.runs));
        out.push_str(&self.table().text());
        out.push_str(&LEOFS_2013.text());
        out
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        let files = [
            ("mounts.json", report::json(self)),
            ("mounts.csv", self.table().csv()),
            ("mounts.svg", report::stacked(&self.charts())),
        ];
        report::write_files(env, directory, &files)
    }
}

impl MountsReport {
    fn table(&self) -> Table {
        let mut table =
            Table::new(&["mounts", "clients", "total", "listed", "mean ms", "median ms", "max ms", "listings"]);
        for Row { case, listings, mean_s, median_s, max_s } in &self.rows {
            let Case { total, objects, mounts, clients } = case;
            let times = [mean_s, median_s, max_s].map(|seconds| format!("{:.2}", seconds * 1e3));
            let counts = [*mounts as u64, *clients as u64, *total, *objects].map(|count| count.to_string());
            table.row(counts.into_iter().chain(times).chain([listings.to_string()]).collect());
        }
        table
    }

    /// What the store's size does, and what more listers and mount points do.
    fn charts(&self) -> [Chart; 2] {
        let largest = self.rows.iter().map(|row| row.case.total).max().unwrap_or_default();
        let grown = self.lines(|case| {
            (case.mounts == 1 && case.clients == 1).then(|| format!("{} objects in the store", case.total))
        });
        let crowded = self.lines(|case| {
            (case.total == largest).then(|| format!("mounts: {}, listers at each: {}", case.mounts, case.clients))
        });
        let chart =
            |title: String, lines| Chart { title, x: "objects in the directory".to_owned(), y: "ms".to_owned(), lines };
        [
            chart("ls through a mount, one lister".to_owned(), grown),
            chart(format!("ls through mounts of {largest} objects"), crowded),
        ]
    }

    /// A line for each name, of the rows that have one.
    fn lines(&self, name: impl Fn(&Case) -> Option<String>) -> Vec<Line> {
        let mut lines = Vec::<Line>::new();
        for row in &self.rows {
            let Some(name) = name(&row.case) else { continue };
            let point = (row.case.objects as f64, row.mean_s * 1e3);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Line { name, points: vec![point] }),
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_series_is_a_line_and_the_cited_figures_are_beside() {
        let row = |total, objects, mounts, clients| {
            let case = Case { total, objects, mounts, clients };
            Row { case, listings: 1, mean_s: 0.5, median_s: 0.5, max_s: 0.5 }
        };
        let rows = vec![row(10, 1, 1, 1), row(10, 2, 1, 1), row(20, 1, 1, 1), row(20, 2, 1, 1), row(20, 1, 1, 3)];
        let mounts = vec!["/m".to_owned()];
        let report = MountsReport { mounts, mount_command: None, runs: 1, long: false, cold: false, rows };
        let [grown, crowded] = report.charts();
        let names = |chart: &Chart| chart.lines.iter().map(|line| line.points.len()).collect::<Vec<_>>();
        assert_eq!((names(&grown), names(&crowded)), (vec![2, 2], vec![2, 1]));
        let text = report.text();
        assert!(text.contains("500.00") && text.contains("145.574") && text.contains("whatever"), "{text}");
    }
}
