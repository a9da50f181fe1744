//! The reference engine: an ordered map behind one mutex, with nothing on disk.
//!
//! Why:        the contract in its shortest form, so that other engines can be compared with it step by step.
//! Invariants: one mutex makes every call one moment; a batch is checked whole before its first write. A range that is
//!             not empty any more is known by its guard, too (guards).
//! Durability: none; `durable` resolves at once because there is nothing that a crash could keep.
//! Not here:   speed, limits on memory.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use event_listener::Event;
use margay_segment::{RunWriter, SegmentError, Store};
use parking_lot::Mutex;

use crate::contract::{
    Batch, CommitError, Committed, Cursor, DurableFuture, Engine, EngineError, EngineFuture, Field, Observed,
    PAYLOAD_BYTES_MAX, Payload, PayloadLocation, Position, Precondition, Row, RowRef, RowVersion, Write,
};
use crate::feed::{Change, FeedError, FeedPage};
use crate::guards::GuardWatch;
use crate::read::{Answers, Ask, Budget, ReadAnswer, ReadLimit};

/// Number of commits that the feed keeps.
const CHANGES_HELD_MAX: usize = 65_536;

/// The owner that payload runs of this engine carry in their headers.
const PAYLOAD_OWNER: &[u8] = b"memory engine";

#[derive(Clone, Debug, Default)]
struct State {
    rows: BTreeMap<Vec<u8>, Row>,
    last: Cursor,
    changes: VecDeque<Change>,
    /// The newest commit that `changes` no longer holds.
    forgotten: Cursor,
    guards: Option<GuardWatch>,
}

/// See the module's header.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
    committed: Event,
    changes_held_max: usize,
    shared: bool,
    /// Where payloads of batches go, and the largest one accepted, in bytes.
    payloads: Option<(Arc<Store>, usize)>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            state: Mutex::new(State { guards: Some(GuardWatch::default()), ..State::default() }),
            committed: Event::new(),
            changes_held_max: CHANGES_HELD_MAX,
            shared: false,
            payloads: None,
        }
    }
}

impl Memory {
    /// An empty engine that takes no payloads.
    pub fn new() -> Memory {
        Memory::default()
    }

    /// An empty engine that writes the payload of each batch as a run of `store`, without syncing it.
    pub fn with_payloads(store: Arc<Store>, payload_bytes_max: usize) -> Memory {
        Memory { payloads: Some((store, payload_bytes_max.min(PAYLOAD_BYTES_MAX))), ..Memory::default() }
    }

    /// An engine that several volumes share, whose feed keeps this many commits.
    pub fn shared(self, changes_held_max: usize) -> Memory {
        Memory { shared: true, changes_held_max, ..self }
    }

    /// For batches whose guards are made up.
    pub fn without_guards(self) -> Memory {
        self.state.lock().guards = None;
        self
    }

    /// Every row, for comparing engines.
    pub fn rows(&self) -> BTreeMap<Vec<u8>, Row> {
        self.state.lock().rows.clone()
    }

    fn check_batch(&self, batch: &Batch) -> Result<(), CommitError> {
        batch.check()?;
        match &batch.payload {
            None => Ok(()),
            Some(payload) if payload.bytes.len() > self.payload_bytes_max() => {
                Err(CommitError::Invalid("the payload is too long"))
            }
            Some(payload) => check_places(&batch.writes, payload),
        }
    }
}

fn check_places(writes: &[Write], payload: &Payload) -> Result<(), CommitError> {
    for place in &payload.places {
        let len = match (writes.get(place.write), place.field) {
            (Some(write), Field::Key) => write.key().len(),
            (Some(Write::Put { value, .. }), Field::Value) => value.len(),
            _ => return Err(CommitError::Invalid("a payload place names no field")),
        };
        if place.at.checked_add(8).is_none_or(|end| end > len) {
            return Err(CommitError::Invalid("a payload place lies outside its field"));
        }
    }
    Ok(())
}

/// Stores the payload and writes its position into the places.
fn place_payload(store: &Store, batch: &mut Batch, payload: &Payload) -> Result<PayloadLocation, CommitError> {
    let location = write_run(store, &payload.bytes).map_err(|error| match error {
        SegmentError::Full => CommitError::Full,
        SegmentError::Io(error) => CommitError::Failed(EngineError::Io(error)),
        other => CommitError::Failed(EngineError::Poisoned(other.to_string())),
    })?;
    for place in &payload.places {
        let bytes = match place.what {
            Position::Segment => location.segment.0.to_be_bytes(),
            Position::Offset => location.offset.to_be_bytes(),
        };
        let field = match (&mut batch.writes[place.write], place.field) {
            (Write::Put { value, .. }, Field::Value) => value.as_mut_slice(),
            (write, Field::Key) => write.key_mut(),
            (_, Field::Value) => return Err(CommitError::Invalid("a payload place names no field")),
        };
        field[place.at..place.at + 8].copy_from_slice(&bytes);
    }
    Ok(location)
}

fn write_run(store: &Store, bytes: &[u8]) -> Result<PayloadLocation, SegmentError> {
    let mut writer = store.begin_run(bytes.len() as u64, PAYLOAD_OWNER)?;
    writer.write(bytes)?;
    let run = writer.finish()?;
    Ok(PayloadLocation { segment: run.segment, offset: run.offset })
}

impl State {
    fn holds(&self, precondition: &Precondition) -> bool {
        match precondition {
            Precondition::Version { key, version } => self.rows.get(key).is_some_and(|row| row.version == *version),
            Precondition::Exists { key } => self.rows.contains_key(key),
            Precondition::Absent { key } => !self.rows.contains_key(key),
            Precondition::RangeEmpty { start, end, .. } => start >= end || self.range(start, end).next().is_none(),
        }
    }

    /// Where only ranges are not empty, an engine that locks their guards must have seen it too.
    fn check_guards(&self, batch: &Batch) {
        let Some(guards) = &self.guards else { return };
        let is_range = |one: &&Precondition| matches!(one, Precondition::RangeEmpty { .. });
        if batch.preconditions.iter().all(|one| is_range(&one) || self.holds(one)) {
            for one in batch.preconditions.iter().filter(is_range).filter(|one| !self.holds(one)) {
                let Precondition::RangeEmpty { start, end, guard } = one else { continue };
                self.range(start, end).for_each(|(key, _)| guards.check(key, guard, batch));
            }
        }
    }

    /// The caller checked that `start < end`.
    fn range(&self, start: &[u8], end: &[u8]) -> std::collections::btree_map::Range<'_, Vec<u8>, Row> {
        self.rows.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
    }

    /// A counter's bytes; zeros without one.
    fn eight_bytes(&self, key: &[u8]) -> Result<[u8; 8], CommitError> {
        let Some(row) = self.rows.get(key) else { return Ok([0; 8]) };
        let bytes = row.value.as_ref().try_into();
        bytes.map_err(|_| EngineError::Corrupt("a counter is not eight bytes".to_owned()).into())
    }

    /// The row that a write leaves in a counter, or `None` for a write of another kind. Each write gives it a new
    /// version, so that whoever compares versions of counters finds out here.
    fn counted(&self, write: &Write, version: RowVersion) -> Result<Option<Row>, CommitError> {
        let value = match write {
            Write::Put { .. } | Write::Delete { .. } => return Ok(None),
            Write::Set { value, .. } => *value,
            Write::Add { key, delta } => {
                let sum = i64::from_le_bytes(self.eight_bytes(key)?).checked_add(*delta);
                sum.ok_or(CommitError::Invalid("a counter would wrap"))?.to_le_bytes()
            }
            Write::Max { key, at_least } => u64::from_le_bytes(self.eight_bytes(key)?).max(*at_least).to_le_bytes(),
        };
        Ok(Some(Row { value: Bytes::copy_from_slice(&value), version }))
    }

    fn apply(
        &mut self,
        batch: Batch,
        counted: Vec<Option<Row>>,
        (cursor, version): (Cursor, RowVersion),
        changes_held_max: usize,
    ) {
        let change = Change::of(cursor, &batch.writes);
        for (write, counted) in batch.writes.into_iter().zip(counted) {
            match (write, counted) {
                (Write::Put { key, value }, _) => {
                    self.rows.insert(key, Row { value: Bytes::from(value), version });
                }
                (Write::Delete { key }, _) => {
                    self.rows.remove(&key);
                }
                (Write::Set { key, .. } | Write::Add { key, .. } | Write::Max { key, .. }, row) => {
                    self.rows.insert(key, row.expect("every write of a counter was computed"));
                }
            }
        }
        self.last = cursor;
        self.changes.push_back(change);
        while self.changes.len() > changes_held_max {
            if let Some(change) = self.changes.pop_front() {
                self.forgotten = change.cursor;
            }
        }
    }
}

impl Engine for Memory {
    fn get(&self, key: &[u8]) -> Result<Observed<Option<Row>>, EngineError> {
        let state = self.state.lock();
        Ok(Observed { value: state.rows.get(key).cloned(), observed: state.last })
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(RowRef<'_>) -> ControlFlow<()>,
    ) -> Result<Observed<()>, EngineError> {
        let state = self.state.lock();
        if start < end {
            for (key, row) in state.range(start, end) {
                if visit(RowRef { key, value: &row.value, version: row.version }).is_break() {
                    break;
                }
            }
        }
        Ok(Observed { value: (), observed: state.last })
    }

    fn read(&self, asks: &[Ask], limit: ReadLimit) -> Result<Answers, EngineError> {
        let state = self.state.lock();
        let mut budget = Budget::new(limit);
        let answers = asks.iter().map(|ask| match ask {
            Ask::Get { key } => Ok(ReadAnswer::Row(state.rows.get(key).cloned())),
            Ask::Scan { start, end, rows_max, keys_only } => {
                let rows = (start < end).then(|| state.range(start, end)).into_iter().flatten();
                let rows = rows.map(|(key, row)| RowRef { key, value: &row.value, version: row.version });
                let batch = budget.scan(*rows_max, *keys_only, |visit| {
                    let _ = rows.map(visit).find(ControlFlow::is_break);
                    Ok(())
                });
                batch.map(ReadAnswer::Rows)
            }
        });
        Ok(Answers { answers: answers.collect::<Result<_, _>>()?, observed: state.last, one_moment: true })
    }

    fn commit(&self, mut batch: Batch) -> Result<Committed, CommitError> {
        self.check_batch(&batch)?;
        let mut state = self.state.lock();
        if let Some(precondition) = batch.preconditions.iter().position(|one| !state.holds(one)) {
            state.check_guards(&batch);
            return Err(CommitError::Conflict { precondition });
        }
        let mut location = None;
        if let (Some(payload), Some((store, _))) = (batch.payload.take(), &self.payloads) {
            location = Some(place_payload(store, &mut batch, &payload)?);
        }
        let cursor = Cursor(state.last.0 + 1);
        let version = RowVersion::from_bits(cursor.0);
        let counted = batch.writes.iter().map(|write| state.counted(write, version)).collect::<Result<Vec<_>, _>>()?;
        let State { rows, guards, .. } = &mut *state;
        if let Some(guards) = guards {
            guards.committed(&batch, cursor, |key| rows.contains_key(key));
        }
        state.apply(batch, counted, (cursor, version), self.changes_held_max);
        drop(state);
        self.committed.notify(usize::MAX);
        Ok(Committed { cursor, version, payload: location })
    }

    fn durable(&self, cursor: Cursor) -> DurableFuture<'_> {
        debug_assert!(cursor <= self.last_cursor(), "nobody waits for a commit that was not made");
        Box::pin(std::future::ready(Ok(())))
    }

    fn wait_durable(&self, _cursor: Cursor) -> Result<(), EngineError> {
        Ok(())
    }

    fn last_cursor(&self) -> Cursor {
        self.state.lock().last
    }

    fn durable_cursor(&self) -> Cursor {
        self.last_cursor()
    }

    fn unchanged_since(&self, cursor: Cursor) -> bool {
        self.last_cursor() == cursor
    }

    fn changes(&self, after: Cursor, limit: usize) -> Result<FeedPage, FeedError> {
        let state = self.state.lock();
        if after < state.forgotten || after > state.last {
            return Err(FeedError::TooOld { oldest: state.forgotten });
        }
        let first = state.changes.partition_point(|change| change.cursor <= after);
        Ok(FeedPage::gather(after, limit, state.changes.range(first..)))
    }

    fn wait_changes(&self, after: Cursor) -> EngineFuture<'_, Result<(), EngineError>> {
        Box::pin(async move {
            loop {
                let committed = self.committed.listen();
                if self.last_cursor() > after {
                    return Ok(());
                }
                committed.await;
            }
        })
    }

    fn is_shared(&self) -> bool {
        self.shared
    }

    fn payload_bytes_max(&self) -> usize {
        self.payloads.as_ref().map_or(0, |(_, max)| *max)
    }

    fn snapshot(&self) -> Result<Arc<dyn Engine>, EngineError> {
        Ok(Arc::new(Memory { state: Mutex::new(self.state.lock().clone()), ..Memory::default() }))
    }

    fn checkpoint(&self) -> Result<(), EngineError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Guard;

    fn put(key: &[u8], value: &[u8]) -> Write {
        Write::Put { key: key.to_vec(), value: value.to_vec() }
    }

    #[test]
    fn a_conflict_writes_nothing_and_names_its_precondition() {
        let engine = Memory::new();
        let first = engine.commit(Batch { writes: vec![put(b"a", b"1")], ..Batch::default() }).unwrap();
        let preconditions = vec![
            Precondition::Version { key: b"a".to_vec(), version: first.version },
            Precondition::RangeEmpty { start: b"a".to_vec(), end: b"b".to_vec(), guard: Guard::Written },
        ];
        let batch = Batch { preconditions, writes: vec![put(b"b", b"2")], payload: None };
        assert!(matches!(engine.commit(batch), Err(CommitError::Conflict { precondition: 1 })));
        assert_eq!(engine.get(b"b").unwrap().value, None);
    }

    #[test]
    fn a_sum_that_would_wrap_is_refused() {
        let engine = Memory::new();
        let add = |delta| Batch { writes: vec![Write::Add { key: b"c".to_vec(), delta }], ..Batch::default() };
        engine.commit(add(5)).unwrap();
        engine.commit(add(-7)).unwrap();
        assert!(matches!(engine.commit(add(i64::MIN)), Err(CommitError::Invalid(_))));
        assert_eq!(engine.get(b"c").unwrap().value.unwrap().value.as_ref(), (-2i64).to_le_bytes());
    }

    #[test]
    fn a_key_written_twice_is_refused() {
        let batch = Batch { writes: vec![put(b"a", b"1"), Write::Delete { key: b"a".to_vec() }], ..Batch::default() };
        assert!(matches!(Memory::new().commit(batch), Err(CommitError::Invalid(_))));
    }

    #[test]
    fn changes_name_what_was_put_or_set_but_not_what_was_raised() {
        let engine = Memory::new();
        let set = Write::Set { key: b"c".to_vec(), value: [0; 8] };
        let writes = vec![put(b"a", b"1"), Write::Max { key: b"t".to_vec(), at_least: 3 }, set];
        let cursor = engine.commit(Batch { writes, ..Batch::default() }).unwrap().cursor;
        let page =
            FeedPage { changes: vec![Change { cursor, keys: vec![b"a".to_vec(), b"c".to_vec()] }], next: cursor };
        assert_eq!(engine.changes(Cursor(0), 9).unwrap(), page);
        assert_eq!(engine.changes(cursor, 9).unwrap(), FeedPage { changes: Vec::new(), next: cursor });
    }
}
