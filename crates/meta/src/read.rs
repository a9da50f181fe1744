//! Combined reads: rows and ranges requested in one call.
//!
//! Why:        an engine behind a network answers ten questions in one call in the time of one.
//! Invariants: R1 there is one answer per ask, in the same order.
//!             R2 the scans of a read share its limit and consume it in order; a scan sets `more` exactly if the limit
//!                or its own `rows_max` ended it before the last row of its range.
//!             R3 the first row of a read always fits, so continuing a read always makes progress.
//!             R4 `one_moment`: all answers show the same position in the order of commits. An engine may violate this
//!                for scans only, whose rows are then newer than those read by key; these are always of one moment.
//! Not here:   how an engine finds rows.

use std::ops::ControlFlow;

use crate::{Cursor, EngineError, Row, RowRef, RowVersion};

/// One question of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The row with this key.
    Get { key: Vec<u8> },
    /// The first rows of `start..end` in key order.
    Scan {
        start: Vec<u8>,
        end: Vec<u8>,
        rows_max: usize,
        /// Omits the values.
        keys_only: bool,
    },
}

/// Limit of all scans of a read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    pub rows: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

impl Default for ReadLimit {
    fn default() -> ReadLimit {
        ReadLimit { rows: 4096, bytes: 4 << 20 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadAnswer {
    Row(Option<Row>),
    Rows(RowBatch),
}

impl ReadAnswer {
    /// The requested row; `None` also if a range was requested.
    pub fn row(self) -> Option<Row> {
        match self {
            ReadAnswer::Row(row) => row,
            ReadAnswer::Rows(_) => None,
        }
    }

    /// The rows of the requested range; none if a row was requested.
    pub fn rows(self) -> RowBatch {
        match self {
            ReadAnswer::Row(_) => RowBatch::default(),
            ReadAnswer::Rows(rows) => rows,
        }
    }
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers {
    pub answers: Vec<ReadAnswer>,
    /// The newest commit that the answers depend on; see [`crate::Observed`].
    pub observed: Cursor,
    pub one_moment: bool,
}

/// Rows of a range, in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowBatch {
    /// Each row's key, then its value.
    bytes: Vec<u8>,
    rows: Vec<RowEnds>,
    /// The range has more rows.
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowEnds {
    key: usize,
    value: usize,
    version: RowVersion,
}

/// Factor by which a full buffer grows.
const GROWTH: usize = 7;

impl RowBatch {
    pub fn push(&mut self, row: RowRef<'_>) {
        let needed = row.key.len() + row.value.len();
        if self.bytes.capacity() - self.bytes.len() < needed {
            // Large batches are rarely reallocated.
            self.bytes.reserve(needed + GROWTH * self.bytes.len());
            self.rows.reserve(1 + GROWTH * self.rows.len());
        }
        self.bytes.extend_from_slice(row.key);
        let key = self.bytes.len();
        self.bytes.extend_from_slice(row.value);
        self.rows.push(RowEnds { key, value: self.bytes.len(), version: row.version });
    }

    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Bytes of its keys and values.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub fn get(&self, index: usize) -> Option<RowRef<'_>> {
        let ends = self.rows.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| self.rows[before].value);
        let (key, value) = (&self.bytes[begin..ends.key], &self.bytes[ends.key..ends.value]);
        Some(RowRef { key, value, version: ends.version })
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = RowRef<'_>> {
        (0..self.rows.len()).filter_map(|index| self.get(index))
    }

    /// Number of leading rows whose keys satisfy `holds`; it must not hold for any later row.
    pub fn partition_point(&self, holds: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.rows.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.get(middle).is_some_and(|row| holds(row.key)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub fn last(&self) -> Option<RowRef<'_>> {
        self.get(self.rows.len().checked_sub(1)?)
    }
}

/// The remaining limit of a read.
#[derive(Debug)]
pub struct Budget {
    left: ReadLimit,
    first: bool,
}

impl Budget {
    pub fn new(limit: ReadLimit) -> Budget {
        Budget { left: limit, first: true }
    }

    /// Rows that still fit, regardless of their size.
    pub fn rows(&self) -> usize {
        if self.first { self.left.rows.max(1) } else { self.left.rows }
    }

    /// Consumes a row of this size; false if it does not fit.
    fn take(&mut self, bytes: usize) -> bool {
        if !self.first && (self.left.rows == 0 || self.left.bytes < bytes) {
            return false;
        }
        self.first = false;
        self.left.rows = self.left.rows.saturating_sub(1);
        self.left.bytes = self.left.bytes.saturating_sub(bytes);
        true
    }

    /// Answers one scan: `scan` visits the rows of its range until its visitor breaks.
    pub fn scan(
        &mut self,
        rows_max: usize,
        keys_only: bool,
        scan: impl FnOnce(&mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Result<(), EngineError>,
    ) -> Result<RowBatch, EngineError> {
        let mut batch = RowBatch::default();
        scan(&mut |row| {
            let value = if keys_only { &[] } else { row.value };
            if batch.len() >= rows_max || !self.take(row.key.len() + value.len()) {
                batch.more = true;
                return ControlFlow::Break(());
            }
            batch.push(RowRef { value, ..row });
            ControlFlow::Continue(())
        })?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(budget: &mut Budget, rows_max: usize, keys_only: bool, count: u8) -> RowBatch {
        let batch = budget.scan(rows_max, keys_only, |visit| {
            for byte in 0..count {
                let (key, value) = ([byte], [byte; 9]);
                if visit(RowRef { key: &key, value: &value, version: RowVersion::from_bits(1) }).is_break() {
                    break;
                }
            }
            Ok(())
        });
        batch.unwrap()
    }

    #[test]
    fn scans_share_the_limit_in_their_order() {
        let mut budget = Budget::new(ReadLimit { rows: 5, bytes: 1000 });
        let lens = [3, 9, 1].map(|count| {
            let batch = scan(&mut budget, 4, false, count);
            (batch.len(), batch.more)
        });
        assert_eq!(lens, [(3, false), (2, true), (0, true)]);
    }

    #[test]
    fn the_first_row_fits_whatever_its_size() {
        let mut budget = Budget::new(ReadLimit { rows: 0, bytes: 1 });
        let batch = scan(&mut budget, 9, false, 2);
        assert_eq!((batch.len(), batch.more), (1, true));
        assert_eq!(scan(&mut budget, 9, true, 0), RowBatch::default(), "an empty range has no more rows");
    }

    #[test]
    fn a_batch_gives_back_its_rows() {
        let batch = scan(&mut Budget::new(ReadLimit::default()), 9, false, 3);
        let keys: Vec<u8> = batch.iter().rev().map(|row| row.key[0] + row.value[8]).collect();
        assert_eq!((keys, batch.more), (vec![4, 2, 0], false));
        assert_eq!(batch.last().map(|row| row.key.to_vec()), Some(vec![2]));
        let keys = scan(&mut Budget::new(ReadLimit::default()), 2, true, 3);
        assert_eq!(keys.iter().map(|row| row.value.len()).sum::<usize>(), 0);
    }
}
