//! The report of the curve: a table, files, and a picture beside the figures of 2001.

use std::path::Path;

use margay_env::Env;
use serde::Serialize;

use super::cited::EXT2_2001;
use super::curve::{Line, Operation, Point};
use crate::comparison::{self, RivalFacts};
use crate::error::BenchError;
use crate::log_chart::{Mark, Panel, Picture};
use crate::report::{self, Report};
use crate::rivals::Absent;
use crate::summary::Table;

#[derive(Debug, Serialize)]
pub(super) struct CurveReport {
    pub(super) benchmark: &'static str,
    pub(super) rounds: u16,
    /// The longest time of one operation at one size.
    pub(super) limit_s: f64,
    /// With an fsync of the directory at the end of each operation.
    pub(super) sync: bool,
    pub(super) rivals: Vec<RivalFacts>,
    /// Those that could not be started.
    pub(super) absent: Vec<Absent>,
    pub(super) lines: Vec<Line>,
}

impl Report for CurveReport {
    fn text(&self) -> String {
        let sync = if self.sync { ", with fsync" } else { "" };
        let mut out = format!("margay bench dirops --points: medians of {}{sync}\n\n", self.rounds);
        out.push_str(&self.table().text());
        if self.lines.iter().flat_map(|line| &line.points).any(Point::cut) {
            out.push_str(&format!("\ncut: not all files were done after {} s\n", self.limit_s));
        }
        out.push_str(&comparison::who(&self.rivals, &self.absent));
        out.push_str(&EXT2_2001.text());
        out
    }

    fn write_files(&self, env: &Env, directory: &Path) -> Result<(), BenchError> {
        let files = [
            ("curve.json", report::json(self)),
            ("curve.csv", self.table().csv()),
            ("curve.svg", self.picture().svg()),
        ];
        report::write_files(env, directory, &files)
    }
}

impl CurveReport {
    fn table(&self) -> Table {
        let mut table = Table::new(&["operation", "place", "files", "us each", "seconds", "cut after"]);
        for (operation, line) in self.by_operation() {
            for point in &line.points {
                table.row(vec![
                    operation.name().to_owned(),
                    line.place.clone(),
                    point.files.to_string(),
                    format!("{:.2}", point.us_each()),
                    format!("{:.3}", point.seconds()),
                    if point.cut() { point.done.to_string() } else { String::new() },
                ]);
            }
        }
        table
    }

    fn by_operation(&self) -> impl Iterator<Item = (Operation, &Line)> {
        Operation::ALL.into_iter().flat_map(|operation| {
            self.lines.iter().filter(move |line| line.operation == operation).map(move |line| (operation, line))
        })
    }

    fn picture(&self) -> Picture {
        // A point that was cut stands where it was cut: at the files that were done.
        let mark = |point: &Point| Mark { x: point.done as f64, y: point.us_each(), cut: point.cut() };
        let panel = |operation: Operation| {
            let lines = self.by_operation().filter(|(of, _)| *of == operation);
            Panel {
                title: operation.name().to_owned(),
                lines: lines.map(|(_, line)| line.points.iter().map(mark).collect()).collect(),
            }
        };
        let names = self.by_operation().filter(|(operation, _)| *operation == Operation::Create);
        Picture {
            title: "dirops: files of one directory".to_owned(),
            note: "the time of one file: level for an index, climbing for a search of the directory".to_owned(),
            x: "files of the directory".to_owned(),
            y: "us each".to_owned(),
            names: names.map(|(_, line)| line.place.clone()).collect(),
            panels: Operation::ALL.map(panel).to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_is_said_and_drawn() {
        let line = |place: &str, operation, done| Line {
            place: place.to_owned(),
            operation,
            points: vec![
                Point { files: 100, done: 100, rounds: vec![0.1, 0.2, 0.3] },
                Point { files: 1000, done, rounds: vec![1.0] },
            ],
        };
        let lines = vec![
            line("/a", Operation::Create, 1000),
            line("/a", Operation::Delete, 1000),
            line("/b", Operation::Create, 500),
        ];
        let absent = vec![Absent { name: "away".to_owned(), reason: "not on PATH: away".to_owned() }];
        let report = CurveReport {
            benchmark: "dirops",
            rounds: 3,
            limit_s: 1.0,
            sync: false,
            rivals: Vec::new(),
            absent,
            lines,
        };
        let text = report.text();
        assert!(text.contains("after 1 s") && text.contains("0.30") && text.contains("away: left out"), "{text}");
        let csv = report.table().csv();
        assert!(csv.contains("create,/a,100,2000.00,0.200,\n") && csv.contains("create,/b,1000,2000.00,1.000,500\n"));
        let svg = report.picture().svg();
        assert_eq!(svg.matches(">cut<").count(), 1, "{svg}");
    }
}
