//! The rows that the attempt running on this thread has at hand, where the engine's answers come from somewhere else.
//!
//! Why:        an attempt is plain code that reads row after row, many calls deep, and the mount and the upkeep share most of it.
//!             It must not hold its thread while an answer is under way. So what it misses ends it, is asked for in one
//!             call without a thread, and it runs again with the rows at hand.
//! Invariants: H1 what an attempt that ended had at hand came from one call of the engine: with what is missing everything else
//!                is read anew, or, where that is much, all of it once when nothing is missing any more.
//!             H2 an attempt runs on one thread from its begin to its end, so what it has at hand is kept by the thread;
//!                nothing is at hand before and behind it.
//!             H3 while an attempt runs, nothing on its thread calls the engine, nor waits.
//! Not here:   who runs attempts (driver).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use margay_meta::{Answers, Ask, Cursor, ReadAnswer, ReadLimit, Row, RowBatch};
use margay_rows::key;

/// Rows of a range that are asked for first; when an attempt wants more, as many as one read brings.
const FIRST_ROWS: usize = 128;

/// More questions than this are not asked anew each time that something is missing.
const ANEW_MAX: usize = 64;

/// Rows and ranges.
#[derive(Debug, Default)]
pub(crate) struct AtHand {
    rows: BTreeMap<Vec<u8>, Option<Row>>,
    ranges: BTreeMap<key::Range, Arc<RowBatch>>,
    observed: Cursor,
    one_moment: bool,
    /// They came from several calls.
    is_patched: bool,
    /// How often the store had removed bytes before they were read.
    removals: u64,
    missing: Missing,
}

/// What an attempt lacks.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    pub(crate) asks: Vec<Ask>,
    /// Numbers for new files.
    pub(crate) numbers: bool,
}

/// A look into what is at hand.
#[derive(Debug)]
pub(crate) enum Look<T> {
    /// No attempt runs here: whoever looks may call the engine, and wait.
    Outside,
    Found {
        value: T,
        observed: Cursor,
    },
    /// Noted as missing; the attempt is to end.
    Missing,
}

thread_local! {
    static RUNNING: RefCell<Option<AtHand>> = const { RefCell::new(None) };
}

/// Ends what `AtHand::run` began, also when the attempt panics.
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
    /// Runs an attempt with these rows, and gives what it lacked.
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

    /// Questions for what is missing, and how much they may bring. Nothing missing: for all that was at hand.
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

    /// Takes what was asked for. A range that the limit cut before its first row is still missing.
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

    /// What is at hand is to be read anew before an outcome counts (H1).
    pub(crate) fn is_patched(&self) -> bool {
        self.is_patched
    }

    /// The newest commit that the rows rest on, and whether all are of one moment.
    pub(crate) fn moment(&self) -> (Cursor, bool) {
        (self.observed, self.one_moment)
    }
}

/// Whether an attempt with rows at hand runs on this thread.
pub(crate) fn is_running() -> bool {
    RUNNING.with_borrow(Option::is_some)
}

/// How often the store had removed bytes before the rows of the running attempt were read.
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

/// Rows from the begin of a range on; `is_more`: an earlier part of what is wanted was found.
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

/// Notes that the attempt lacks numbers for new files; false when none runs.
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
