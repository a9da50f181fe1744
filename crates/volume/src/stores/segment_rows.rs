//! Rows of this process's own segments, by which others find them and reclaim decides.
//!
//! Why:        a segment has no commit of its own: its row joins the first batch that refers to one of its runs.
//! Invariants: E1 a row states only what is durable in its file: a length only once the file is sealed.
//!             E2 `Removed` is durable before the file is unlinked, unless the disk is too full for it; ids are not
//!                reused, so the row is removed after the file.
//!             E3 a segment without a row (of an older format, a log of the embedded engine) has the state of its file,
//!                and its store is the one that created it. Reclaim waits until it has a row.
//! Locking:    leaf locks, `unsure` under `known`; the engine is not called under them, the store's lists are.
//! Not here:   which segments are dead (reclaim), reading from other stores (stores).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use margay_meta::{Cursor, Engine, Write};
use margay_rows::key;
use margay_rows::record::{SegmentRecord, SegmentState};
use margay_segment::{InQuarantine, SegmentId, SegmentInfo};
use parking_lot::Mutex;

use crate::api::Error;
use crate::draft::Draft;
use crate::stores::Stores;

/// Rows of segments.
pub(crate) type Rows = Vec<(SegmentId, SegmentRecord)>;

/// Cache of the own segments' rows, as far as this process wrote or read them.
#[derive(Debug)]
pub(crate) struct SegmentRows {
    stores: Arc<Stores>,
    known: Mutex<HashMap<SegmentId, SegmentRecord>>,
    /// Segments whose stores have changed: two commits at once may have written their row in another order than they were noted
    /// here, so it is written again.
    unsure: Mutex<HashSet<SegmentId>>,
    /// Segments without references since this commit or an earlier one, which others may still read.
    dead_since: Mutex<HashMap<SegmentId, Cursor>>,
}

/// Rows in a draft; they enter the cache once it is committed.
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
    /// Reads the rows of the own segments. A row that does not decode counts as absent, and is written again.
    pub(crate) fn read(engine: &dyn Engine, stores: &Arc<Stores>) -> Result<SegmentRows, Error> {
        let mut known = HashMap::new();
        let (start, end) = if stores.is_alone() { key::all_segments() } else { key::segments_of(stores.number) };
        engine.scan(&start, &end, &mut |row| {
            if let (Ok(id), Ok(record)) = (key::parse_segment(row.key), SegmentRecord::decode(row.value)) {
                stores.knew(id, &record);
                known.insert(id, record);
            }
            ControlFlow::Continue(())
        })?;
        // The folder may have been set back to an earlier state, and show fewer ids than were given.
        if let Some(last) = known.keys().filter(|id| id.made_by() == stores.number).max() {
            stores.own().skip_ids(*last)?;
        }
        let (stores, dead_since, unsure) = (Arc::clone(stores), Mutex::default(), Mutex::default());
        Ok(SegmentRows { stores, known: Mutex::new(known), unsure, dead_since })
    }

    /// A commit wrote these rows.
    pub(crate) fn written(&self, rows: Rows) {
        let (mut known, mut unsure) = (self.known.lock(), self.unsure.lock());
        for (id, record) in rows {
            match known.get(&id).is_some_and(|before| before.stores != record.stores) {
                true => unsure.insert(id),
                false => unsure.remove(&id),
            };
            known.insert(id, record);
        }
    }

    /// Adds to a draft the rows of own segments that it is the first to refer to.
    pub(crate) fn add_to(self: &Arc<SegmentRows>, draft: &mut Draft) -> Option<DraftedRows> {
        let mut rows = Vec::new();
        for write in draft.writes() {
            let Write::Add { key, .. } = write else { continue };
            let Some(id) = key::gained_segment(key).filter(|id| id.0 != 0 && self.stores.is_own(*id)) else { continue };
            if let Some(record) = self.known.lock().get(&id) {
                // A commit names the stores that have its bytes by now.
                rows.extend(self.with_stores(id, record).map(|record| (id, record)));
                continue;
            }
            // The referring caller has pinned the segment; maintenance adds a missing row.
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
        SegmentRecord { state, kind: info.kind, writer, stores: self.stores.stores_of(info.id) }
    }

    /// The row with the stores that have the segment now; `None` if it names them, or says that the segment goes.
    fn with_stores(&self, id: SegmentId, record: &SegmentRecord) -> Option<SegmentRecord> {
        let stores = self.stores.copied_to(id)?;
        let differs = record.state != SegmentState::Removed && record.stores != stores;
        differs.then(|| SegmentRecord { stores, ..record.clone() })
    }

    /// Rows that differ from their files, and segments with a row but without a file: a log that the engine removed, or a
    /// file that was removed while the disk was too full for rows.
    pub(crate) fn stale(&self) -> (Rows, Vec<SegmentId>) {
        let known = self.known.lock();
        // After the lock, since a row is known only once its file exists.
        let segments = self.stores.own().list();
        let held = self.stores.own().quarantined();
        let there: HashSet<SegmentId> =
            segments.iter().map(|info| info.id).chain(held.iter().map(|held| held.id)).collect();
        // A segment that returns from quarantine may be missing from both lists.
        let is_gone = |id: &&SegmentId| !there.contains(*id) && self.stores.own().state(**id).is_err();
        let gone: Vec<SegmentId> = known.keys().filter(is_gone).copied().collect();
        self.dead_since.lock().retain(|id, _| there.contains(id));
        let own = segments.iter().filter(|info| self.stores.is_own(info.id));
        let stale = own.filter_map(|info| {
            let row = known.get(&info.id);
            let state = match row.map(|row| row.state) {
                // What it lacks may be nowhere, and a process that starts later has to know that.
                Some(SegmentState::Sealed { .. }) if self.stores.is_partial(info.id) => SegmentState::Open,
                Some(SegmentState::Sealed { .. }) => {
                    let again = || row.filter(|_| self.unsure.lock().contains(&info.id)).cloned();
                    return Some((info.id, self.with_stores(info.id, row?).or_else(again)?));
                }
                // Its file may not be durable yet (E1); the stores that have it may be others by now.
                Some(SegmentState::Open) if info.open => {
                    return Some((info.id, self.with_stores(info.id, row?)?));
                }
                // An active log may be removed as soon as it is folded.
                None if info.open => return None,
                // Its row may name other stores by now (O3 of `copies`).
                Some(SegmentState::Open) if !self.stores.has_all_copies(info.id) => {
                    return Some((info.id, self.with_stores(info.id, row?)?));
                }
                // A file whose removal was not durable exists again; that nothing refers to it must be proven again.
                None | Some(SegmentState::Open | SegmentState::Removed) => SegmentState::Sealed { len: info.len },
            };
            let row = row.map_or_else(
                || self.first_row(info, state),
                |row| SegmentRecord { state, stores: self.stores.stores_of(info.id), ..row.clone() },
            );
            Some((info.id, row))
        });
        (stale.collect(), gone)
    }

    /// A commit removed these rows.
    pub(crate) fn gone(&self, segments: &[SegmentId]) {
        let mut known = self.known.lock();
        segments.iter().for_each(|id| drop(known.remove(id)));
    }

    /// Rows that state that nothing refers to these segments any more.
    pub(crate) fn removed(&self, segments: &[SegmentId]) -> Rows {
        let known = self.known.lock();
        let removed = segments
            .iter()
            .filter_map(|id| Some((*id, SegmentRecord { state: SegmentState::Removed, ..known.get(id)?.clone() })));
        removed.collect()
    }

    /// Whether others may still read a segment without references, as of commit `now`. `oldest`: the oldest commit that
    /// they read.
    pub(crate) fn is_read(&self, id: SegmentId, now: Cursor, oldest: Cursor) -> bool {
        *self.dead_since.lock().entry(id).or_insert(now) > oldest
    }

    /// The segment has a reference.
    pub(crate) fn is_named(&self, id: SegmentId) {
        self.dead_since.lock().remove(&id);
    }

    /// Whether reclaim may take this segment apart: its row says that this store holds it, and nobody else writes to
    /// it.
    pub(crate) fn may_reclaim(&self, id: SegmentId) -> bool {
        let known = self.known.lock();
        let Some(row) = known.get(&id).filter(|row| row.stores.contains(&self.stores.number)) else { return false };
        let writer = row.writer;
        drop(known);
        let processes = &self.stores.processes;
        // A session of unknown state may be live.
        writer == 0 || writer == processes.session() || matches!(processes.is_live(writer), Ok(false))
    }
}
