//! One commit: facts about older layers are read outside the serial section, then it is decided and applied inside it.
//!
//! Why:        the serial section must not wait for the disk, so rows of the older layers are read before it; they
//!             cannot change until an overlay is sealed, which changes the epoch. What the active overlay has is read
//!             with them, and once more inside only if another commit came between: most of a commit is looking keys up.
//! Invariants: C1 preconditions are evaluated on exactly the rows that the batch is applied to.
//!             C2 a batch is in the log's buffer before any reader sees it, and as a whole or not at all.
//! Locking:    `serial`, then the active overlay (read to decide, write to apply). Facts are read under neither.
//! Not here:   the log's bytes (log, record), the layers (overlay, layers).

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::layers::Lower;
use super::limits::LOG_FILE_BYTES_MIN;
use super::log::Serial;
use super::log_header::FILE_HEADER_BYTES;
use super::overlay::{Found, Overlay};
use super::{Embedded, record};
use crate::{
    BATCH_WRITES_MAX, Batch, CommitError, Committed, Cursor, EngineError, Field, OLD_KEY_BYTES_MAX, PAYLOAD_BYTES_MAX,
    PayloadLocation, Position, Precondition, RowVersion, VALUE_BYTES_MAX, Write,
};

/// What was read before the serial section, in the order of the batch.
#[derive(Debug)]
struct Facts {
    /// The newest commit in the active overlay then.
    as_of: Cursor,
    conditions: Vec<Fact>,
    writes: Vec<Fact>,
}

/// What was read of a key, once per epoch.
#[derive(Debug, Default)]
struct Fact {
    /// The active overlay's row; `None`: not read.
    held: Option<Held>,
    /// The older layers' row; `None`: not read, since the active overlay had the key.
    below: Option<Option<State>>,
    /// For a deletion: the older layers have no live row between this key (the end of the preceding interval) and the
    /// deleted one; and the same after it.
    clear_from: Option<Box<[u8]>>,
    clear_to: Option<Box<[u8]>>,
}

/// What the active overlay knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Live(State),
    Dead,
    Unknown,
}

impl Held {
    fn read(active: &Overlay, key: &[u8]) -> Held {
        match active.find(key) {
            Found::Live(live) => Held::Live(State::of(live.version, &live.value)),
            Found::Dead => Held::Dead,
            Found::Unknown => Held::Unknown,
        }
    }
}

/// What decisions need of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    version: RowVersion,
    /// The value, if it can be a counter's.
    counter: Option<[u8; 8]>,
}

impl State {
    fn of(version: RowVersion, value: &[u8]) -> State {
        State { version, counter: value.try_into().ok() }
    }
}

/// A write with all of its decisions made.
enum Resolved<'a> {
    Put { key: &'a [u8], value: &'a [u8] },
    Counter { key: &'a [u8], value: [u8; 8], version: Option<RowVersion> },
    Delete { key: &'a [u8], bury: Option<(bool, bool)> },
}

pub(super) fn validate(batch: &Batch, log_file_bytes: u64) -> Result<(), CommitError> {
    let invalid = |why| Err(CommitError::Invalid(why));
    if batch.writes.is_empty() {
        return invalid("no writes");
    }
    if batch.writes.len() > BATCH_WRITES_MAX {
        return invalid("too many writes");
    }
    for write in &batch.writes {
        if write.key().is_empty() || write.key().len() > OLD_KEY_BYTES_MAX {
            return invalid("a key is empty or too long");
        }
        if let Write::Put { value, .. } = write
            && value.len() > VALUE_BYTES_MAX
        {
            return invalid("a value is too long");
        }
    }
    batch.check_kinds()?;
    check_distinct(&batch.writes)?;
    let payload = batch.payload.as_ref().map_or(0, |payload| payload.bytes.len());
    if payload > PAYLOAD_BYTES_MAX {
        return invalid("the payload is too long");
    }
    for place in batch.payload.iter().flat_map(|payload| &payload.places) {
        let len = match (batch.writes.get(place.write), place.field) {
            (Some(Write::Put { value, .. }), Field::Value) => value.len(),
            (Some(write), Field::Key) => write.key().len(),
            _ => return invalid("a place names no bytes"),
        };
        if place.at.checked_add(8).is_none_or(|end| end > len) {
            return invalid("a place lies outside its field");
        }
    }
    assert!(log_file_bytes >= LOG_FILE_BYTES_MIN);
    if FILE_HEADER_BYTES + record::record_bytes(&batch.writes, payload) as u64 > log_file_bytes {
        return invalid("larger than a log file");
    }
    Ok(())
}

/// All writes of a batch are decided on the rows before it, so none may depend on another.
fn check_distinct(writes: &[Write]) -> Result<(), CommitError> {
    let mut keys: Vec<&[u8]> = writes.iter().map(Write::key).collect();
    keys.sort_unstable();
    let twice = keys.windows(2).any(|pair| pair[0] == pair[1]);
    if twice { Err(CommitError::Invalid("a key is written twice")) } else { Ok(()) }
}

impl Embedded {
    pub(super) fn commit_batch(&self, mut batch: Batch) -> Result<Committed, CommitError> {
        validate(&batch, self.options.log_file_bytes)?;
        let payload = batch.payload.as_ref().map_or(0, |payload| payload.bytes.len());
        let record_bytes = record::record_bytes(&batch.writes, payload) as u64;
        self.pace(record_bytes);
        loop {
            self.log.check_poison()?;
            let lower = self.lower.load_full();
            let facts = self.facts(&batch, &lower)?;
            let mut serial = self.log.serial.lock();
            self.log.check_poison()?;
            if self.needs_room(&serial, record_bytes) && !self.make_room(&mut serial)? {
                continue;
            }
            if self.lower.load().epoch != lower.epoch {
                continue;
            }
            let location = batch.payload.as_ref().map(|payload| {
                let offset = serial.at + (record::HEADER_BYTES + record::body_bytes(&batch.writes)) as u64;
                let location = PayloadLocation { segment: serial.active.id, offset };
                fill_places(&mut batch.writes, &payload.places, location);
                location
            });
            let resolved = {
                let active = self.active.read();
                let view = View::new(&active, &lower, &facts);
                for (index, condition) in batch.preconditions.iter().enumerate() {
                    if !view.holds(condition, &facts.conditions[index])? {
                        return Err(CommitError::Conflict { precondition: index });
                    }
                }
                view.resolve(&batch.writes, &facts.writes)?
            };
            let bytes = batch.payload.as_ref().map_or(&[][..], |payload| &payload.bytes);
            let seq = self.log.append(&mut serial, &batch.writes, bytes);
            if resolved.iter().any(|write| matches!(write, Resolved::Delete { .. })) {
                // Before the deletion becomes visible, so that whoever sees it waits for it.
                self.newest_deletion.store(seq.0, Ordering::Release);
            }
            apply(&mut self.active.write(), &resolved, seq);
            self.pace.filled(serial.at);
            self.tail.record(seq, &batch.writes);
            return Ok(Committed { cursor: seq, version: version_of(seq), payload: location });
        }
    }

    fn facts(&self, batch: &Batch, lower: &Lower) -> Result<Facts, EngineError> {
        let mut facts = self.active_facts(batch);
        let older = |fact: &mut Fact, key: &[u8]| {
            if fact.held == Some(Held::Unknown) {
                fact.below = Some(below(lower, key)?);
            }
            Ok::<_, EngineError>(())
        };
        for (condition, fact) in batch.preconditions.iter().zip(&mut facts.conditions) {
            match condition {
                Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => {
                    older(fact, key)?;
                }
                // Loads the pages that the serial section will read into memory.
                Precondition::RangeEmpty { start, end, .. } => {
                    lower.first_live(Bound::Included(start), Bound::Excluded(end))?;
                }
            }
        }
        for (write, fact) in batch.writes.iter().zip(&mut facts.writes) {
            match write {
                Write::Put { .. } | Write::Set { .. } => {}
                Write::Add { key, .. } | Write::Max { key, .. } => older(fact, key)?,
                Write::Delete { key } => deletion_fact(fact, key, lower)?,
            }
        }
        Ok(facts)
    }

    /// The facts that the active overlay has, under one lock.
    fn active_facts(&self, batch: &Batch) -> Facts {
        let active = self.active.read();
        let fact = |key: &[u8]| Fact { held: Some(Held::read(&active, key)), ..Fact::default() };
        let conditions = batch.preconditions.iter().map(|condition| match condition {
            Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => {
                fact(key)
            }
            Precondition::RangeEmpty { .. } => Fact::default(),
        });
        let conditions = conditions.collect();
        let places = batch.payload.as_ref().map_or(&[][..], |payload| &payload.places);
        let is_unplaced = |write| places.iter().any(|place| place.write == write && place.field == Field::Key);
        let writes = batch.writes.iter().enumerate().map(|(index, write)| match write {
            Write::Put { .. } | Write::Set { .. } => Fact::default(),
            // The key gets the place of the payload in the active log, which is as new as the active overlay.
            _ if is_unplaced(index) => Fact { below: Some(None), ..Fact::default() },
            Write::Add { key, .. } | Write::Max { key, .. } => fact(key),
            Write::Delete { key } if active.covering(key).is_some() => {
                Fact { held: Some(Held::Dead), ..Fact::default() }
            }
            Write::Delete { key } => Fact {
                held: Some(Held::Unknown),
                clear_from: active.dead_before(key).map(Box::from),
                clear_to: active.dead_after(key).map(Box::from),
                ..Fact::default()
            },
        });
        let writes = writes.collect();
        Facts { as_of: active.last(), conditions, writes }
    }

    fn needs_room(&self, serial: &Serial, record_bytes: u64) -> bool {
        serial.at + record_bytes > self.options.log_file_bytes
            || self.active.read().bytes() > self.options.overlay_bytes_max
    }
}

/// Whether the older layers have no live row strictly between two keys.
fn gap_is_clear(lower: &Lower, from: &[u8], to: &[u8]) -> Result<bool, EngineError> {
    Ok(lower.first_live(Bound::Excluded(from), Bound::Excluded(to))?.is_none())
}

/// Completes what the active overlay said of a deletion: intervals are kept only if it may join them.
fn deletion_fact(fact: &mut Fact, key: &[u8], lower: &Lower) -> Result<(), EngineError> {
    let (before, after) = (fact.clear_from.take(), fact.clear_to.take());
    if fact.held == Some(Held::Dead) {
        return Ok(());
    }
    if let Some(around) = lower.around(key, before.as_deref(), after.as_deref())? {
        fact.below = Some(Some(State { version: around.version, counter: None }));
        (fact.clear_from, fact.clear_to) = (before.filter(|_| around.clear_from), after.filter(|_| around.clear_to));
        return Ok(());
    }
    fact.below = Some(below(lower, key)?);
    if matches!(fact.below, Some(Some(_))) {
        if let Some(end) = before
            && gap_is_clear(lower, &end, key)?
        {
            fact.clear_from = Some(end);
        }
        if let Some(start) = after
            && gap_is_clear(lower, key, &start)?
        {
            fact.clear_to = Some(start);
        }
    }
    Ok(())
}

fn below(lower: &Lower, key: &[u8]) -> Result<Option<State>, EngineError> {
    Ok(lower.get(key)?.map(|stored| State::of(stored.version(), stored.value())))
}

fn fill_places(writes: &mut [Write], places: &[crate::PositionField], location: PayloadLocation) {
    for place in places {
        let bytes = match (&mut writes[place.write], place.field) {
            (Write::Put { value, .. }, Field::Value) => value.as_mut_slice(),
            (write, Field::Key) => write.key_mut(),
            _ => unreachable!("places were validated"),
        };
        let value = match place.what {
            Position::Segment => location.segment.0,
            Position::Offset => location.offset,
        };
        bytes[place.at..place.at + 8].copy_from_slice(&value.to_be_bytes());
    }
}

/// The rows that a batch is decided on.
struct View<'v> {
    active: &'v Overlay,
    lower: &'v Lower,
    /// Nothing was committed since the facts were read.
    is_unchanged: bool,
}

impl<'v> View<'v> {
    fn new(active: &'v Overlay, lower: &'v Lower, facts: &Facts) -> View<'v> {
        View { active, lower, is_unchanged: active.last() == facts.as_of }
    }

    fn held(&self, key: &[u8], fact: &Fact) -> Held {
        match fact.held {
            Some(held) if self.is_unchanged => held,
            _ => Held::read(self.active, key),
        }
    }

    fn below(&self, key: &[u8], fact: &Fact) -> Result<Option<State>, EngineError> {
        match fact.below {
            Some(below) => Ok(below),
            // The active overlay had the key when the facts were read, and has dropped it since.
            None => below(self.lower, key),
        }
    }

    /// The key's row now.
    fn current(&self, key: &[u8], fact: &Fact) -> Result<Option<State>, EngineError> {
        match self.held(key, fact) {
            Held::Live(state) => Ok(Some(state)),
            Held::Dead => Ok(None),
            Held::Unknown => self.below(key, fact),
        }
    }

    fn holds(&self, condition: &Precondition, fact: &Fact) -> Result<bool, EngineError> {
        Ok(match condition {
            Precondition::Version { key, version } => {
                self.current(key, fact)?.is_some_and(|row| row.version == *version)
            }
            Precondition::Exists { key } => self.current(key, fact)?.is_some(),
            Precondition::Absent { key } => self.current(key, fact)?.is_none(),
            Precondition::RangeEmpty { start, end, .. } => {
                self.active.live_range(Bound::Included(start), Bound::Excluded(end)).next().is_none()
                    && self.lower.first_live_unmasked(start, end, self.active)?.is_none()
            }
        })
    }

    fn resolve<'a>(&self, writes: &'a [Write], facts: &[Fact]) -> Result<Vec<Resolved<'a>>, CommitError> {
        let mut resolved = Vec::with_capacity(writes.len());
        for (write, fact) in writes.iter().zip(facts) {
            resolved.push(match write {
                Write::Put { key, value } => Resolved::Put { key, value },
                Write::Set { key, value } => Resolved::Put { key, value },
                Write::Delete { key } => Resolved::Delete { key, bury: self.burial(key, fact)? },
                Write::Add { key, delta } => {
                    let (old, version) = self.counter(key, fact)?;
                    let sum = i64::from_le_bytes(old).checked_add(*delta);
                    let sum = sum.ok_or(CommitError::Invalid("a counter would overflow"))?;
                    Resolved::Counter { key, value: sum.to_le_bytes(), version }
                }
                Write::Max { key, at_least } => {
                    let (old, version) = self.counter(key, fact)?;
                    let max = u64::from_le_bytes(old).max(*at_least);
                    Resolved::Counter { key, value: max.to_le_bytes(), version }
                }
            });
        }
        Ok(resolved)
    }

    /// A counter's bytes (zeros when absent) and its row's version.
    fn counter(&self, key: &[u8], fact: &Fact) -> Result<([u8; 8], Option<RowVersion>), EngineError> {
        let Some(State { version, counter }) = self.current(key, fact)? else { return Ok(([0; 8], None)) };
        let counter = counter.ok_or_else(|| EngineError::Corrupt("a counter is not 8 bytes long".into()))?;
        Ok((counter, Some(version)))
    }

    /// Whether a deletion must mask the older layers, and which neighbouring intervals it may join.
    fn burial(&self, key: &[u8], fact: &Fact) -> Result<Option<(bool, bool)>, EngineError> {
        let View { active, lower, is_unchanged } = *self;
        let is_covered = match fact.held {
            Some(held) if is_unchanged => held == Held::Dead,
            _ => active.covering(key).is_some(),
        };
        if is_covered || self.below(key, fact)?.is_none() {
            return Ok(None);
        }
        if is_unchanged && fact.held.is_some() {
            return Ok(Some((fact.clear_from.is_some(), fact.clear_to.is_some())));
        }
        // An interval that was clear up to its old end is clear up to its new one: intervals only grow. A neighbour
        // that was not examined yet (two adjacent concurrent deletions) is examined now; its pages are in memory.
        let before = match (active.dead_before(key), &fact.clear_from) {
            (None, _) => false,
            (Some(end), Some(cleared)) if end >= &**cleared => true,
            (Some(end), _) => gap_is_clear(lower, end, key)?,
        };
        let after = match (active.dead_after(key), &fact.clear_to) {
            (None, _) => false,
            (Some(start), Some(cleared)) if start <= &**cleared => true,
            (Some(start), _) => gap_is_clear(lower, key, start)?,
        };
        Ok(Some((before, after)))
    }
}

/// In this engine a version is the cursor of its commit.
fn version_of(cursor: Cursor) -> RowVersion {
    RowVersion::from_bits(cursor.0)
}

fn apply(active: &mut Overlay, resolved: &[Resolved<'_>], seq: Cursor) {
    active.rises_to(seq);
    for write in resolved {
        match write {
            Resolved::Put { key, value } => active.put(key, value, version_of(seq), seq),
            Resolved::Counter { key, value, version } => {
                active.count(key, value, version.unwrap_or(version_of(seq)), seq)
            }
            Resolved::Delete { key, bury } => {
                active.forget(key);
                if let Some((before, after)) = bury {
                    active.bury(key, *before, *after);
                }
            }
        }
    }
}

/// Applies a replayed record: its preconditions held when it was written. A counter that was set comes back as a put.
pub(super) fn replay(
    overlay: &mut Overlay,
    lower: &Arc<Lower>,
    writes: &[Write],
    seq: Cursor,
) -> Result<(), CommitError> {
    check_distinct(writes)?;
    let facts: Vec<Fact> = writes.iter().map(|_| Fact::default()).collect();
    let resolved = View { active: overlay, lower, is_unchanged: false }.resolve(writes, &facts)?;
    apply(overlay, &resolved, seq);
    Ok(())
}

#[cfg(test)]
mod tests;
