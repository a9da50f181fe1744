//! Segments of a detached store that nothing refers to any more: their rows go, and so nobody names their copies.
//!
//! Why:        reclaim is the work of the store that made a segment, and that one never comes back.
//! Invariants: P1 the row goes only while no row refers to the segment, in a commit that asserts that its store is detached. References are
//!                copied from others only, so once there is none, and nobody reads rows of before, none can appear.
//! Not here:   how long it has been so, and the files (margay-cluster).

use std::ops::ControlFlow;

use margay_meta::{Cursor, Engine};
use margay_rows::key::{self, Live};
use margay_rows::record::{BackRow, SessionRecord};
use margay_segment::{Run, SegmentId};

use super::copy_rows::KnownSegment;
use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

/// Rows that are read at once.
const ROWS_READ: usize = 1000;

/// Whether any row refers to a run of the segment.
pub fn is_named(engine: &dyn Engine, id: SegmentId) -> Result<bool, Error> {
    let (start, end) = key::backs_of_segment(id);
    let mut is_named = false;
    engine.scan(&start, &end, &mut |_| {
        is_named = true;
        ControlFlow::Break(())
    })?;
    Ok(is_named)
}

/// The runs of the segment to which rows refer, ascending.
pub fn named_runs(engine: &dyn Engine, id: SegmentId) -> Result<Vec<Run>, Error> {
    let (mut start, end) = key::backs_of_segment(id);
    let mut runs: Vec<Run> = Vec::new();
    loop {
        let (mut found, mut last) = (Vec::new(), None);
        engine.scan(&start, &end, &mut |row| {
            let run = key::parse_back(row.key)
                .and_then(|(segment, offset, _)| Ok(BackRow::decode(row.value)?.run(segment, offset)));
            found.push(run);
            last = Some(row.key.to_vec());
            if found.len() < ROWS_READ { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let is_last = found.len() < ROWS_READ;
        for run in found {
            let run = run?;
            // A run has as many back rows as owners.
            if runs.last().is_none_or(|last| last.offset != run.offset) {
                runs.push(run);
            }
        }
        let Some(mut next) = last.filter(|_| !is_last) else { return Ok(runs) };
        next.push(0);
        start = next;
    }
}

/// No process reads what only rows before this commit refer to.
pub fn oldest_read(engine: &dyn Engine) -> Result<Cursor, Error> {
    let (start, end) = key::sessions();
    let (mut oldest, mut damaged) = (u64::MAX, None);
    engine.scan(&start, &end, &mut |row| {
        match SessionRecord::decode(row.value) {
            Ok(session) => oldest = oldest.min(session.oldest),
            Err(error) => damaged = Some(error),
        }
        ControlFlow::Continue(())
    })?;
    match damaged {
        Some(error) => Err(error.into()),
        None => Ok(Cursor(oldest)),
    }
}

/// Removes the row of a segment whose store was detached when it was read (P1); false if anything has changed since, or refers to it.
pub fn forget_segment(engine: &dyn Engine, known: &KnownSegment) -> Result<bool, Error> {
    if is_named(engine, known.id)? {
        return Ok(false);
    }
    let mut draft = Draft::default();
    draft.assert_unchanged(key::copies(), known.copies);
    draft.assert_version(key::segment(known.id), known.version);
    draft.delete(key::segment(known.id));
    for side in [Live::Gained, Live::Lost, Live::Shared] {
        draft.delete(key::live(known.id, side));
    }
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
    use margay_rows::Ino;
    use margay_rows::record::{SegmentRecord, SegmentState};
    use margay_segment::{Kind, StoreNumber};

    use super::*;
    use crate::stores::{change_copies, visit_segments_made_by};

    const GONE: StoreNumber = StoreNumber(3);

    fn put(engine: &dyn Engine, row: Vec<u8>, value: Vec<u8>) {
        let mut draft = Draft::default();
        draft.put(row, value);
        draft.commit(engine).unwrap();
    }

    fn known(engine: &dyn Engine) -> Option<KnownSegment> {
        let mut found = None;
        let mut visit = |known| {
            found = Some(known);
            Ok(ControlFlow::Continue(()))
        };
        visit_segments_made_by(engine, GONE, &mut visit).unwrap();
        found
    }

    #[test]
    fn a_segment_is_forgotten_only_if_nothing_refers_to_it_and_its_store_stays_detached() {
        let engine = Memory::default();
        let detach = || change_copies(&engine, &|copies| copies.detached = vec![GONE]).unwrap();
        detach();
        let id = SegmentId(GONE.ids().0.0 + 5);
        let stores = vec![StoreNumber(1), GONE];
        let record = SegmentRecord { state: SegmentState::Sealed { len: 9 }, kind: Kind::Pack, writer: 1, stores };
        put(&engine, key::segment(id), record.encode());
        let back = key::back(id, 64, Ino(9));
        put(&engine, back.clone(), vec![1]);
        assert!(is_named(&engine, id).unwrap());
        assert!(!forget_segment(&engine, &known(&engine).unwrap()).unwrap(), "a row refers to it");
        let mut draft = Draft::default();
        draft.delete(back);
        draft.commit(&engine).unwrap();
        assert!(!is_named(&engine, id).unwrap());
        let before = known(&engine).unwrap();
        change_copies(&engine, &|copies| copies.detached.clear()).unwrap();
        assert!(!forget_segment(&engine, &before).unwrap(), "its store has come back");
        detach();
        let before = known(&engine).unwrap();
        put(&engine, key::segment(id), SegmentRecord { stores: vec![StoreNumber(1)], ..record }.encode());
        assert!(!forget_segment(&engine, &before).unwrap(), "its row has changed");
        assert!(forget_segment(&engine, &known(&engine).unwrap()).unwrap());
        assert_eq!(known(&engine), None);
    }

    #[test]
    fn the_oldest_reader_of_all_sessions_counts() {
        let engine = Memory::default();
        assert_eq!(oldest_read(&engine).unwrap(), Cursor(u64::MAX));
        for (number, oldest) in [(1, 90), (2, 70), (3, 80)] {
            let session = SessionRecord { oldest, ..SessionRecord::default() };
            put(&engine, key::session(Ino(number)), session.encode());
        }
        assert_eq!(oldest_read(&engine).unwrap(), Cursor(70));
    }
}
