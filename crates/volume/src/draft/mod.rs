//! A draft: a batch under construction, with each key written at most once.
//!
//! Why:        an operation is composed of steps (replace, release, count) that may touch the same rows.
//! Invariants: B1 one write per key: additions are summed, the later of two puts wins, setting or deleting a counter
//!                overrides other changes of it.
//!             B2 nothing is written before `commit`.
//!             B3 plain rows are asserted and put, counters are added to, raised or set (design/0028).
//! Not here:   what is written (the operations).

pub(crate) mod at_hand;
mod back_rows;
mod seen;
mod stored_runs;

pub(crate) use self::back_rows::{Owning, backs_of_row, distinct_runs, naming_row};
pub(crate) use self::seen::Seen;

use std::collections::HashMap;

use bytes::Bytes;
use margay_meta::{
    BATCH_WRITES_MAX, Batch, CommitError, CommitTold, Committed, Engine, Field, Guard, Payload, Position,
    PositionField, Precondition, RowVersion, Write, has_counters, is_plain,
};
use margay_rows::record::BackRow;
use margay_rows::{Ino, key};
use margay_segment::{Run, SegmentId};

use crate::api::Error;
use crate::changes;
use crate::error::Refused;
use crate::known::Known;
use crate::watch::Notice;

/// Up to so many writes, comparing with each key costs less than a table of copies of them.
const COMPARED_WRITES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Draft {
    batch: Batch,
    /// Index of each key's write in `batch.writes`, once there are more than `COMPARED_WRITES_MAX`.
    places: HashMap<Vec<u8>, usize>,
    events: u64,
    asserted: Asserted,
    /// The session whose pins alone keep runs that the draft makes a row refer to (K2).
    pinned_in: Option<Ino>,
    /// It puts back rows anew of references that there are.
    rebuilds: bool,
}

/// Preconditions whose conflict has a meaning of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Asserted {
    /// The first one is a lease's.
    lease: bool,
    /// The index of a session's.
    session: Option<usize>,
}

/// The key of a row that a draft asserts (B3).
fn plain(key: Vec<u8>) -> Vec<u8> {
    assert!(is_plain(&key), "a draft asserts a counter: {}", key.escape_ascii());
    key
}

impl Draft {
    pub(crate) fn assert_version(&mut self, key: Vec<u8>, version: RowVersion) {
        let key = plain(key);
        self.batch.preconditions.push(Precondition::Version { key, version });
    }

    /// Asserts the lease row of the taking; as the first precondition, so that a lost lease is reported before any
    /// other conflict.
    pub(crate) fn assert_lease(&mut self, key: Vec<u8>, version: RowVersion) {
        assert!(!self.asserted.lease, "a batch is under one lease");
        assert!(self.asserted.session.is_none(), "a session is asserted last");
        self.asserted.lease = true;
        self.batch.preconditions.insert(0, Precondition::Version { key: plain(key), version });
    }

    /// As `assert_lease`, of a lease whose row, once removed, never comes back.
    pub(crate) fn assert_lease_exists(&mut self, key: Vec<u8>) {
        assert!(!self.asserted.lease, "a batch is under one lease");
        assert!(self.asserted.session.is_none(), "a session is asserted last");
        self.asserted.lease = true;
        self.batch.preconditions.insert(0, Precondition::Exists { key: plain(key) });
    }

    pub(crate) fn assert_exists(&mut self, key: Vec<u8>) {
        self.batch.preconditions.push(Precondition::Exists { key: plain(key) });
    }

    pub(crate) fn assert_absent(&mut self, key: Vec<u8>) {
        self.batch.preconditions.push(Precondition::Absent { key: plain(key) });
    }

    /// Asserts that the row has this version, or is absent.
    pub(crate) fn assert_unchanged(&mut self, key: Vec<u8>, version: Option<RowVersion>) {
        match version {
            Some(version) => self.assert_version(key, version),
            None => self.assert_absent(key),
        }
    }

    /// Asserts that the range is empty; see [`Guard`].
    pub(crate) fn assert_empty(&mut self, (start, end): key::Range, guard: Guard) {
        assert!(!has_counters(&start, &end), "a draft asserts a range of counters");
        if start < end {
            self.batch.preconditions.push(Precondition::RangeEmpty { start, end, guard });
        }
    }

    /// Asserts that the range is empty except perhaps for `but`.
    pub(crate) fn assert_empty_but(&mut self, range: &key::Range, but: &[u8], guard: Guard) {
        self.assert_only(range, [but.to_vec()], guard);
    }

    /// Asserts that the range has no rows except perhaps these, given in ascending order.
    pub(crate) fn assert_only(&mut self, range: &key::Range, rows: impl IntoIterator<Item = Vec<u8>>, guard: Guard) {
        let mut start = range.0.clone();
        for row in rows {
            self.assert_empty((start, row.clone()), guard.clone());
            start = key::after(row);
        }
        self.assert_empty((start, range.1.clone()), guard);
    }

    /// Returns the index of the write.
    pub(crate) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> usize {
        self.write(Write::Put { key, value })
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) {
        self.write(Write::Delete { key });
    }

    /// Replaces a counter.
    pub(crate) fn set(&mut self, key: Vec<u8>, value: [u8; 8]) {
        self.write(Write::Set { key, value });
    }

    fn write(&mut self, write: Write) -> usize {
        assert!(write.fits_row(), "a draft takes a row for one of another kind: {}", write.key().escape_ascii());
        if let Some(place) = self.write_of(write.key()) {
            self.batch.writes[place] = write;
            return place;
        }
        let place = self.batch.writes.len();
        if place == COMPARED_WRITES_MAX {
            let keys = self.batch.writes.iter().map(|write| write.key().to_vec());
            self.places = keys.zip(0..).collect();
        }
        if place >= COMPARED_WRITES_MAX {
            self.places.insert(write.key().to_vec(), place);
        }
        self.batch.writes.push(write);
        let listed = self.places.len();
        assert!(listed == 0 || listed == self.batch.writes.len(), "each key has one write (B1)");
        place
    }

    /// Returns the index of the write. A sum of zero is not written.
    pub(crate) fn add(&mut self, key: Vec<u8>, more: i64) {
        if more == 0 {
            return;
        }
        match self.write_of(&key).map(|place| &mut self.batch.writes[place]) {
            Some(Write::Add { delta, .. }) => *delta += more,
            Some(_) => {}
            None => {
                self.write(Write::Add { key, delta: more });
            }
        }
    }

    /// Adds this many subdirectories to one directory's counter and subtracts them from another's, which may be the
    /// same.
    pub(crate) fn move_subdirectories(&mut self, from: Ino, to: Ino, count: i64) {
        if from != to {
            self.add(key::subdirectories(from), -count);
            self.add(key::subdirectories(to), count);
        }
    }

    pub(crate) fn max(&mut self, key: Vec<u8>, at_least: u64) {
        match self.write_of(&key).map(|place| &mut self.batch.writes[place]) {
            Some(Write::Max { at_least: highest, .. }) => *highest = at_least.max(*highest),
            Some(_) => {}
            None => {
                self.write(Write::Max { key, at_least });
            }
        }
    }

    /// The index of the write to a key.
    pub(crate) fn write_of(&self, key: &[u8]) -> Option<usize> {
        if self.batch.writes.len() > COMPARED_WRITES_MAX {
            return self.places.get(key).copied();
        }
        self.batch.writes.iter().position(|write| write.key() == key)
    }

    /// Attaches a payload: a run, followed by its checksums if it needs any. The engine fills its location (segment,
    /// then offset) into each of `extents` (a write, and a position in its value), into the back row of its owner,
    /// whose `row` is as in [`BackRow`], and into the counter of its segment.
    pub(crate) fn attach_payload(
        &mut self,
        bytes: Bytes,
        run: &Run,
        (owner, row): (Ino, Option<&[u8]>),
        extents: impl IntoIterator<Item = (usize, usize)>,
    ) {
        assert!(self.batch.payload.is_none(), "a batch carries one payload");
        assert_eq!((run.segment, run.offset), (SegmentId(0), 0), "a payload has no place yet");
        assert!(bytes.len() as u64 >= run.len, "a payload holds its run");
        let counter = key::live(run.segment, key::Live::Gained);
        let counter = self.write(Write::Add { key: counter, delta: run.len as i64 });
        let back = key::back(run.segment, run.offset, owner);
        let back = self.write(Write::Put { key: back, value: BackRow::encode(run, row) });
        let field = |write, field, at, what| PositionField { write, field, at, what };
        let mut places = vec![
            field(counter, Field::Key, key::LIVE_SEGMENT_AT, Position::Segment),
            field(back, Field::Key, key::BACK_SEGMENT_AT, Position::Segment),
            field(back, Field::Key, key::BACK_OFFSET_AT, Position::Offset),
        ];
        for (write, at) in extents {
            let value = match &self.batch.writes[write] {
                Write::Put { value, .. } => value.as_slice(),
                Write::Delete { .. } | Write::Set { .. } | Write::Add { .. } | Write::Max { .. } => &[],
            };
            assert!(value.len() >= at + 16, "the value has room for a segment and an offset");
            places.push(field(write, Field::Value, at, Position::Segment));
            places.push(field(write, Field::Value, at + 8, Position::Offset));
        }
        self.batch.payload = Some(Payload { bytes, places });
    }

    /// What this draft changes that a kernel may have cached.
    pub(crate) fn notice(&self, known: &Known) -> Notice {
        let changed = self.batch.writes.iter().filter(|write| write.is_exclusive());
        changes::notice(changed.map(Write::key), known)
    }

    /// Counts a put that queues an event.
    pub(crate) fn count_event(&mut self) {
        self.events += 1;
    }

    /// Number of events that this draft queues.
    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// Whether it has no writes.
    pub(crate) fn is_empty(&self) -> bool {
        self.batch.writes.is_empty() && self.batch.payload.is_none()
    }

    pub(crate) fn deletes(&self, key: &[u8]) -> bool {
        self.write_of(key).is_some_and(|place| matches!(self.batch.writes[place], Write::Delete { .. }))
    }

    /// The value that this draft puts at a key.
    pub(crate) fn value(&self, key: &[u8]) -> Option<&[u8]> {
        match &self.batch.writes[self.write_of(key)?] {
            Write::Put { value, .. } => Some(value),
            Write::Delete { .. } | Write::Set { .. } | Write::Add { .. } | Write::Max { .. } => None,
        }
    }

    pub(crate) fn commit(self, engine: &dyn Engine) -> Result<Committed, Refused> {
        assert!(!at_hand::is_running(), "an attempt hands its draft over (H3)");
        let asserted = self.asserted;
        engine.commit(self.checked(engine)?).map_err(|error| refused(error, asserted))
    }

    /// As `commit`, without blocking the thread.
    pub(crate) async fn commit_later(self, engine: &dyn Engine, told: CommitTold) -> Result<Committed, Refused> {
        let asserted = self.asserted;
        engine.begin_commit(self.checked(engine)?, told).await.map_err(|error| refused(error, asserted))
    }

    /// The engine fills the location of its payload into values.
    pub(crate) fn has_payload(&self) -> bool {
        self.batch.payload.is_some()
    }

    pub(crate) fn writes(&self) -> &[Write] {
        &self.batch.writes
    }

    fn checked(self, engine: &dyn Engine) -> Result<Batch, Refused> {
        self.check_session(engine);
        assert!(self.events <= self.batch.writes.len() as u64, "each event is a row");
        let key_bytes_max = engine.key_bytes_max();
        if self.batch.writes.iter().any(|write| write.key().len() > key_bytes_max) {
            return Err(Refused::Error(Error::KeyTooLong));
        }
        if self.batch.writes.len() > BATCH_WRITES_MAX {
            return Err(Refused::Error(Error::TooLarge));
        }
        Ok(self.batch)
    }
}

fn refused(error: CommitError, asserted: Asserted) -> Refused {
    match error {
        CommitError::Conflict { precondition: 0 } if asserted.lease => Refused::Error(Error::LeaseLost),
        CommitError::Conflict { precondition } if asserted.session == Some(precondition) => {
            Refused::Error(Error::Fenced)
        }
        error => error.into(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_counter_that_is_set_or_deleted_is_not_changed_besides() {
        let (sum, highest) = (|| b"c".to_vec(), || b"t".to_vec());
        let mut draft = Draft::default();
        draft.add(sum(), 5);
        draft.max(highest(), 5);
        draft.set(sum(), [1; 8]);
        draft.set(highest(), [2; 8]);
        draft.add(sum(), 1);
        draft.max(highest(), 9);
        let set = [Write::Set { key: sum(), value: [1; 8] }, Write::Set { key: highest(), value: [2; 8] }];
        assert_eq!(draft.writes(), set);
        draft.delete(sum());
        draft.add(sum(), 1);
        assert!(draft.deletes(&sum()));
    }

    #[test]
    #[should_panic(expected = "asserts a counter")]
    fn a_counter_is_not_asserted() {
        Draft::default().assert_unchanged(key::times(Ino(7)), None);
    }

    #[test]
    #[should_panic(expected = "a row for one of another kind")]
    fn a_counter_is_not_put() {
        Draft::default().put(key::times(Ino(7)), vec![0; 8]);
    }

    #[test]
    #[should_panic(expected = "a range of counters")]
    fn a_range_of_counters_is_not_asserted() {
        Draft::default().assert_empty(key::all_usage(), Guard::Written);
    }

    /// Puts, additions and deletions of few keys, some of them again, beyond the number that is compared.
    #[test]
    fn each_key_is_written_once_however_many_there_are() {
        for count in [COMPARED_WRITES_MAX - 1, COMPARED_WRITES_MAX, COMPARED_WRITES_MAX + 1, 3 * COMPARED_WRITES_MAX] {
            let (mut draft, mut model) = (Draft::default(), BTreeMap::new());
            for step in 0..3 * count {
                let number = step * 7 % count;
                let table = if number % 3 == 1 { b'c' } else { b'k' };
                let key = vec![table, number as u8];
                match number % 3 {
                    0 => {
                        let place = draft.put(key.clone(), vec![step as u8]);
                        assert_eq!(draft.write_of(&key), Some(place));
                        model.insert(key, Write::Put { key: vec![table, number as u8], value: vec![step as u8] });
                    }
                    1 => {
                        draft.add(key.clone(), 2);
                        let delta = match model.get(&key) {
                            Some(Write::Add { delta, .. }) => delta + 2,
                            _ => 2,
                        };
                        model.insert(key.clone(), Write::Add { key, delta });
                    }
                    _ => {
                        draft.put(key.clone(), vec![0]);
                        draft.delete(key.clone());
                        assert!(draft.deletes(&key));
                        model.insert(key.clone(), Write::Delete { key });
                    }
                }
            }
            let mut writes = draft.writes().to_vec();
            writes.sort_by(|one, other| one.key().cmp(other.key()));
            assert_eq!(writes, model.into_values().collect::<Vec<_>>(), "{count} keys");
        }
    }
}
