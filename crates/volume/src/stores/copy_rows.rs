//! Rows that say how many copies of segments there are to be, which stores may have them, and which have one.
//!
//! Why:        servers that make copies read and change these rows beside the volume: its caches know own segments only.
//! Invariants: P1 the row of a segment is changed here only if its store is detached, so that no process caches it.
//! Not here:   rows of own segments (segment_rows), sending bytes (an implementation of `Copies`).

use std::ops::ControlFlow;

use margay_meta::{Engine, RowVersion};
use margay_rows::key::{self, Live};
use margay_rows::record::{CopiesRecord, SegmentRecord, SegmentState, StoreRecord};
use margay_segment::{SegmentId, StoreNumber};

use super::place::session_of;
use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

/// Attempts to change a row while others change it.
const TRIES_MAX: usize = 100;
/// Rows that are read at once.
const ROWS_READ: usize = 1000;

/// A store as the rows know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownStore {
    pub number: StoreNumber,
    /// How often it was opened.
    pub generation: u64,
    /// Where the process that has it open gives its bytes to others; `None`: no process has it open.
    pub address: Option<String>,
    /// The host of that process.
    pub host: String,
    /// Its name and version.
    pub program: String,
}

/// A segment as its row says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSegment {
    pub id: SegmentId,
    pub record: SegmentRecord,
    pub(super) version: RowVersion,
    /// Of the row that says which stores are detached.
    pub(super) copies: Option<RowVersion>,
}

impl KnownSegment {
    /// Whether its row names the store, and does not say that the segment goes.
    pub fn is_at(&self, store: StoreNumber) -> bool {
        self.record.state != SegmentState::Removed && self.record.stores.contains(&store)
    }
}

/// How many copies the volume has; one if nobody has said so.
pub fn read_copies(engine: &dyn Engine) -> Result<CopiesRecord, Error> {
    let row = engine.get(&key::copies())?.value;
    Ok(row.map(|row| CopiesRecord::decode(&row.value)).transpose()?.unwrap_or_default())
}

/// Changes that row; durable when it returns. `change` may be called again.
pub fn change_copies(engine: &dyn Engine, change: &dyn Fn(&mut CopiesRecord)) -> Result<CopiesRecord, Error> {
    for _ in 0..TRIES_MAX {
        let row = engine.get(&key::copies())?.value;
        let mut copies = row.as_ref().map(|row| CopiesRecord::decode(&row.value)).transpose()?.unwrap_or_default();
        change(&mut copies);
        let mut draft = Draft::default();
        draft.assert_unchanged(key::copies(), row.map(|row| row.version));
        draft.put(key::copies(), copies.encode());
        match draft.commit(engine) {
            Ok(done) => {
                engine.wait_durable(done.cursor)?;
                return Ok(copies);
            }
            Err(Refused::Conflict) => {}
            Err(Refused::Error(error)) => return Err(error),
        }
    }
    Err(Error::Busy)
}

/// All stores that the volume ever had, ascending.
pub fn known_stores(engine: &dyn Engine) -> Result<Vec<KnownStore>, Error> {
    let (start, end) = key::all_stores();
    let mut rows = Vec::new();
    engine.scan(&start, &end, &mut |row| {
        rows.push((row.key.to_vec(), row.value.to_vec()));
        ControlFlow::Continue(())
    })?;
    let mut stores = Vec::new();
    for (store, value) in rows {
        let (number, record) = (key::parse_store(&store)?, StoreRecord::decode(&value)?);
        let session = session_of(engine, &record)?.unwrap_or_default();
        let address = (!session.address.is_empty()).then_some(session.address);
        let (host, program) = (session.host, session.program);
        stores.push(KnownStore { number, generation: record.generation, address, host, program });
    }
    Ok(stores)
}

/// Visits the segments that a store made and that have a row, by their ids, until the visitor breaks. No row is held meanwhile.
pub fn visit_segments_made_by(
    engine: &dyn Engine,
    store: StoreNumber,
    visit: &mut dyn FnMut(KnownSegment) -> Result<ControlFlow<()>, Error>,
) -> Result<(), Error> {
    let (mut start, end) = key::segments_of(store);
    let copies = engine.get(&key::copies())?.value.map(|row| row.version);
    loop {
        let mut found = Vec::new();
        engine.scan(&start, &end, &mut |row| {
            found.push(known_segment(row.key, row.value, row.version, copies));
            if found.len() < ROWS_READ { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let is_last = found.len() < ROWS_READ;
        for known in found {
            let known = known?;
            start = key::segment(SegmentId(known.id.0 + 1));
            if visit(known)?.is_break() {
                return Ok(());
            }
        }
        if is_last {
            return Ok(());
        }
    }
}

fn known_segment(
    segment: &[u8],
    value: &[u8],
    version: RowVersion,
    copies: Option<RowVersion>,
) -> Result<KnownSegment, Error> {
    let (id, record) = (key::parse_segment(segment)?, SegmentRecord::decode(value)?);
    Ok(KnownSegment { id, record, version, copies })
}

/// The row of a segment; `None`: it has none, or says that the segment goes.
pub fn read_segment(engine: &dyn Engine, id: SegmentId) -> Result<Option<SegmentRecord>, Error> {
    let row = engine.get(&key::segment(id))?.value;
    let record = row.map(|row| SegmentRecord::decode(&row.value)).transpose()?;
    Ok(record.filter(|record| record.state != SegmentState::Removed))
}

/// Whether anything refers to the segment, by its counters: else it waits for its removal, and needs no copies.
pub fn is_referenced(engine: &dyn Engine, id: SegmentId) -> Result<bool, Error> {
    let bytes = |side| -> Result<i64, Error> {
        let row = engine.get(&key::live(id, side))?.value;
        let Some(row) = row else { return Ok(0) };
        let value = row.value.as_ref().try_into();
        value
            .map(i64::from_le_bytes)
            .map_err(|_| Error::Corrupt("a counter of live bytes has a wrong length".to_owned()))
    };
    let (gained, shared, lost) = (bytes(Live::Gained)?, bytes(Live::Shared)?, bytes(Live::Lost)?);
    Ok(gained.saturating_add(shared) > lost)
}

/// Names other stores, and another state, for a segment whose own store was detached when it was read; false if that, or its row, has
/// changed since.
pub fn rename_stores(
    engine: &dyn Engine,
    known: &KnownSegment,
    stores: Vec<StoreNumber>,
    state: SegmentState,
) -> Result<bool, Error> {
    let mut draft = Draft::default();
    // P1.
    draft.assert_unchanged(key::copies(), known.copies);
    draft.assert_version(key::segment(known.id), known.version);
    draft.put(key::segment(known.id), SegmentRecord { state, stores, ..known.record.clone() }.encode());
    match draft.commit(engine) {
        Ok(done) => {
            engine.wait_durable(done.cursor)?;
            Ok(true)
        }
        Err(Refused::Conflict) => Ok(false),
        Err(Refused::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use margay_meta::memory::Memory;
    use margay_meta::{Batch, Write};
    use margay_segment::Kind;

    use super::*;

    const GONE: StoreNumber = StoreNumber(3);

    fn put(engine: &dyn Engine, row: Vec<u8>, value: Vec<u8>) {
        let mut draft = Draft::default();
        draft.put(row, value);
        draft.commit(engine).unwrap();
    }

    fn made_by(engine: &dyn Engine, store: StoreNumber) -> Vec<KnownSegment> {
        let mut found = Vec::new();
        let mut visit = |known| {
            found.push(known);
            Ok(ControlFlow::Continue(()))
        };
        visit_segments_made_by(engine, store, &mut visit).unwrap();
        found
    }

    #[test]
    fn all_segments_of_a_store_are_visited_until_the_visitor_breaks() {
        let engine = Memory::default();
        let (first, end) = GONE.ids();
        let record = SegmentRecord { state: SegmentState::Open, kind: Kind::Raw, writer: 1, stores: vec![GONE] };
        for id in (0..2 * ROWS_READ as u64).map(|number| SegmentId(first.0 + number)).chain([end]) {
            put(&engine, key::segment(id), record.encode());
        }
        let found = made_by(&engine, GONE);
        assert_eq!(found.len(), 2 * ROWS_READ);
        assert!(found.windows(2).all(|two| two[0].id.0 + 1 == two[1].id.0));
        let mut count = 0;
        let mut visit = |_| {
            count += 1;
            Ok(if count == ROWS_READ + 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        visit_segments_made_by(&engine, GONE, &mut visit).unwrap();
        assert_eq!(count, ROWS_READ + 1);
    }

    #[test]
    fn two_changes_at_once_are_both_made() {
        let engine = Memory::default();
        assert_eq!(read_copies(&engine).unwrap(), CopiesRecord::default());
        let other = std::cell::Cell::new(true);
        let made = change_copies(&engine, &|copies| {
            if other.take() {
                change_copies(&engine, &|copies| copies.detached.push(GONE)).unwrap();
            }
            (copies.copies, copies.write) = (3, 2);
        });
        let both = CopiesRecord { copies: 3, write: 2, detached: vec![GONE], ..CopiesRecord::default() };
        assert_eq!((made.unwrap(), read_copies(&engine).unwrap()), (both.clone(), both));
    }

    #[test]
    fn a_segment_gets_other_stores_only_while_its_own_is_detached_and_its_row_is_the_same() {
        let engine = Memory::default();
        change_copies(&engine, &|copies| copies.detached.push(GONE)).unwrap();
        let id = SegmentId(GONE.ids().0.0 + 5);
        let record = |stores: &[u16]| SegmentRecord {
            state: SegmentState::Sealed { len: 9 },
            kind: Kind::Pack,
            writer: 1,
            stores: stores.iter().map(|store| StoreNumber(*store)).collect(),
        };
        put(&engine, key::segment(id), record(&[1, 3]).encode());
        let known = || made_by(&engine, GONE);
        let before = known().remove(0);
        let state = before.record.state;
        assert!(rename_stores(&engine, &before, vec![StoreNumber(1), StoreNumber(2)], state).unwrap());
        assert_eq!(known()[0].record, record(&[1, 2]));
        assert!(known()[0].is_at(StoreNumber(2)) && !known()[0].is_at(GONE));
        assert!(!rename_stores(&engine, &before, vec![StoreNumber(7)], state).unwrap());
        let now = known().remove(0);
        change_copies(&engine, &|copies| copies.detached.clear()).unwrap();
        assert!(!rename_stores(&engine, &now, vec![StoreNumber(7)], state).unwrap());
        assert_eq!(known()[0].record, record(&[1, 2]));
        assert!(!is_referenced(&engine, id).unwrap());
        let count = |side, delta| {
            let writes = vec![Write::Add { key: key::live(id, side), delta }];
            engine.commit(Batch { preconditions: Vec::new(), writes, payload: None }).unwrap();
        };
        count(Live::Gained, 200);
        count(Live::Lost, 100);
        count(Live::Shared, 100);
        assert!(is_referenced(&engine, id).unwrap());
        count(Live::Lost, 200);
        assert!(!is_referenced(&engine, id).unwrap());
        assert!(made_by(&engine, StoreNumber(1)).is_empty());
    }
}
