//! A store's number in its volume: found by the store's identity, or allocated from the rows.
//!
//! Why:        segment ids begin with this number, so two folders must never have the same one. A folder that replaces
//!             a lost one, or is a copy, gets a new number, because the original may have continued.
//! Invariants: A1 a number is given to one identity only: the commit asserts that the row was absent.
//!             A2 the folder records its new generation before the row does. So the generation of the right folder
//!                equals that of the row or is one higher; that of a copy from before the last start is lower. If it is
//!                higher by more, the rows are older than the folder: they were restored, and the folder stays what it is.
//!             A3 a store that another live session uses is refused.
//!             A4 a store that was detached is refused: the commit asserts that the row which says so is the one that was read.
//! Not here:   the folder's file (margay-segment), sessions.

use std::ops::ControlFlow;

use margay_env::Env;
use margay_meta::{Engine, Row};
use margay_rows::record::{CopiesRecord, StoreRecord};
use margay_rows::{Ino, key};
use margay_segment::{Segments, StoreIdentity, StoreName, StoreNumber};

use super::processes::Processes;
use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

/// Attempts to allocate a number while other processes allocate theirs.
const TRIES_MAX: usize = 1000;

/// Why a store cannot get a number.
#[derive(Debug)]
pub(crate) enum NotAttached {
    InUse(StoreNumber),
    /// Others may have taken its segments over.
    Detached(StoreNumber),
    Failed(Error),
}

impl<E: Into<Error>> From<E> for NotAttached {
    fn from(error: E) -> NotAttached {
        NotAttached::Failed(error.into())
    }
}

pub(super) fn attach(
    env: &Env,
    engine: &dyn Engine,
    store: &dyn Segments,
    processes: &dyn Processes,
) -> Result<StoreNumber, NotAttached> {
    for _ in 0..TRIES_MAX {
        let name = store.name();
        let copies = engine.get(&key::copies())?.value;
        let row = engine.get(&key::store(name.number))?.value;
        let record = row.as_ref().map(|row| StoreRecord::decode(&row.value)).transpose()?;
        let is_same = |record: &StoreRecord| {
            record.identity == name.identity && (store.is_attached() || name.generation >= record.generation)
        };
        match record {
            // Opened again in this process.
            Some(record) if is_same(&record) && store.is_attached() => return Ok(name.number),
            Some(record) if is_same(&record) => {
                if record.session != processes.session() && processes.is_live(record.session)? {
                    return Err(NotAttached::InUse(name.number));
                }
                if name.generation > record.generation.saturating_add(1) {
                    tracing::warn!(
                        number = name.number.0,
                        folder = name.generation,
                        rows = record.generation,
                        "the rows are older than the segment folder: they were restored from a backup"
                    );
                }
                if is_detached(copies.as_ref(), name.number)? {
                    return Err(NotAttached::Detached(name.number));
                }
                let generation = record.generation.max(name.generation.saturating_sub(1)).saturating_add(1);
                let next = StoreName { generation, ..name };
                if take(engine, store, processes, next, (row.as_ref(), copies.as_ref()))? {
                    return Ok(name.number);
                }
            }
            None => {
                let next = StoreName { generation: name.generation.max(1), ..name };
                if take(engine, store, processes, next, (None, copies.as_ref()))? {
                    return Ok(name.number);
                }
            }
            Some(_) => {
                let number = free_number(engine)?;
                if name.generation > 0 {
                    tracing::warn!(
                        number = number.0,
                        was = name.number.0,
                        "the segment folder is a copy, or an old state, of another store of the volume: it gets a new number"
                    );
                }
                let mut identity = [0; 16];
                env.random.fill(&mut identity);
                store.attach(StoreName { identity: StoreIdentity(identity), number, generation: 0 })?;
            }
        }
    }
    Err(Error::Busy.into())
}

/// Whether an operator has detached a store. `copies`: the row that says so.
pub(super) fn is_detached(copies: Option<&Row>, store: StoreNumber) -> Result<bool, Error> {
    let copies = copies.map(|row| CopiesRecord::decode(&row.value)).transpose()?;
    Ok(copies.is_some_and(|copies| copies.detached.contains(&store)))
}

/// False if another process was faster.
fn take(
    engine: &dyn Engine,
    store: &dyn Segments,
    processes: &dyn Processes,
    next: StoreName,
    (row, copies): (Option<&Row>, Option<&Row>),
) -> Result<bool, NotAttached> {
    store.attach(next)?;
    let mut draft = Draft::default();
    draft.assert_unchanged(key::store(next.number), row.map(|row| row.version));
    // A4.
    draft.assert_unchanged(key::copies(), copies.map(|row| row.version));
    let StoreName { identity, number, generation } = next;
    let session = processes.session();
    if engine.is_shared() && session != 0 {
        draft.assert_exists(key::session(Ino(session)));
    }
    draft.put(key::store(number), StoreRecord { identity, generation, session }.encode());
    match draft.commit(engine) {
        Ok(done) => {
            engine.wait_durable(done.cursor)?;
            Ok(true)
        }
        Err(Refused::Conflict) => Ok(false),
        Err(Refused::Error(error)) => Err(error.into()),
    }
}

/// A number above all allocated ones, and above those of stores whose segments were loaded into another store.
pub(super) fn free_number(engine: &dyn Engine) -> Result<StoreNumber, Error> {
    let (start, end) = key::all_stores();
    let mut last = None;
    engine.scan(&start, &end, &mut |row| {
        last = Some(key::parse_store(row.key));
        ControlFlow::Continue(())
    })?;
    let mut last = last.transpose()?.map_or(0, |last| last.0);
    loop {
        let next = last.checked_add(1).ok_or_else(|| Error::Corrupt("no numbers of stores are left".to_owned()))?;
        // One seek for each store, and not all segments: there may be very many.
        let ((start, _), (_, end)) = (key::segments_of(StoreNumber(next)), key::all_segments());
        let mut above = None;
        engine.scan(&start, &end, &mut |row| {
            above = Some(key::parse_segment(row.key));
            ControlFlow::Break(())
        })?;
        let Some(above) = above.transpose()? else { return Ok(StoreNumber(next)) };
        assert!(above.made_by().0 > last, "segments are in the order of the stores that made them");
        last = above.made_by().0;
    }
}
