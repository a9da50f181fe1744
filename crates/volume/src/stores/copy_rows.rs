//! Rows that say how many copies of segments there are to be, which stores may have them, and which have one.
//!
//! Why:        servers that make copies read and change these rows beside the volume: its caches know own segments only.
//! Invariants: P1 the row of a segment is changed here only if its store is detached, so that no process caches it.
//! Not here:   rows of own segments (segment_rows), sending bytes (an implementation of `Copies`).

use std::ops::ControlFlow;

use margay_meta::Engine;
use margay_rows::key;
use margay_rows::record::{Copies, SegmentRecord, SegmentState, SessionRecord, StoreRecord};
use margay_segment::{SegmentId, StoreNumber};

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

/// Attempts to change a row while others change it.
const TRIES_MAX: usize = 100;

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
}

/// The store of this number in a segment's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSegment {
    pub id: SegmentId,
    pub record: SegmentRecord,
}

/// How many copies the volume has; one if nobody has said so.
pub fn read_copies(engine: &dyn Engine) -> Result<Copies, Error> {
    let row = engine.get(&key::copies())?.value;
    Ok(row.map(|row| Copies::decode(&row.value)).transpose()?.unwrap_or_default())
}

/// Changes that row; durable when it returns. `change` may be called again.
pub fn change_copies(engine: &dyn Engine, change: &dyn Fn(&mut Copies)) -> Result<Copies, Error> {
    for _ in 0..TRIES_MAX {
        let row = engine.get(&key::copies())?.value;
        let mut copies = row.as_ref().map(|row| Copies::decode(&row.value)).transpose()?.unwrap_or_default();
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
        let row = engine.get(&key::session(margay_rows::Ino(record.session)))?.value;
        let session = row.map(|row| SessionRecord::decode(&row.value)).transpose()?.unwrap_or_default();
        let address = (!session.address.is_empty()).then_some(session.address);
        stores.push(KnownStore { number, generation: record.generation, address, host: session.host });
    }
    Ok(stores)
}

/// The segments that a store made and that exist, from an id on, and about so many; ascending.
pub fn segments_made_by(
    engine: &dyn Engine,
    store: StoreNumber,
    from: SegmentId,
    count: usize,
) -> Result<Vec<KnownSegment>, Error> {
    let (start, end) = key::segments_of(store);
    let mut rows = Vec::new();
    engine.scan(&start.max(key::segment(from)), &end, &mut |row| {
        rows.push((row.key.to_vec(), row.value.to_vec()));
        if rows.len() < count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let decoded = rows.into_iter().map(|(segment, value)| -> Result<KnownSegment, Error> {
        Ok(KnownSegment { id: key::parse_segment(&segment)?, record: SegmentRecord::decode(&value)? })
    });
    decoded.collect()
}

/// Which of these segments have a row that names the store.
pub fn has_copy(engine: &dyn Engine, id: SegmentId, store: StoreNumber) -> Result<bool, Error> {
    let Some(row) = engine.get(&key::segment(id))?.value else { return Ok(false) };
    let record = SegmentRecord::decode(&row.value)?;
    Ok(record.state != SegmentState::Removed && record.stores.contains(&store))
}

/// Names other stores for a segment whose own store is detached; false if it is not any more, or its row has changed since.
pub fn rename_stores(engine: &dyn Engine, known: &KnownSegment, stores: Vec<StoreNumber>) -> Result<bool, Error> {
    let Some(copies) = engine.get(&key::copies())?.value else { return Ok(false) };
    let is_detached = Copies::decode(&copies.value)?.detached.contains(&known.id.made_by());
    let Some(row) = engine.get(&key::segment(known.id))?.value.filter(|_| is_detached) else { return Ok(false) };
    if SegmentRecord::decode(&row.value)? != known.record {
        return Ok(false);
    }
    let mut draft = Draft::default();
    // P1.
    draft.assert_version(key::copies(), copies.version);
    draft.assert_version(key::segment(known.id), row.version);
    draft.put(key::segment(known.id), SegmentRecord { stores, ..known.record.clone() }.encode());
    match draft.commit(engine) {
        Ok(done) => {
            engine.wait_durable(done.cursor)?;
            Ok(true)
        }
        Err(Refused::Conflict) => Ok(false),
        Err(Refused::Error(error)) => Err(error),
    }
}
