//! Reads rows and ranges together.
//!
//! Why:        one copy of the active overlay answers all questions of a read, so their answers are of one moment and
//!             need no confirmation.
//! Invariants: A1 the data of a read from the active overlay and the layers below it belong together: both are taken
//!                under the overlay's lock, which is held exclusively to swap the layers.
//! Locking:    the active overlay for reading, while rows are looked up and windows of at most the read's limit are
//!             copied; the layers below are read without a lock.
//! Not here:   the layers (layers), the rules of a read (crate::read).

use std::ops::Bound;

use bytes::Bytes;

use super::Embedded;
use super::layers::{Lower, Merge, Stored, WINDOW_ROWS_MAX, Window, as_slice};
use super::overlay::{Found, Live};
use crate::read::Budget;
use crate::{Answers, Ask, Cursor, EngineError, ReadAnswer, ReadLimit, Row};

/// What the active overlay knows about a question.
enum Known {
    Live(Live),
    Dead,
    /// The layers below know.
    Unknown,
    Window(Window),
    /// Earlier scans use up the limit; only whether the range has any row matters.
    Unread,
}

impl Embedded {
    pub(super) fn read_together(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let (known, lower) = {
            let active = self.active.read();
            let mut rows_left = limit.rows.max(1);
            let known: Vec<Known> = asks
                .iter()
                .map(|ask| match ask {
                    Ask::Get { key } => match active.find(key) {
                        Found::Live(live) => Known::Live(live.clone()),
                        Found::Dead => Known::Dead,
                        Found::Unknown => Known::Unknown,
                    },
                    Ask::Scan { .. } if rows_left == 0 => Known::Unread,
                    Ask::Scan { start, end, rows_max, .. } => {
                        // One more shows whether there are more.
                        let rows_max = rows_max.saturating_add(1).min(rows_left.saturating_add(1)).min(WINDOW_ROWS_MAX);
                        let window = Window::copy(&active, Bound::Included(start), end, rows_max);
                        rows_left = rows_left.saturating_sub(window.rows());
                        Known::Window(window)
                    }
                })
                .collect();
            // Sealing swaps both under the write lock, so these layers belong to this overlay.
            (known, self.lower.load_full())
        };
        let mut reading =
            Reading { engine: self, lower: &lower, budget: Budget::new(limit), observed: Cursor(0), one_moment: true };
        let answers = asks.iter().zip(known).map(|(ask, known)| reading.answer(ask, known));
        let answers = answers.collect::<Result<_, _>>()?;
        let Reading { observed, one_moment, .. } = reading;
        Ok(Answers { answers, observed, one_moment })
    }
}

struct Reading<'e> {
    engine: &'e Embedded,
    lower: &'e Lower,
    budget: Budget,
    observed: Cursor,
    one_moment: bool,
}

impl Reading<'_> {
    fn answer(&mut self, ask: &Ask, known: Known) -> Result<ReadAnswer, EngineError> {
        match (ask, known) {
            (Ask::Get { .. }, Known::Live(live)) => Ok(self.row(Some(Stored::Overlay(live)))),
            (Ask::Get { key }, Known::Unknown) => {
                let stored = self.lower.get(key)?;
                Ok(self.row(stored))
            }
            (Ask::Get { .. }, _) => Ok(self.row(None)),
            (Ask::Scan { start, end, rows_max, keys_only }, known) => {
                let window = if let Known::Window(window) = known { window } else { Window::unread(start) };
                self.scan((start, end), window, *rows_max, *keys_only)
            }
        }
    }

    fn row(&mut self, stored: Option<Stored>) -> ReadAnswer {
        let observed = stored.as_ref().map_or_else(|| self.engine.newest_deletion(), Stored::touched);
        self.observed = self.observed.max(observed);
        let row = |stored: Stored| Row { value: Bytes::copy_from_slice(stored.value()), version: stored.version() };
        ReadAnswer::Row(stored.map(row))
    }

    fn scan(
        &mut self,
        (start, end): (&[u8], &[u8]),
        window: Window,
        rows_max: usize,
        keys_only: bool,
    ) -> Result<ReadAnswer, EngineError> {
        let Reading { engine, lower, observed, one_moment, .. } = self;
        let batch = self.budget.scan(rows_max, keys_only, |visit| {
            let until = window.until().map(<[u8]>::to_vec);
            let broke = {
                let stop = Bound::Excluded(until.as_deref().unwrap_or(end));
                let mut merge = Merge::new(&window, lower, as_slice(&Bound::Included(start.to_vec())), stop)?;
                let broke = merge.run(visit)?;
                *observed = merge.observed.max(*observed);
                broke
            };
            if let (Some(from), false) = (until, broke) {
                *one_moment = false;
                *observed = engine.scan_rows(&from, end, visit)?.max(*observed);
            }
            Ok(())
        })?;
        self.observed = self.observed.max(self.engine.newest_deletion());
        Ok(ReadAnswer::Rows(batch))
    }
}
