//! A few numbers for many samples, and tables of them.
//!
//! Why:      every benchmark reports the same way: medians first, then tails.
//! Not here: histograms of millions of samples (`load::stats`).

use std::time::Duration;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ContentArrangement};
use serde::Serialize;

/// Order statistics of a set of samples, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    pub samples: usize,
    pub median_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Summary {
    /// All zero for no samples.
    pub fn of(samples: &[Duration]) -> Summary {
        let mut sorted = samples.to_vec();
        sorted.sort_unstable();
        let Some(&max) = sorted.last() else {
            return Summary::default();
        };
        Summary {
            samples: sorted.len(),
            median_ms: median(sorted.iter().copied().map(ms)),
            p99_ms: percentile(&sorted, 990).copied().map_or(0.0, ms),
            max_ms: ms(max),
        }
    }
}

/// A duration in milliseconds with its fraction.
pub(crate) fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The middle one of some numbers, or the mean of both in the middle; 0 for none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    match (values.len() / 2, values.len() % 2) {
        (0, 0) => 0.0,
        (middle, 0) => f64::midpoint(values[middle - 1], values[middle]),
        (middle, _) => values[middle],
    }
}

/// The smallest of sorted values that this share of all, in thousandths, does not exceed; None of none.
pub(crate) fn percentile<T>(sorted: &[T], per_mille: usize) -> Option<&T> {
    let rank = (sorted.len() * per_mille).div_ceil(1000).max(1);
    sorted.get(rank - 1)
}

/// Columns of text, aligned to the right; the first one to the left when it holds words.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Table {
        Table { rows: vec![columns.iter().map(|&name| name.to_owned()).collect()] }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a row has a cell for every column");
        self.rows.push(cells);
    }

    /// The table as lines for a terminal.
    pub(crate) fn text(&self) -> String {
        let words = |column: usize| self.rows.iter().skip(1).any(|row| row[column].starts_with(char::is_alphabetic));
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled).add_rows(&self.rows);
        for (index, column) in table.column_iter_mut().enumerate() {
            let alignment = if words(index) { CellAlignment::Left } else { CellAlignment::Right };
            column.set_padding((1, 0));
            column.set_cell_alignment(alignment);
        }
        table.lines().map(|line| format!(" {}\n", line.trim_end())).collect()
    }

    /// The table as comma-separated values (RFC 4180, with line feeds).
    pub(crate) fn csv(&self) -> String {
        let cell = |cell: &String| match cell.contains([',', '"', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell.clone(),
        };
        let lines = self.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(","));
        lines.map(|line| line + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_statistics() {
        let samples: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        let summary = Summary::of(&samples);
        assert_eq!((summary.samples, summary.median_ms, summary.max_ms), (100, 50.5, 100.0));
        assert_eq!(summary.p99_ms, 99.0);
        assert_eq!(Summary::of(&[]), Summary::default());
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!((median([]), median([7.0]), median([4.0, 1.0])), (0.0, 7.0, 2.5));
        assert_eq!(
            (percentile(&[1, 2], 500), percentile(&[1, 2], 501), percentile(&[0; 0], 1)),
            (Some(&1), Some(&2), None)
        );
    }

    #[test]
    fn tables_align_and_export() {
        let mut table = Table::new(&["page", "ms"]);
        table.row(vec!["first".to_owned(), "1.5".to_owned()]);
        table.row(vec!["last".to_owned(), "10.25".to_owned()]);
        assert_eq!(table.text(), "  page     ms\n  first   1.5\n  last  10.25\n");
        assert_eq!(table.csv(), "page,ms\nfirst,1.5\nlast,10.25\n");
        // Letters of two columns, and of none, as terminals show them.
        let mut wide = Table::new(&["name", "ms", ""]);
        wide.row(vec!["\u{65e5}\u{672c}".to_owned(), "1".to_owned(), "x".to_owned()]);
        wide.row(vec!["e\u{301}".to_owned(), "2".to_owned(), String::new()]);
        assert_eq!(wide.text(), "  name ms\n  \u{65e5}\u{672c}  1 x\n  e\u{301}     2\n");
        table.row(vec!["/a, \"b\"".to_owned(), "1".to_owned()]);
        assert!(table.csv().ends_with("\n\"/a, \"\"b\"\"\",1\n"), "{}", table.csv());
    }
}
