//! The read set of an attempt: rows read and their versions, and rows prefetched for it.
//!
//! Why:        a commit asserts its reads; a refusal or a read commits nothing, so its rows must have been current at
//!             one moment. Rows of one engine call were; others are read again, all together.
//! Invariants: W1 a version is never reused, so an equal version means that the row was unchanged all the time. Counters have
//!                none: they are not recorded (design/0028).
//!             W2 `is_of_one_moment` only if everything that was used came from one call.
//!             W3 prefetched rows answer for their keys until the attempt is restarted.
//!             W4 prefetched ranges answer only while everything was read at their moment: they belong to a row that is
//!                recorded, and must not be older than it.
//! Not here:   engine calls (driver). Scanned rows are not read again: they belong to a row that is recorded here.

use std::time::Duration;

use margay_meta::{Answers, Ask, Cursor, Row, RowBatch, RowVersion, is_plain};
use margay_rows::key;

use crate::draft::at_hand;

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The newest commit that the reads reflect.
    pub(crate) cursor: Cursor,
    /// Keys and versions, in reading order.
    rows: Vec<(Vec<u8>, Option<RowVersion>)>,
    ahead: Vec<Ahead>,
    /// When the prefetched rows were asked for, by the monotonic clock.
    ahead_at: Option<Duration>,
    /// Number of moments at which something was read.
    moments: u32,
    /// The store's removal count before the first row was read.
    removals: Option<u64>,
    /// The reads may be out of date, whatever their source.
    passed: bool,
}

/// A position in the read set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    rows: usize,
    moments: u32,
}

/// Prefetched rows.
#[derive(Debug)]
enum Ahead {
    Row { key: Vec<u8>, row: Option<Row> },
    Rows { range: key::Range, rows: RowBatch },
}

impl Seen {
    pub(crate) fn rises_to(&mut self, cursor: Cursor) {
        self.cursor = self.cursor.max(cursor);
    }

    fn record(&mut self, key: &[u8], version: Option<RowVersion>) {
        if is_plain(key) {
            self.rows.push((key.to_vec(), version));
        }
    }

    /// Records a row that was read by a call of its own.
    pub(crate) fn read(&mut self, key: &[u8], version: Option<RowVersion>) {
        self.moments += 1;
        self.record(key, version);
    }

    /// Records a row of the same moment as a range that was read.
    pub(crate) fn in_range(&mut self, key: &[u8], version: RowVersion) {
        self.record(key, Some(version));
    }

    /// Records a row that came from a cache.
    pub(crate) fn remembered(&mut self, key: &[u8], version: RowVersion) {
        self.moments += 2;
        self.record(key, Some(version));
    }

    /// Records that a range was read by a call of its own.
    pub(crate) fn range_read(&mut self) {
        self.moments += 1;
    }

    /// Stores the rows of one call. `removals`: the store's removal count before that call.
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

    /// Rows are prefetched from now on.
    pub(crate) fn looks_ahead_at(&mut self, now: Duration) {
        self.ahead_at = Some(now);
    }

    /// A prefetched counter, if it is not older than that. It is not recorded: additions do not change its version.
    pub(crate) fn counter_ahead(&self, wanted: &[u8], now: Duration, age_max: Duration) -> Option<Option<&Row>> {
        self.ahead_at.filter(|at| now.saturating_sub(*at) <= age_max)?;
        self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Row { key, row } if key == wanted => Some(row.as_ref()),
            _ => None,
        })
    }

    /// One of the prefetched rows, alone.
    pub(crate) fn only(&self, wanted: &[u8]) -> Seen {
        let row = self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Row { key, row } if key == wanted => Some(Ahead::Row { key: key.clone(), row: row.clone() }),
            _ => None,
        });
        Seen { cursor: self.cursor, moments: 1, ahead: row.into_iter().collect(), ..Seen::default() }
    }

    /// The current position, for `rewind`.
    pub(crate) fn mark(&self) -> Mark {
        Mark { rows: self.rows.len(), moments: self.moments }
    }

    /// Drops what was recorded since.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.rows.truncate(mark.rows);
        self.moments = mark.moments;
    }

    /// Everything recorded since the attempt's start came from one call; this is its moment.
    pub(crate) fn had_at_hand(&mut self, (observed, one_moment): (Cursor, bool)) {
        self.rises_to(observed);
        if one_moment && !self.passed {
            self.moments = 1;
        }
    }

    /// Questions for all prefetched rows, which are dropped.
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

    /// Questions for the recorded rows, and their versions.
    pub(crate) fn check(&self) -> (Vec<Ask>, Vec<Option<RowVersion>>) {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        rows.dedup();
        rows.into_iter().map(|(key, version)| (Ask::Get { key: key.clone() }, *version)).unzip()
    }

    /// Whether anything was prefetched.
    pub(crate) fn is_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The prefetched row, which is recorded; `None` if it was not prefetched.
    pub(crate) fn row_ahead(&mut self, wanted: &[u8]) -> Option<Option<Row>> {
        let row = self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Row { key, row } if key == wanted => Some(row.clone()),
            _ => None,
        })?;
        self.record(wanted, row.as_ref().map(|row| row.version));
        Some(row)
    }

    /// The rows of a range, as far as they were prefetched (W4).
    pub(crate) fn rows_ahead(&self, wanted: &key::Range) -> Option<&RowBatch> {
        if !self.is_of_one_moment() {
            return None;
        }
        self.ahead.iter().find_map(|ahead| match ahead {
            Ahead::Rows { range, rows } if range == wanted => Some(rows),
            _ => None,
        })
    }

    /// As `rows_ahead`; they are returned once.
    pub(crate) fn take_rows_ahead(&mut self, wanted: &key::Range) -> Option<RowBatch> {
        if !self.is_of_one_moment() {
            return None;
        }
        let is_wanted = |ahead: &Ahead| matches!(ahead, Ahead::Rows { range, .. } if range == wanted);
        let at = self.ahead.iter().position(is_wanted)?;
        match self.ahead.swap_remove(at) {
            Ahead::Rows { rows, .. } => Some(rows),
            Ahead::Row { .. } => None,
        }
    }

    /// Whether everything was read at one moment, or was current at one, or nothing was read.
    pub(crate) fn is_of_one_moment(&self) -> bool {
        self.moments <= 1
    }

    /// Whether the store may have removed bytes since the first row was read, given its current removal count.
    pub(crate) fn may_have_lost_bytes(&self, removals: u64) -> bool {
        self.removals.or_else(at_hand::removals) != Some(removals)
    }

    /// Every row was still unchanged at a moment after all reads. Unused prefetched rows are older, and are dropped.
    pub(crate) fn held(&mut self) {
        if !self.is_of_one_moment() {
            self.ahead.clear();
            self.moments = 1;
            self.passed = false;
        }
    }

    /// Drops the reads; the newest commit stays.
    pub(crate) fn begin_again(&mut self) {
        *self = Seen { cursor: self.cursor, ..Seen::default() };
    }

    /// Adds another read set that was current at one moment.
    pub(crate) fn absorb(&mut self, other: Seen) {
        self.rises_to(other.cursor);
        self.moments += other.moments;
        self.rows.extend(other.rows);
    }

    /// The reads may be out of date.
    pub(crate) fn moment_passed(&mut self) {
        self.moments += 2;
        self.passed = true;
    }

    /// Later reads must go to the engine.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead.clear();
    }

    /// Keeps only the newest commit, for long walks.
    pub(crate) fn forget_rows(&mut self) {
        self.rows.clear();
    }
}
