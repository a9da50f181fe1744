//! One commit: facts about older layers are read outside the serial section, then it is decided and applied inside it.
//!
//! Why:        the serial section must not wait for the disk, so rows of the older layers are read before it; they
//!             cannot change until an overlay is sealed, which changes the epoch.
//! Invariants: C1 preconditions are evaluated on exactly the rows that the batch is applied to.
//!             C2 a batch is in the log's buffer before any reader sees it, and as a whole or not at all.
//! Locking:    `serial`, then the active overlay (read to decide, write to apply). Facts are read under neither.
//! Not here:   the log's bytes (log, record), the layers (overlay, layers).

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::layers::{Lower, Stored};
use super::limits::LOG_FILE_BYTES_MIN;
use super::log::Serial;
use super::log_header::FILE_HEADER_BYTES;
use super::overlay::{Found, Overlay};
use super::{Embedded, record};
use crate::{
    BATCH_WRITES_MAX, Batch, CommitError, Committed, Cursor, EngineError, Field, OLD_KEY_BYTES_MAX, PAYLOAD_BYTES_MAX,
    PayloadLocation, Position, Precondition, RowVersion, VALUE_BYTES_MAX, Write,
};

/// The older layers' row of a key, read once per epoch.
#[derive(Debug, Default)]
pub(super) struct Fact {
    /// `None`: not read, since the active overlay had the key.
    below: Option<Option<Below>>,
    /// For a deletion: the older layers have no live row between this key (the end of the preceding interval) and the
    /// deleted one; and the same after it.
    clear_from: Option<Box<[u8]>>,
    clear_to: Option<Box<[u8]>>,
}

#[derive(Clone, Debug)]
pub(super) struct Below {
    version: RowVersion,
    /// Kept only for counters.
    value: Vec<u8>,
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
            let conditions = self.condition_facts(&batch.preconditions, &lower)?;
            let facts = self.write_facts(&batch.writes, &lower)?;
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
                for (index, condition) in batch.preconditions.iter().enumerate() {
                    if !holds(condition, &conditions[index], &active, &lower)? {
                        return Err(CommitError::Conflict { precondition: index });
                    }
                }
                resolve(&batch.writes, &facts, &active, &lower)?
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

    fn condition_facts(&self, conditions: &[Precondition], lower: &Lower) -> Result<Vec<Fact>, EngineError> {
        conditions
            .iter()
            .map(|condition| match condition {
                Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => {
                    self.fact(key, lower, false)
                }
                Precondition::RangeEmpty { start, end } => {
                    // Loads the pages that the serial section will read into memory.
                    lower.first_live(Bound::Included(start), Bound::Excluded(end))?;
                    Ok(Fact::default())
                }
            })
            .collect()
    }

    fn fact(&self, key: &[u8], lower: &Lower, counter: bool) -> Result<Fact, EngineError> {
        if !matches!(self.active.read().find(key), Found::Unknown) {
            return Ok(Fact::default());
        }
        Ok(Fact { below: Some(below(lower, key, counter)?), ..Fact::default() })
    }

    fn write_facts(&self, writes: &[Write], lower: &Lower) -> Result<Vec<Fact>, EngineError> {
        writes
            .iter()
            .map(|write| match write {
                Write::Put { .. } => Ok(Fact::default()),
                Write::Add { key, .. } | Write::Max { key, .. } => self.fact(key, lower, true),
                Write::Delete { key } => self.deletion_fact(key, lower),
            })
            .collect()
    }

    fn deletion_fact(&self, key: &[u8], lower: &Lower) -> Result<Fact, EngineError> {
        let (before, after) = {
            let active = self.active.read();
            if active.covering(key).is_some() {
                return Ok(Fact::default());
            }
            (active.dead_before(key).map(Box::<[u8]>::from), active.dead_after(key).map(Box::<[u8]>::from))
        };
        let mut fact = Fact { below: Some(below(lower, key, false)?), ..Fact::default() };
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
        Ok(fact)
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

fn below(lower: &Lower, key: &[u8], counter: bool) -> Result<Option<Below>, EngineError> {
    Ok(lower.get(key)?.map(|stored: Stored| Below {
        version: stored.version(),
        value: if counter { stored.value().to_vec() } else { Vec::new() },
    }))
}

fn fill_places(writes: &mut [Write], places: &[crate::PositionField], location: PayloadLocation) {
    for place in places {
        let bytes = match (&mut writes[place.write], place.field) {
            (Write::Put { value, .. }, Field::Value) => value,
            (
                Write::Put { key, .. } | Write::Delete { key } | Write::Add { key, .. } | Write::Max { key, .. },
                Field::Key,
            ) => key,
            _ => unreachable!("places were validated"),
        };
        let value = match place.what {
            Position::Segment => location.segment.0,
            Position::Offset => location.offset,
        };
        bytes[place.at..place.at + 8].copy_from_slice(&value.to_be_bytes());
    }
}

/// The current version of a key's row.
fn current(key: &[u8], fact: &Fact, active: &Overlay, lower: &Lower) -> Result<Option<RowVersion>, EngineError> {
    match active.find(key) {
        Found::Live(live) => Ok(Some(live.version)),
        Found::Dead => Ok(None),
        Found::Unknown => match &fact.below {
            Some(found) => Ok(found.as_ref().map(|below| below.version)),
            // The active overlay had the key when the facts were read, and has dropped it since.
            None => Ok(below(lower, key, false)?.map(|below| below.version)),
        },
    }
}

fn holds(condition: &Precondition, fact: &Fact, active: &Overlay, lower: &Lower) -> Result<bool, EngineError> {
    Ok(match condition {
        Precondition::Version { key, version } => current(key, fact, active, lower)? == Some(*version),
        Precondition::Exists { key } => current(key, fact, active, lower)?.is_some(),
        Precondition::Absent { key } => current(key, fact, active, lower)?.is_none(),
        Precondition::RangeEmpty { start, end } => {
            active.live_range(Bound::Included(start), Bound::Excluded(end)).next().is_none()
                && lower.first_live_unmasked(start, end, active)?.is_none()
        }
    })
}

fn resolve<'a>(
    writes: &'a [Write],
    facts: &[Fact],
    active: &Overlay,
    lower: &Lower,
) -> Result<Vec<Resolved<'a>>, CommitError> {
    let mut resolved = Vec::with_capacity(writes.len());
    for (write, fact) in writes.iter().zip(facts) {
        resolved.push(match write {
            Write::Put { key, value } => Resolved::Put { key, value },
            Write::Delete { key } => Resolved::Delete { key, bury: burial(key, fact, active, lower)? },
            Write::Add { key, delta } => {
                let (old, version) = counter(key, fact, active, lower)?;
                let sum = i64::from_le_bytes(old).checked_add(*delta);
                let sum = sum.ok_or(CommitError::Invalid("a counter would overflow"))?;
                Resolved::Counter { key, value: sum.to_le_bytes(), version }
            }
            Write::Max { key, at_least } => {
                let (old, version) = counter(key, fact, active, lower)?;
                let max = u64::from_le_bytes(old).max(*at_least);
                Resolved::Counter { key, value: max.to_le_bytes(), version }
            }
        });
    }
    Ok(resolved)
}

/// A counter's bytes (zeros when absent) and its row's version.
fn counter(
    key: &[u8],
    fact: &Fact,
    active: &Overlay,
    lower: &Lower,
) -> Result<([u8; 8], Option<RowVersion>), EngineError> {
    let checked = |value: &[u8]| {
        <[u8; 8]>::try_from(value).map_err(|_| EngineError::Corrupt("a counter is not 8 bytes long".into()))
    };
    match active.find(key) {
        Found::Live(live) => Ok((checked(&live.value)?, Some(live.version))),
        Found::Dead => Ok(([0; 8], None)),
        Found::Unknown => {
            let found = match &fact.below {
                Some(found) => found.clone(),
                None => below(lower, key, true)?,
            };
            match found {
                Some(below) => Ok((checked(&below.value)?, Some(below.version))),
                None => Ok(([0; 8], None)),
            }
        }
    }
}

/// Whether a deletion must mask the older layers, and which neighbouring intervals it may join.
fn burial(key: &[u8], fact: &Fact, active: &Overlay, lower: &Lower) -> Result<Option<(bool, bool)>, EngineError> {
    if active.covering(key).is_some() {
        return Ok(None);
    }
    let exists_below = match &fact.below {
        Some(found) => found.is_some(),
        None => below(lower, key, false)?.is_some(),
    };
    if !exists_below {
        return Ok(None);
    }
    // An interval that was clear up to its old end is clear up to its new one: intervals only grow. A neighbour that
    // was not examined yet (two adjacent concurrent deletions) is examined now; its pages are in memory.
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

/// In this engine a version is the cursor of its commit.
fn version_of(cursor: Cursor) -> RowVersion {
    RowVersion::from_bits(cursor.0)
}

fn apply(active: &mut Overlay, resolved: &[Resolved<'_>], seq: Cursor) {
    for write in resolved {
        match write {
            Resolved::Put { key, value } => active.put(key, value, version_of(seq), seq),
            Resolved::Counter { key, value, version } => {
                active.put(key, value, version.unwrap_or(version_of(seq)), seq)
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

/// Applies a replayed record: its preconditions held when it was written.
pub(super) fn replay(
    overlay: &mut Overlay,
    lower: &Arc<Lower>,
    writes: &[Write],
    seq: Cursor,
) -> Result<(), CommitError> {
    check_distinct(writes)?;
    let facts: Vec<Fact> = writes.iter().map(|_| Fact::default()).collect();
    let resolved = resolve(writes, &facts, overlay, lower)?;
    apply(overlay, &resolved, seq);
    Ok(())
}
