//! Published figures of others, for scale.
//!
//! Not here: the figures, which stand with what measures the same.

use serde::Serialize;

use crate::summary::Table;

#[derive(Debug, Serialize)]
pub(crate) struct Cited {
    /// Whose they are, and what they were measured on.
    pub(crate) note: &'static str,
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: &'static [&'static [&'static str]],
}

impl Cited {
    /// The columns, then the rows.
    pub(crate) fn lines(&self) -> Vec<Vec<String>> {
        let lines = std::iter::once(self.columns).chain(self.rows.iter().copied());
        lines.map(|line| line.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    /// For a terminal, with an empty line before it.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new(self.columns);
        self.lines().into_iter().skip(1).for_each(|line| table.row(line));
        format!("\n{}\n{}", self.note, table.text())
    }
}
