//! The rows that the attempt on this thread has been given, for engines whose calls wait.
//!
//! Why:        an attempt is plain code that reads rows many calls deep, shared with the mount and upkeep, and must not
//!             block its thread on the engine. So a missing row ends it; the driver reads all missing rows in one call,
//!             and runs it again.
//! Invariants: H1 the rows of a completed attempt came from one call: missing rows are read together with all others.
//!             H2 an attempt runs on one thread from start to end; its rows are in a thread local, empty otherwise.
//!             H3 while an attempt runs, its thread neither calls the engine nor waits.
//! Not here:   who runs attempts (driver).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use margay_meta::{Answers, Ask, Cursor, ReadAnswer, ReadLimit, Row, RowBatch};
use margay_rows::key;

/// Rows of a range that the first read returns; when an attempt needs more, the read limit applies.
const FIRST_ROWS: usize = 128;

/// With more questions than this, rows are not read again each time that something is missing.
const ANEW_MAX: usize = 64;

/// Rows and ranges of an attempt.
#[derive(Debug, Default)]
pub(crate) struct AtHand {
    rows: BTreeMap<Vec<u8>, Option<Row>>,
    ranges: BTreeMap<key::Range, Arc<RowBatch>>,
    observed: Cursor,
    one_moment: bool,
    /// They came from several calls.
    is_patched: bool,
    /// The store's removal count before they were read.
    removals: u64,
    missing: Missing,
}

/// What an attempt lacks.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) asks: Vec<Ask>,
    /// Inode numbers for new files.
    pub(crate) numbers: bool,
}

/// Result of a lookup in the attempt's rows.
#[derive(Debug)]
pub(crate) enum Look<T> {
    /// No attempt runs on this thread: the caller may call the engine, and wait.
    Outside,
    Found {
        value: T,
        observed: Cursor,
    },
    /// Recorded as missing; the attempt must end.
    Missing,
}

thread_local! {
    static RUNNING: RefCell<Option<AtHand>> = const { RefCell::new(None) };
}

/// Ends what `AtHand::run` started, even on a panic.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Option::take);
    }
}

impl Missing {
    pub(crate) fn is_empty(&self) -> bool {
        self.asks.is_empty() && !self.numbers
    }
}

impl AtHand {
    /// Runs an attempt with these rows; returns what it lacked.
    pub(crate) fn run<T>(&mut self, attempt: impl FnOnce() -> T) -> (T, Missing) {
        let before = RUNNING.with_borrow_mut(|running| running.replace(std::mem::take(self)));
        assert!(before.is_none(), "an attempt runs within another one");
        let ending = Running;
        let outcome = attempt();
        *self = RUNNING.with_borrow_mut(Option::take).expect("an attempt keeps what it has at hand");
        drop(ending);
        let missing = std::mem::take(&mut self.missing);
        (outcome, missing)
    }

    /// Questions for the missing rows, and the read limit. If nothing is missing: for all rows.
    pub(crate) fn asks(&mut self, missing: Vec<Ask>) -> (Vec<Ask>, ReadLimit) {
        let mut limit = ReadLimit::default();
        let mut asks = missing;
        self.is_patched = !asks.is_empty() && self.rows.len() + self.ranges.len() > ANEW_MAX;
        if self.is_patched {
            return (asks, limit);
        }
        for ((start, end), rows) in std::mem::take(&mut self.ranges) {
            limit.rows += rows.len();
            limit.bytes += rows.bytes();
            asks.push(Ask::Scan { start, end, rows_max: rows.len().max(FIRST_ROWS), keys_only: false });
        }
        asks.extend(std::mem::take(&mut self.rows).into_keys().map(|key| Ask::Get { key }));
        (asks, limit)
    }

    /// Takes the answers. A range that the limit cut off before its first row is still missing.
    pub(crate) fn take(&mut self, asks: Vec<Ask>, answers: Answers, removals: u64) {
        assert_eq!(asks.len(), answers.answers.len(), "a read answers each question");
        self.observed = self.observed.max(answers.observed);
        (self.one_moment, self.removals) = (answers.one_moment, removals);
        for (ask, answer) in asks.into_iter().zip(answers.answers) {
            match (ask, answer) {
                (Ask::Get { key }, answer) => drop(self.rows.insert(key, answer.row())),
                (Ask::Scan { .. }, ReadAnswer::Rows(rows)) if rows.is_empty() && rows.more => {}
                (Ask::Scan { start, end, .. }, answer) => {
                    self.ranges.insert((start, end), Arc::new(answer.rows()));
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }

    /// Whether the rows must be read again before an outcome is valid (H1).
    pub(crate) fn is_patched(&self) -> bool {
        self.is_patched
    }

    /// The newest commit that the rows reflect, and whether all are of one moment.
    pub(crate) fn moment(&self) -> (Cursor, bool) {
        (self.observed, self.one_moment)
    }
}

/// Whether an attempt runs on this thread.
pub(crate) fn is_running() -> bool {
    RUNNING.with_borrow(Option::is_some)
}

/// The store's removal count before the running attempt's rows were read.
pub(crate) fn removals() -> Option<u64> {
    RUNNING.with_borrow(|running| running.as_ref().filter(|hand| !hand.is_empty()).map(|hand| hand.removals))
}

pub(crate) fn row(key: &[u8]) -> Look<Option<Row>> {
    look(|hand| match hand.rows.get(key) {
        Some(row) => Some(row.clone()),
        None => {
            hand.missing.asks.push(Ask::Get { key: key.to_vec() });
            None
        }
    })
}

/// Rows from the start of a range; `is_more`: an earlier part of the range was found.
pub(crate) fn rows(range: &key::Range, is_more: bool) -> Look<Arc<RowBatch>> {
    look(|hand| match hand.ranges.get(range) {
        Some(rows) => Some(Arc::clone(rows)),
        None => {
            let (start, end) = range.clone();
            let rows_max = if is_more { usize::MAX } else { FIRST_ROWS };
            hand.missing.asks.push(Ask::Scan { start, end, rows_max, keys_only: false });
            None
        }
    })
}

/// Records that the attempt lacks inode numbers; false when none runs.
pub(crate) fn lacks_numbers() -> bool {
    matches!(
        look(|hand| {
            hand.missing.numbers = true;
            None::<()>
        }),
        Look::Missing
    )
}

fn look<T>(find: impl FnOnce(&mut AtHand) -> Option<T>) -> Look<T> {
    RUNNING.with_borrow_mut(|running| match running {
        None => Look::Outside,
        Some(hand) => match find(hand) {
            Some(value) => Look::Found { value, observed: hand.observed },
            None => Look::Missing,
        },
    })
}
