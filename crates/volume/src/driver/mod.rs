//! How an operation runs: read rows, decide, commit with what was read as preconditions, and on a conflict begin again.
//!
//! Why:        every operation is this loop; only its middle, the attempt, differs. An attempt is plain code without `await`.
//!             Where the engine's answers come from somewhere else, it is given its rows and gives its draft away, so
//!             that no thread is held while an answer is under way (at_hand).
//! Invariants: V3 an answer is given when what it rests on is durable, refusals included.
//!             V4 an answer without a commit counts only if the rows that it rests on held at one moment.
//!             V5 an outcome that is unknown is asked for before anything runs again: by the engine that `Volume::open` puts
//!                between (`margay_meta::patient`), for every commit of the volume.
//! Locking:    none of its own. `decide` and `read_now` do not wait on a thread for an engine that waits, or that has to
//!             wait now and then (`margay_meta::unready`); `retry` and `consistent`, for the mount and the upkeep, do.
//! Not here:   the operations, which rows to fetch ahead (ahead).

mod ahead;
mod bucket_row;
mod bucket_state;
pub(crate) mod counters;
mod request;

pub use self::ahead::Purpose;
pub use self::request::{RequestRows, View};

use std::ops::ControlFlow;
use std::time::Duration;

use margay_meta::{
    Answers, Ask, Committed, Cursor, Observed, ReadAnswer, ReadLimit, Row, RowBatch, RowRef, RowVersion, unready,
};
use margay_rows::key;

use crate::api::Error;
use crate::draft::at_hand::{self, AtHand, Look, Missing};
use crate::draft::{Draft, Seen};
use crate::error::Refused;
use crate::gate::TRIES_WITHOUT_TURN;
use crate::open::Volume;

/// Attempts after conflicts before an operation answers `Busy`.
pub(crate) const TRIES_MAX: u32 = 64;
/// From this attempt on, a short wait precedes each.
const TRIES_WITHOUT_WAIT: u32 = 4;
/// Runs of an attempt until it has all rows: a path has fewer directories, and a range fewer pieces.
const ROUNDS_MAX: usize = 4096;
/// Maximum wait between attempts, in microseconds.
const WAIT_US_MAX: u64 = 500;

/// Result of an attempt.
#[derive(Debug)]
pub(crate) enum Decided<T> {
    /// It is committed.
    Committed(T, Committed),
    /// The driver must commit this draft.
    Commit(Box<Draft>, T),
    /// Nothing to commit, provided that the rows read are unchanged.
    Nothing(T),
}

fn asks_of(keys: Vec<Vec<u8>>) -> Vec<Ask> {
    keys.into_iter().map(|key| Ask::Get { key }).collect()
}

impl Volume {
    /// Runs `attempt` until it commits, or until its refusal, or its finding that there is nothing to do, is confirmed:
    /// the rows it depends on are unchanged. Returns the newest commit that the answer depends on. The first attempt
    /// uses these rows.
    pub(crate) async fn decide<T>(
        &self,
        seen: Seen,
        attempt: impl FnMut(&mut Seen) -> Result<Decided<T>, Refused>,
    ) -> Result<(T, Cursor), Error> {
        let (value, done) = self.decide_committed(seen, attempt).await?;
        Ok((value, self.place_of(done)))
    }

    /// As `decide`; returns the commit, if there was one.
    pub(crate) async fn decide_committed<T>(
        &self,
        mut seen: Seen,
        mut attempt: impl FnMut(&mut Seen) -> Result<Decided<T>, Refused>,
    ) -> Result<(T, Option<Committed>), Error> {
        let mut turn = None;
        for tries in 1..=TRIES_MAX {
            match self.decide_once(&mut seen, &mut attempt).await {
                Err(Refused::Error(error)) if is_fault(&error) || self.still_later(&seen).await? => return Err(error),
                Err(_) => self.wait_a_little(tries),
                Ok(done) => return Ok(done),
            }
            if self.takes_turn(tries) && turn.is_none() {
                turn = Some(self.gate.take().await);
            }
            seen.begin_again();
        }
        Err(Error::Busy)
    }

    /// One attempt of `decide`, whose refusal is not confirmed.
    pub(crate) async fn decide_once<T>(
        &self,
        seen: &mut Seen,
        attempt: impl FnMut(&mut Seen) -> Result<Decided<T>, Refused>,
    ) -> Result<(T, Option<Committed>), Refused> {
        match self.with_rows(seen, attempt).await?? {
            Decided::Committed(value, done) => Ok((value, Some(done))),
            Decided::Commit(draft, value) => Ok((value, Some(self.commit_later(*draft).await?))),
            Decided::Nothing(value) if self.still_later(seen).await? => Ok((value, None)),
            Decided::Nothing(_) => Err(Refused::Conflict),
        }
    }

    /// The commit that an answer depends on: this one, or the newest.
    pub(crate) fn place_of(&self, done: Option<Committed>) -> Cursor {
        done.map_or_else(|| self.engine.last_cursor(), |done| done.cursor)
    }

    /// Commits an attempt's draft here, or hands it to the driver if this thread must not wait for the engine.
    pub(crate) fn finish<T>(&self, draft: Draft, value: T) -> Result<Decided<T>, Refused> {
        if at_hand::is_running() {
            return Ok(Decided::Commit(Box::new(draft), value));
        }
        let done = self.commit(draft)?;
        Ok(Decided::Committed(value, done))
    }

    /// Repeats reads, including those that end in a refusal, until all were current at one moment.
    pub(crate) async fn read_now<T>(
        &self,
        seen: &mut Seen,
        mut read: impl FnMut(&mut Seen) -> Result<T, Error>,
    ) -> Result<T, Error> {
        for tries in 1..=TRIES_MAX {
            let found = self.with_rows(seen, &mut read).await?;
            if seen.is_of_one_moment() || self.still_later(seen).await? {
                seen.held();
                return found;
            }
            seen.begin_again();
            self.wait_a_little(tries);
        }
        Err(Error::Busy)
    }

    /// Runs an attempt; if the engine waits, until it has all rows.
    pub(crate) async fn with_rows<T>(
        &self,
        seen: &mut Seen,
        mut attempt: impl FnMut(&mut Seen) -> T,
    ) -> Result<T, Error> {
        if !self.engine.waits() {
            return self.ready(seen, attempt).await;
        }
        let mut hand = AtHand::default();
        for _ in 0..ROUNDS_MAX {
            let mark = seen.mark();
            let (outcome, missing) = hand.run(|| attempt(seen));
            if missing.is_empty() && !hand.is_patched() {
                if !hand.is_empty() {
                    seen.had_at_hand(hand.moment());
                }
                return Ok(outcome);
            }
            seen.rewind(mark);
            self.bring(missing, &mut hand, seen).await?;
        }
        Err(Error::Busy)
    }

    /// Runs an attempt on this thread until the engine had not to wait in it.
    async fn ready<T>(&self, seen: &mut Seen, mut attempt: impl FnMut(&mut Seen) -> T) -> Result<T, Error> {
        for round in 0..ROUNDS_MAX {
            let mark = seen.mark();
            match unready::or_wait(round, || attempt(seen)) {
                Ok(outcome) => return Ok(outcome),
                Err(waits) => {
                    seen.rewind(mark);
                    unready::all(waits).await?;
                }
            }
        }
        Err(Error::Busy)
    }

    /// Reads the rows that an attempt lacked, together with those that it had.
    async fn bring(&self, missing: Missing, hand: &mut AtHand, seen: &mut Seen) -> Result<(), Error> {
        if missing.numbers {
            self.inos.refill(&*self.engine).await?;
        }
        if missing.asks.is_empty() && !hand.is_patched() {
            return Ok(());
        }
        let mut asks = missing.asks;
        asks.extend(seen.drain_ahead());
        let (asks, limit) = hand.asks(asks);
        let removals = self.store.removals();
        let answers = self.engine.begin_read(asks.clone(), limit).await?;
        hand.take(asks, answers, removals);
        Ok(())
    }

    /// Runs `attempt` on this thread, which may block, until it commits or its refusal is confirmed: the rows it
    /// depends on are unchanged.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut(&mut Seen) -> Result<T, Refused>) -> Result<T, Error> {
        let (mut seen, mut turn) = (Seen::default(), None);
        for tries in 1..=TRIES_MAX {
            match attempt(&mut seen) {
                Ok(value) => return Ok(value),
                Err(Refused::Error(error)) if is_fault(&error) => return Err(error),
                Err(Refused::Error(error)) if self.still(&seen)? => return Err(error),
                Err(_) => self.wait_a_little(tries),
            }
            if self.takes_turn(tries) && turn.is_none() {
                turn = self.gate.take_blocking();
            }
            seen.begin_again();
        }
        Err(Error::Busy)
    }

    /// Repeats reads on this thread until all were current at one moment, including those that end in a refusal.
    pub(crate) fn consistent<T>(
        &self,
        seen: &mut Seen,
        mut read: impl FnMut(&mut Seen) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if at_hand::is_running() {
            return read(seen);
        }
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

    /// Asks the engine whether every row is unchanged. For an attempt with given rows, which are of one moment, the
    /// driver asks after it.
    pub(crate) fn still(&self, seen: &Seen) -> Result<bool, Error> {
        let (asks, versions) = seen.check();
        if asks.is_empty() || at_hand::is_running() {
            return Ok(true);
        }
        Ok(same(self.engine.read(&asks, ReadLimit::default())?, &versions))
    }

    async fn still_later(&self, seen: &Seen) -> Result<bool, Error> {
        if !self.engine.waits() {
            return self.ready(&mut Seen::default(), |_| self.still(seen)).await?;
        }
        let (asks, versions) = seen.check();
        if asks.is_empty() || seen.is_of_one_moment() {
            return Ok(true);
        }
        Ok(same(self.engine.begin_read(asks, ReadLimit::default()).await?, &versions))
    }

    /// Whether a change that was refused so often waits for others that were.
    fn takes_turn(&self, tries: u32) -> bool {
        tries >= TRIES_WITHOUT_TURN && self.engine.waits()
    }

    /// Where the engine waits, its calls are wait enough.
    pub(crate) fn wait_a_little(&self, tries: u32) {
        if tries >= TRIES_WITHOUT_WAIT && !self.engine.waits() {
            let longest = WAIT_US_MAX.min(1 << tries.min(20));
            self.env.clock.sleep(Duration::from_micros(self.env.random.next_u64() % longest));
        }
    }

    /// Waits until a change, or the reason of its refusal, is durable, and returns it.
    pub(crate) async fn answer<T>(&self, done: Result<(T, Cursor), Error>) -> Result<T, Error> {
        match done {
            Ok((value, seq)) => {
                self.settle(seq).await?;
                self.tell_mounts().await;
                Ok(value)
            }
            Err(error) if is_fault(&error) || matches!(error, Error::Corrupt(_)) => Err(error),
            Err(error) => {
                self.settle(self.engine.last_cursor()).await?;
                Err(error)
            }
        }
    }

    pub(crate) async fn settle(&self, seq: Cursor) -> Result<(), Error> {
        if seq > self.engine.durable_cursor() {
            self.engine.durable(seq).await?;
        }
        Ok(())
    }

    /// Prefetches rows and ranges in one call, for later reads.
    pub(crate) async fn fetch(&self, asks: Vec<Ask>, seen: &mut Seen) -> Result<(), Error> {
        let removals = self.store.removals();
        let answers = self.read_later(&asks, ReadLimit::default()).await?;
        seen.fetched(asks, answers, removals);
        Ok(())
    }

    /// As `fetch`, on a thread that may block.
    pub(crate) fn fetch_here(&self, asks: Vec<Ask>, seen: &mut Seen) -> Result<(), Error> {
        let removals = self.store.removals();
        let answers = self.engine.read(&asks, ReadLimit::default())?;
        seen.fetched(asks, answers, removals);
        Ok(())
    }

    /// As `fetch_here`; where the engine waits the rows are cached.
    pub(crate) fn fetch_to_keep(&self, keys: Vec<Vec<u8>>, seen: &mut Seen) -> Result<(), Error> {
        if !self.engine.waits() {
            return self.fetch_here(asks_of(keys), seen);
        }
        let (before, removals) = (self.kept_rows.before(&keys), self.store.removals());
        let read = self.engine.read(&asks_of(keys.clone()), ReadLimit::default())?;
        let rows: Vec<_> = read.answers.iter().map(|answer| answer.clone().row()).collect();
        self.kept_rows.keep(&keys, &rows, &before);
        seen.fetched(asks_of(keys), read, removals);
        Ok(())
    }

    /// Takes rows from the cache, if the engine waits and all of them are there; another process may have changed them
    /// since.
    pub(crate) fn fetch_kept(&self, keys: &[Vec<u8>], seen: &mut Seen) -> bool {
        if !self.engine.waits() {
            return false;
        }
        let Some(rows) = self.kept_rows.all(keys) else { return false };
        let answers = rows.into_iter().map(ReadAnswer::Row).collect();
        let kept = Answers { answers, observed: self.engine.last_cursor(), one_moment: false };
        seen.fetched(asks_of(keys.to_vec()), kept, self.store.removals());
        true
    }

    /// Reads rows and ranges in one call and returns them; records only how new they are.
    pub(crate) async fn read(&self, asks: &[Ask], limit: ReadLimit, seen: &mut Seen) -> Result<Vec<ReadAnswer>, Error> {
        let read = self.read_later(asks, limit).await?;
        seen.rises_to(read.observed);
        seen.range_read();
        Ok(read.answers)
    }

    /// As `read`, on a thread that may block.
    pub(crate) fn read_here(&self, asks: &[Ask], limit: ReadLimit, seen: &mut Seen) -> Result<Vec<ReadAnswer>, Error> {
        let read = self.engine.read(asks, limit)?;
        seen.rises_to(read.observed);
        seen.range_read();
        Ok(read.answers)
    }

    async fn read_later(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, Error> {
        if !self.engine.waits() {
            return Ok(self.ready(&mut Seen::default(), |_| self.engine.read(asks, limit)).await??);
        }
        Ok(self.engine.begin_read(asks.to_vec(), limit).await?)
    }

    /// One row, recorded in `seen`.
    pub(crate) fn get(&self, key: &[u8], seen: &mut Seen) -> Result<Option<Row>, Error> {
        if let Some(row) = seen.row_ahead(key) {
            return Ok(row);
        }
        let read = self.row(key)?;
        seen.rises_to(read.observed);
        seen.read(key, read.value.as_ref().map(|row| row.version));
        Ok(read.value)
    }

    /// One row, not recorded.
    pub(crate) fn row(&self, key: &[u8]) -> Result<Observed<Option<Row>>, Error> {
        match at_hand::row(key) {
            Look::Outside => Ok(self.engine.get(key)?),
            Look::Found { value, observed } => Ok(Observed { value, observed }),
            Look::Missing => Err(Error::Unread),
        }
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
            from = show(rows, &range.0, &mut visit);
        }
        if let Some(from) = from {
            let observed = self.scan_rows((from, range.1.clone()), &mut visit)?;
            seen.rises_to(observed);
            seen.range_read();
        }
        failed.map_or(Ok(()), Err)
    }

    fn scan_rows(
        &self,
        mut range: key::Range,
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Cursor, Error> {
        let mut is_more = false;
        loop {
            match at_hand::rows(&range, is_more) {
                Look::Outside => return Ok(self.engine.scan(&range.0, &range.1, visit)?.observed),
                Look::Missing => return Err(Error::Unread),
                Look::Found { value: rows, observed } => match show(&rows, &range.0, visit) {
                    Some(next) => range.0 = next,
                    None => return Ok(observed),
                },
            }
            is_more = true;
        }
    }
}

/// Calls `visit` for rows of a range from `from` on until it breaks; returns where the next needed rows begin.
fn show(rows: &RowBatch, from: &[u8], visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>) -> Option<Vec<u8>> {
    let broke = rows.iter().any(|row| visit(row).is_break());
    if broke || !rows.more {
        return None;
    }
    Some(rows.last().map_or_else(|| from.to_vec(), |row| key::after(row.key.to_vec())))
}

/// Whether the rows have these versions.
fn same(now: Answers, versions: &[Option<RowVersion>]) -> bool {
    let now = now.answers.into_iter().map(|answer| answer.row().map(|row| row.version));
    now.eq(versions.iter().copied())
}

/// Whether an error does not depend on rows, so that reading them again is useless.
pub(crate) fn is_fault(error: &Error) -> bool {
    let is_own = matches!(error, Error::Full | Error::ReadOnly(_) | Error::Io(_) | Error::Fenced | Error::LeaseLost);
    is_own || error.is_unanswered()
}
