//! The rows that an attempt has read, so that its answer can be checked and its reads can be asked for together.
//!
//! Why:        a commit asserts what it rests on; a refusal or a read commits nothing, so its rows must have held at one
//!             moment. Rows that came from one call of the engine did; others are read again, all together.
//! Invariants: W1 a version is never used twice, so an equal version means that the row was the same all the time.
//!             W2 `is_of_one_moment` only if everything that was used came from one call.
//!             W3 rows that were fetched ahead answer for their keys until the attempt begins again.
//! Not here:   calls of the engine (driver); rows that were scanned are not read again: they belong to a row that is here.

use margay_meta::{Answers, Ask, Cursor, Row, RowBatch, RowVersion};
use margay_rows::key;

use crate::at_hand;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The newest commit that what was read rests on.
    pub(crate) cursor: Cursor,
    /// Keys and versions, in the order of reading.
    rows: Vec<(Vec<u8>, Option<RowVersion>)>,
    ahead: Vec<Ahead>,
    /// Moments at which something was read.
    moments: u32,
    /// How often the store had removed bytes before the first row was read.
    removals: Option<u64>,
    /// What was read may be out of date, wherever it came from.
    passed: bool,
}

/// How far the notes of an attempt went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    rows: usize,
    moments: u32,
}

/// What was fetched before it is asked for.
#[derive(Debug)]
enum Ahead {
    Row { key: Vec<u8>, row: Option<Row> },
    Rows { range: key::Range, rows: RowBatch },
}

impl Seen {
    pub(crate) fn rises_to(&mut self, cursor: Cursor) {
        self.cursor = self.cursor.max(cursor);
    }

    /// Notes a row that was read by a call of its own.
    pub(crate) fn read(&mut self, key: &[u8], version: Option<RowVersion>) {
        self.moments += 1;
        self.rows.push((key.to_vec(), version));
    }

    /// Notes a row that is of the same moment as a range that was read.
    pub(crate) fn in_range(&mut self, key: &[u8], version: RowVersion) {
        self.rows.push((key.to_vec(), Some(version)));
    }

    /// Notes a row that was not read but kept from before.
    pub(crate) fn remembered(&mut self, key: &[u8], version: RowVersion) {
        self.moments += 2;
        self.rows.push((key.to_vec(), Some(version)));
    }

    /// Notes that a range was read by a call of its own.
    pub(crate) fn range_read(&mut self) {
        self.moments += 1;
    }

    /// Takes what one call brought. `removals`: how often the store had removed bytes before that call.
    pub(crate) fn fetched(&mut self, asks: Vec<Ask>, answers: Answers, removals: u64) {
        assert_eq!(asks.len(), answers.answers.len(), "a read answers each question");
        self.rises_to(answers.observed);
        self.moments += if answers.one_moment { 1 } else { 2 };
        self.removals.get_or_insert(removals);
        self.ahead.extend(asks.into_iter().zip(answers.answers).map(|(ask, answer)| match (ask, answer) {
            (Ask::Get { key }, answer) => Ahead::Row { key, row: answer.row() },
            (Ask::Scan { start, end, .. }, answer) => Ahead::Rows { range: (start, end), rows: answer.rows() },
        }));
    }

    /// One of the rows that were fetched ahead, alone.
    pub(crate) fn only(&self, wanted: &[u8]) -> Seen {
        let row = self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Row { key, row } if key == wanted => Some(Ahead::Row { key: key.clone(), row: row.clone() }),
            _ => None,
        });
        Seen { cursor: self.cursor, moments: 1, ahead: row.into_iter().collect(), ..Seen::default() }
    }

    /// How far notes go, to go back to.
    pub(crate) fn mark(&self) -> Mark {
        Mark { rows: self.rows.len(), moments: self.moments }
    }

    /// Forgets what was noted since.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.rows.truncate(mark.rows);
        self.moments = mark.moments;
    }

    /// What was noted since the begin of the attempt came from one call, and this is its moment.
    pub(crate) fn had_at_hand(&mut self, (observed, one_moment): (Cursor, bool)) {
        self.rises_to(observed);
        if one_moment && !self.passed {
            self.moments = 1;
        }
    }

    /// Questions for all that was fetched ahead, which is forgotten.
    pub(crate) fn drain_ahead(&mut self) -> Vec<Ask> {
        self.moments = 0;
        let asks = self.ahead.drain(..).map(|ahead| match ahead {
            Ahead::Row { key, .. } => Ask::Get { key },
            Ahead::Rows { range: (start, end), rows } => {
                Ask::Scan { start, end, rows_max: rows.len().max(1), keys_only: false }
            }
        });
        asks.collect()
    }

    /// Questions for the rows that were noted, and the versions that they had.
    pub(crate) fn check(&self) -> (Vec<Ask>, Vec<Option<RowVersion>>) {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        rows.dedup();
        rows.into_iter().map(|(key, version)| (Ask::Get { key: key.clone() }, *version)).unzip()
    }

    /// Whether anything was fetched ahead.
    pub(crate) fn is_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The row that was fetched ahead; `None`: it was not. Notes it.
    pub(crate) fn row_ahead(&mut self, wanted: &[u8]) -> Option<Option<Row>> {
        let row = self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Row { key, row } if key == wanted => Some(row.clone()),
            _ => None,
        })?;
        self.rows.push((wanted.to_vec(), row.as_ref().map(|row| row.version)));
        Some(row)
    }

    /// The rows of a range, as far as they were fetched ahead.
    pub(crate) fn rows_ahead(&self, wanted: &key::Range) -> Option<&RowBatch> {
        self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Rows { range, rows } if range == wanted => Some(rows),
            _ => None,
        })
    }

    /// As `rows_ahead`; they are given once.
    pub(crate) fn take_rows_ahead(&mut self, wanted: &key::Range) -> Option<RowBatch> {
        let is_wanted = |ahead: &Ahead| matches!(ahead, Ahead::Rows { range, .. } if range == wanted);
        let at = self.ahead.iter().position(is_wanted)?;
        match self.ahead.swap_remove(at) {
            Ahead::Rows { rows, .. } => Some(rows),
            Ahead::Row { .. } => None,
        }
    }

    /// Everything was read at one moment, or held at one, or nothing was read at all.
    pub(crate) fn is_of_one_moment(&self) -> bool {
        self.moments <= 1
    }

    /// Whether the store may have removed bytes since the first row was read, by the count of now.
    pub(crate) fn may_have_lost_bytes(&self, removals: u64) -> bool {
        self.removals.or_else(at_hand::removals) != Some(removals)
    }

    /// Every row still was as it was read, at a moment after all of them. What was fetched ahead and not used yet is
    /// older, and is forgotten.
    pub(crate) fn held(&mut self) {
        if !self.is_of_one_moment() {
            self.ahead.clear();
            self.moments = 1;
            self.passed = false;
        }
    }

    /// Forgets what was read; the newest commit stays.
    pub(crate) fn begin_again(&mut self) {
        *self = Seen { cursor: self.cursor, ..Seen::default() };
    }

    /// Adds what was read beside this, and held at one moment.
    pub(crate) fn absorb(&mut self, other: Seen) {
        self.rises_to(other.cursor);
        self.moments += other.moments;
        self.rows.extend(other.rows);
    }

    /// What was read may be out of date.
    pub(crate) fn moment_passed(&mut self) {
        self.moments += 2;
        self.passed = true;
    }

    /// What follows is read anew.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead.clear();
    }

    /// Keeps the newest commit only, for walks that are long.
    pub(crate) fn forget_rows(&mut self) {
        self.rows.clear();
    }
}
