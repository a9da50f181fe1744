//! Rows of this process's own segments: what others find them by, and what reclaim may do with them.
//!
//! Why:        a segment has no commit of its own: its row goes into the first batch that names one of its runs, and is kept
//!             up to date by upkeep, many in one batch.
//! Invariants: E1 a row says no more than what is durable of its file: a length only when the file is sealed.
//!             E2 `Removed` is durable before the file is unlinked, unless the disk has no room for it; ids are not used again,
//!                so the row goes after the file.
//!             E3 what upkeep has not recorded yet (a segment of a format without rows, a log of the embedded engine) is open
//!                or sealed as its file says, and held by the store that made it. Reclaim waits until it is recorded.
//! Locking:    leaves; nothing is read from the engine under them.
//! Not here:   which segments are dead (reclaim), reading from other stores (stores).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use margay_meta::{Cursor, Engine, Write};
use margay_rows::key;
use margay_rows::record::{SegmentRecord, SegmentState};
use margay_segment::{InQuarantine, Kind, SegmentId, SegmentInfo};
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Draft;
use crate::stores::Stores;

/// Rows of segments.
pub(crate) type Rows = Vec<(SegmentId, SegmentRecord)>;

/// What the rows of own segments say, as far as this process wrote or read them.
#[derive(Debug)]
pub(crate) struct SegmentRows {
    stores: Arc<Stores>,
    known: Mutex<HashMap<SegmentId, SegmentRecord>>,
    /// Segments that nothing names since this commit or an earlier one, and that others may still read.
    dead_since: Mutex<HashMap<SegmentId, Cursor>>,
}

/// Rows in a draft, which are known once it is committed.
#[derive(Debug)]
pub(crate) struct DraftedRows {
    rows: Rows,
    into: Arc<SegmentRows>,
}

impl DraftedRows {
    pub(crate) fn committed(self) {
        self.into.written(self.rows);
    }
}

impl SegmentRows {
    /// Reads the rows of the own store's segments. One that does not decode counts as absent, and is written anew.
    pub(crate) fn read(engine: &dyn Engine, stores: &Arc<Stores>) -> Result<SegmentRows, Error> {
        let mut known = HashMap::new();
        let (start, end) = key::segments_of(stores.number);
        engine.scan(&start, &end, &mut |row| {
            if let (Ok(id), Ok(record)) = (key::parse_segment(row.key), SegmentRecord::decode(row.value)) {
                known.insert(id, record);
            }
            ControlFlow::Continue(())
        })?;
        let (stores, dead_since) = (Arc::clone(stores), Mutex::default());
        Ok(SegmentRows { stores, known: Mutex::new(known), dead_since })
    }

    /// A commit has written these.
    pub(crate) fn written(&self, rows: Rows) {
        self.known.lock().extend(rows);
    }

    /// Adds to a draft the rows of own segments that it is the first to name.
    pub(crate) fn add_to(self: &Arc<SegmentRows>, draft: &mut Draft) -> Option<DraftedRows> {
        let mut rows = Vec::new();
        for write in draft.writes() {
            let Write::Add { key, .. } = write else { continue };
            let Some(id) = key::gained_segment(key).filter(|id| id.0 != 0 && self.stores.is_own(*id)) else { continue };
            if self.known.lock().contains_key(&id) {
                continue;
            }
            // Whoever names a run has pinned it; upkeep records what is not there.
            let pin = self.stores.own().pin(id, InQuarantine::Leave);
            if let Ok(info) = pin.and_then(|_| self.stores.own().state(id)) {
                rows.push((id, self.first_row(&info, SegmentState::Open)));
            }
        }
        for (id, record) in &rows {
            draft.put(key::segment(*id), record.encode());
        }
        (!rows.is_empty()).then(|| DraftedRows { rows, into: Arc::clone(self) })
    }

    fn first_row(&self, info: &SegmentInfo, state: SegmentState) -> SegmentRecord {
        let writer = self.stores.processes.session();
        SegmentRecord { state, kind: info.kind, writer, stores: vec![self.stores.number] }
    }

    /// Rows that differ from what the files are now, and logs that have rows and are gone.
    pub(crate) fn stale(&self) -> (Rows, Vec<SegmentId>) {
        let segments = self.stores.own().list();
        let held = self.stores.own().quarantined();
        let mut known = self.known.lock();
        let there: HashSet<SegmentId> =
            segments.iter().map(|info| info.id).chain(held.iter().map(|held| held.id)).collect();
        // The engine removes a log without payload by itself.
        let gone = known.iter().filter(|(id, row)| row.kind == Kind::Log && !there.contains(*id));
        let gone = gone.map(|(id, _)| *id).collect();
        known.retain(|id, row| there.contains(id) || row.kind == Kind::Log);
        self.dead_since.lock().retain(|id, _| there.contains(id));
        let own = segments.iter().filter(|info| self.stores.is_own(info.id));
        let stale = own.filter_map(|info| {
            let row = known.get(&info.id);
            let sealed = SegmentState::Sealed { len: info.len };
            let state = match row.map(|row| row.state) {
                Some(SegmentState::Sealed { .. }) => return None,
                Some(SegmentState::Open) if info.open => return None,
                // A log that is written to may go as soon as it is folded.
                None if info.open && info.kind == Kind::Log => return None,
                None if info.open => SegmentState::Open,
                // A file whose removal did not last is there again; that nothing names it is to be proven again.
                None | Some(SegmentState::Open | SegmentState::Removed) => sealed,
            };
            let row = row.map_or_else(|| self.first_row(info, state), |row| SegmentRecord { state, ..row.clone() });
            Some((info.id, row))
        });
        (stale.collect(), gone)
    }

    /// A commit has removed the rows of these.
    pub(crate) fn gone(&self, segments: &[SegmentId]) {
        let mut known = self.known.lock();
        segments.iter().for_each(|id| drop(known.remove(id)));
    }

    /// Rows that say that nothing names these any more, for good.
    pub(crate) fn removed(&self, segments: &[SegmentId]) -> Rows {
        let known = self.known.lock();
        let removed = segments
            .iter()
            .filter_map(|id| Some((*id, SegmentRecord { state: SegmentState::Removed, ..known.get(id)?.clone() })));
        removed.collect()
    }

    /// Whether others may still read a segment that nothing names any more, as was seen at commit `now`. `oldest`: from
    /// which commit on they read.
    pub(crate) fn is_read(&self, id: SegmentId, now: Cursor, oldest: Cursor) -> bool {
        *self.dead_since.lock().entry(id).or_insert(now) > oldest
    }

    /// Something names the segment.
    pub(crate) fn is_named(&self, id: SegmentId) {
        self.dead_since.lock().remove(&id);
    }

    /// Reclaim may take this segment apart: this store holds it, by its row, and nobody else writes to it.
    pub(crate) fn may_reclaim(&self, id: SegmentId) -> bool {
        let known = self.known.lock();
        let Some(row) = known.get(&id).filter(|row| row.stores.contains(&self.stores.number)) else { return false };
        let writer = row.writer;
        drop(known);
        let processes = &self.stores.processes;
        // One of which that cannot be learned may be live.
        writer == 0 || writer == processes.session() || matches!(processes.is_live(writer), Ok(false))
    }
}
