//! How an operation runs: read rows, decide, commit with what was read as preconditions, and on a conflict begin again.
//!
//! Why:        every operation is this loop; only its middle differs.
//! Invariants: V3 an answer is given when what it rests on is durable, refusals included.
//!             V4 an answer without a commit counts only if the rows that it rests on held at one moment.
//! Locking:    none of its own; engine calls are made on the caller's thread.
//! Not here:   the operations, which rows to fetch ahead (ahead).

use std::ops::ControlFlow;
use std::time::Duration;

use margay_meta::{Ask, ReadAnswer, ReadLimit, Row, RowRef, Seq};
use margay_rows::key;

use crate::api::Error;
use crate::error::Refused;
use crate::open::Volume;
use crate::seen::{Seen, show};

/// Times that an operation begins again after a conflict before it answers `Busy`.
pub(crate) const TRIES_MAX: u32 = 64;
/// From this try on, wait a little first.
const TRIES_WITHOUT_WAIT: u32 = 4;
/// Longest wait between tries, in microseconds.
const WAIT_US_MAX: u64 = 500;

impl Volume {
    /// Runs `attempt` until it commits or is refused for good: a refusal counts when what it was decided on still
    /// holds.
    pub(crate) fn retry<T>(&self, attempt: impl FnMut(&mut Seen) -> Result<T, Refused>) -> Result<T, Error> {
        self.retry_from(Seen::default(), attempt)
    }

    /// As `retry`; the first try has these rows.
    pub(crate) fn retry_from<T>(
        &self,
        mut seen: Seen,
        mut attempt: impl FnMut(&mut Seen) -> Result<T, Refused>,
    ) -> Result<T, Error> {
        for tries in 1..=TRIES_MAX {
            match attempt(&mut seen) {
                Ok(value) => return Ok(value),
                Err(Refused::Error(error @ (Error::Full | Error::ReadOnly(_) | Error::Io(_)))) => return Err(error),
                Err(Refused::Error(error)) if self.still(&seen)? => return Err(error),
                Err(_) => self.wait_a_little(tries),
            }
            seen.begin_again();
        }
        Err(Error::Busy)
    }

    /// Runs reads until all of them held at one moment; their refusals too.
    pub(crate) fn consistent<T>(
        &self,
        seen: &mut Seen,
        mut read: impl FnMut(&mut Seen) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for tries in 1..=TRIES_MAX {
            let found = read(seen);
            if seen.is_of_one_moment() || self.still(seen)? {
                seen.held();
                return found;
            }
            seen.begin_again();
            self.wait_a_little(tries);
        }
        Err(Error::Busy)
    }

    /// Every row is as it was read: asks the engine.
    pub(crate) fn still(&self, seen: &Seen) -> Result<bool, Error> {
        let mut rows: Vec<_> = seen.rows().iter().collect();
        rows.sort_unstable();
        rows.dedup();
        let asks: Vec<Ask> = rows.iter().map(|(key, _)| Ask::Get { key: key.clone() }).collect();
        if asks.is_empty() {
            return Ok(true);
        }
        let now = self.engine.read(&asks, ReadLimit::default())?.answers;
        let versions = now.into_iter().map(|answer| answer.row().map(|row| row.version));
        Ok(versions.eq(rows.iter().map(|(_, version)| *version)))
    }

    pub(crate) fn wait_a_little(&self, tries: u32) {
        if tries >= TRIES_WITHOUT_WAIT {
            let longest = WAIT_US_MAX.min(1 << tries.min(20));
            self.env.clock.sleep(Duration::from_micros(self.env.random.next_u64() % longest));
        }
    }

    /// Waits until a change, or the reason of its refusal, is durable, and answers.
    pub(crate) async fn answer<T>(&self, done: Result<(T, Seq), Error>) -> Result<T, Error> {
        match done {
            Ok((value, seq)) => {
                self.settle(seq).await?;
                self.tell_mounts().await;
                Ok(value)
            }
            Err(error @ (Error::Full | Error::ReadOnly(_) | Error::Io(_) | Error::Corrupt(_))) => Err(error),
            Err(error) => {
                self.settle(self.engine.last_seq()).await?;
                Err(error)
            }
        }
    }

    pub(crate) async fn settle(&self, seq: Seq) -> Result<(), Error> {
        if seq > self.engine.durable_seq() {
            self.engine.durable(seq).await?;
        }
        Ok(())
    }

    /// Asks for rows and ranges in one call, for the reads that follow.
    pub(crate) fn fetch(&self, asks: Vec<Ask>, seen: &mut Seen) -> Result<(), Error> {
        let removals = self.store.removals();
        let answers = self.engine.read(&asks, ReadLimit::default())?;
        seen.fetched(asks, answers, removals);
        Ok(())
    }

    /// Asks for rows and ranges in one call, and gives them; nothing of it is noted but how new it is.
    pub(crate) fn read(&self, asks: &[Ask], limit: ReadLimit, seen: &mut Seen) -> Result<Vec<ReadAnswer>, Error> {
        let read = self.engine.read(asks, limit)?;
        seen.rises_to(read.observed);
        seen.range_read();
        Ok(read.answers)
    }

    /// One row, noted in `seen`.
    pub(crate) fn get(&self, key: &[u8], seen: &mut Seen) -> Result<Option<Row>, Error> {
        if let Some(row) = seen.row_ahead(key) {
            return Ok(row);
        }
        let read = self.engine.get(key)?;
        seen.rises_to(read.observed);
        seen.read(key, read.value.as_ref().map(|row| row.version));
        Ok(read.value)
    }

    /// Visits rows until the visitor breaks; a value that does not decode ends the scan with an error.
    pub(crate) fn scan(
        &self,
        range: &key::Range,
        seen: &mut Seen,
        mut visit: impl FnMut(RowRef<'_>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let mut failed = None;
        let mut visit = |row: RowRef<'_>| match visit(row) {
            Ok(flow) => flow,
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        };
        let mut from = Some(range.0.clone());
        if let Some(rows) = seen.rows_ahead(range) {
            let next = rows.last().map_or_else(|| range.0.clone(), |row| key::after(row.key.to_vec()));
            let broke = show(rows, &mut visit);
            from = (!broke && rows.more).then_some(next);
        }
        if let Some(from) = from {
            let read = self.engine.scan(&from, &range.1, &mut visit)?;
            seen.rises_to(read.observed);
            seen.range_read();
        }
        failed.map_or(Ok(()), Err)
    }
}
