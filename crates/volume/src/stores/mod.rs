//! The stores of a volume: the own one, and those of other processes that share its rows.
//!
//! Why:        a process reads what any other has stored; it writes to its own store, and removes from that only.
//! Invariants: T1 a copy in the own store is read first. Else an id names the store that created the segment, which is asked; if it
//!                does not have the segment, or did not answer a moment ago, the segment's row lists the stores that do.
//!             T2 all writes, listings and removals are of the own store.
//!             T3 a pin of a segment in another store is an entry in `readers`, which that store waits for (reclaim).
//! Not here:   rows of segments (segment_rows), when bytes are removed (reclaim).

mod segment_rows;

pub(crate) use self::segment_rows::{DraftedRows, Rows, SegmentRows};

mod attach;
mod copies;
mod copy_rows;
mod orphaned;
mod place;
mod pool_rows;
mod processes;
mod readers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use margay_env::Env;
use margay_meta::Engine;
use margay_rows::key;
use margay_rows::record::{SegmentRecord, SegmentState, StoreRecord};
use margay_segment::{
    Extent, Holes, InQuarantine, QuarantineHold, Quarantined, Run, RunLength, RunWriter, SegmentCopy, SegmentError,
    SegmentId, SegmentInfo, SegmentPin, Segments, StoreName, StoreNumber, StoreSpace, SyncFuture, Walk,
};

pub(crate) use self::attach::NotAttached;
use self::copies::CopiedRun;
pub use self::copies::Copies;
pub use self::copy_rows::{
    KnownSegment, KnownStore, change_copies, is_referenced, known_stores, read_copies, read_segment, rename_stores,
    visit_segments_made_by,
};
pub use self::orphaned::{forget_segment, is_named, named_runs, oldest_read};
pub use self::place::{StorePlace, store_identity, store_place};
pub use self::pool_rows::add_pool;
pub(crate) use self::processes::Alone;
pub use self::processes::{Absences, Evict, Peers, Processes};
pub(crate) use self::readers::Readers;
use crate::api::Error;
use crate::draft::Draft;

/// The stores of other processes, and the copies of own segments there.
pub(crate) type Others = (Option<Arc<dyn Peers>>, Option<Arc<dyn Copies>>);

/// The own store, and access to the others.
#[derive(Debug)]
pub(crate) struct Stores {
    own: Arc<dyn Segments>,
    pub(crate) number: StoreNumber,
    engine: Arc<dyn Engine>,
    peers: Option<Arc<dyn Peers>>,
    copies: Option<Arc<dyn Copies>>,
    pub(crate) processes: Arc<dyn Processes>,
    pub(crate) readers: Arc<Readers>,
}

impl Stores {
    /// Gives the own store its number in the volume.
    pub(crate) fn open(
        env: &Env,
        engine: &Arc<dyn Engine>,
        own: Arc<dyn Segments>,
        (peers, copies): Others,
        processes: Arc<dyn Processes>,
    ) -> Result<Stores, NotAttached> {
        let number = attach::attach(env, &**engine, &*own, &*processes)?;
        let readers = Arc::new(Readers::begin(engine.last_cursor()));
        Ok(Stores { own, number, engine: Arc::clone(engine), peers, copies, processes, readers })
    }

    /// The implementation that the volume uses: the own store itself if there are no others.
    pub(crate) fn segments(self: &Arc<Stores>) -> Arc<dyn Segments> {
        if self.has_others() { Arc::<Stores>::clone(self) } else { Arc::clone(&self.own) }
    }

    /// Whether this process's own store created the segment. A volume without other stores may have been loaded from a dump of
    /// several: its one store has what these had created.
    pub(crate) fn is_own(&self, id: SegmentId) -> bool {
        id.made_by() == self.number || self.is_alone()
    }

    /// Whether there are no other stores, and never are while this process runs.
    pub(crate) fn is_alone(&self) -> bool {
        !self.has_others() && !self.engine.is_shared()
    }

    pub(crate) fn own(&self) -> &dyn Segments {
        &*self.own
    }

    /// Names a new session of this process in the own store's row, in the draft that opens it. Refused if another
    /// process has attached the folder since, or the store was detached: others may have taken its segments over.
    pub(crate) fn draft_session(&self, draft: &mut Draft, session: u64) -> Result<(), Error> {
        let copies = self.engine.get(&key::copies())?.value;
        if attach::is_detached(copies.as_ref(), self.number)? {
            tracing::error!(store = self.number.0, "this store was detached from the volume; stop this process");
            return Err(Error::Fenced);
        }
        draft.assert_unchanged(key::copies(), copies.map(|row| row.version));
        let Some(row) = self.engine.get(&key::store(self.number))?.value else {
            return Err(Error::Corrupt(format!("store {} has no row", self.number.0)));
        };
        let record = StoreRecord::decode(&row.value)?;
        let name = self.own.name();
        if (record.identity, record.generation) != (name.identity, name.generation) {
            tracing::error!(store = self.number.0, "another process has the segment folder open now; stop this one");
            return Err(Error::Fenced);
        }
        // Another volume of this process may have the same folder open.
        if record.session == 0 || !self.processes.is_live(record.session)? {
            draft.assert_version(key::store(self.number), row.version);
            draft.put(key::store(self.number), StoreRecord { session, ..record }.encode());
        }
        Ok(())
    }

    /// Whether other processes have stores.
    pub(crate) fn has_others(&self) -> bool {
        self.peers.is_some()
    }

    /// The store with this number; `None` if it cannot be reached.
    pub(crate) fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>> {
        if number == self.number {
            return Some(Arc::clone(&self.own));
        }
        self.peers.as_ref()?.store(number)
    }

    /// Asks the store that created a segment, then the stores in its row; one that is doubted comes last.
    fn ask<T>(
        &self,
        id: SegmentId,
        question: impl Fn(&dyn Segments) -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        let is_doubted = |number: &StoreNumber| self.peers.as_ref().is_some_and(|peers| peers.is_doubted(*number));
        let (first, mut last) = (id.made_by(), None);
        if !is_doubted(&first) {
            let answer = self.ask_one(id, first, &question);
            if !answer.as_ref().is_err_and(may_be_elsewhere) {
                return answer;
            }
            last = Some(answer);
        }
        let mut others = self.holders(id)?;
        if last.is_some() {
            others.retain(|number| *number != first);
        } else if !others.contains(&first) {
            others.push(first);
        }
        others.sort_by_cached_key(is_doubted);
        for number in others {
            match (self.ask_one(id, number, &question), &last) {
                (Err(SegmentError::Missing(_)), Some(_)) => {}
                (Err(error), _) if may_be_elsewhere(&error) => {
                    // An unreachable store may have it, and a damaged copy is not all that there is.
                    if !matches!(last, Some(Err(SegmentError::Unreachable(..)))) {
                        last = Some(Err(error));
                    }
                }
                (answer, last) => {
                    if let (Some(Err(SegmentError::Corrupt { .. } | SegmentError::Io(_))), Ok(_)) = (last, &answer) {
                        tracing::error!(segment = ?id, store = first.0, from = number.0, "damaged, and read from a copy");
                    }
                    return answer;
                }
            }
        }
        last.unwrap_or(Err(SegmentError::Missing(id)))
    }

    /// Reads a run from the own copy of a segment of another store; `None`: there is none, or it has not all of it yet. What is read
    /// is checked, so bytes that are missing or damaged here are asked for elsewhere.
    fn read_copy<T>(&self, run: &Run, read: impl FnOnce(&dyn Segments) -> Result<T, SegmentError>) -> Option<T> {
        if self.copies.is_none() || self.is_own(run.segment) {
            return None;
        }
        let has = self.own.state(run.segment).ok()?.len;
        if run.offset.checked_add(run.len).is_none_or(|end| end > has) {
            return None;
        }
        match read(&*self.own) {
            Ok(read) => Some(read),
            Err(error) => {
                tracing::warn!(segment = ?run.segment, %error, "the copy here is not read; another store is asked");
                None
            }
        }
    }

    /// Reads from the maker of a segment, and from another store when the maker is silent for a moment. What fails is asked for again.
    fn read_elsewhere(&self, extent: &Extent, skip: u64, len: u64) -> Option<Result<Bytes, SegmentError>> {
        let (id, peers) = (extent.run.segment, self.peers.as_ref()?);
        let maker = id.made_by();
        if maker == self.number || peers.is_doubted(maker) {
            return None;
        }
        let spare = || {
            let holders = self.holders(id).unwrap_or_default();
            let is_other = |store: &StoreNumber| *store != maker && *store != self.number && !peers.is_doubted(*store);
            holders.into_iter().find(is_other)
        };
        peers.read_first(maker, &spare, (extent, skip, len))
    }

    fn ask_one<T>(
        &self,
        id: SegmentId,
        number: StoreNumber,
        question: &impl Fn(&dyn Segments) -> Result<T, SegmentError>,
    ) -> Result<T, SegmentError> {
        match self.store(number) {
            Some(store) => question(&*store),
            None => Err(SegmentError::Unreachable(id, number)),
        }
    }

    /// The stores that have a segment of the own one, ascending; `None`: nothing is copied.
    fn copied_to(&self, id: SegmentId) -> Option<Vec<StoreNumber>> {
        self.copies.as_ref().map(|copies| copies.stores(id))
    }

    fn stores_of(&self, id: SegmentId) -> Vec<StoreNumber> {
        self.copied_to(id).unwrap_or_else(|| vec![self.number])
    }

    /// What the row of an own segment said at the start.
    fn knew(&self, id: SegmentId, record: &SegmentRecord) {
        let is_complete = matches!(record.state, SegmentState::Sealed { .. });
        self.copies.iter().for_each(|copies| copies.knows(id, &record.stores, is_complete));
    }

    fn has_all_copies(&self, id: SegmentId) -> bool {
        self.copies.as_ref().is_none_or(|copies| copies.is_complete(id))
    }

    fn is_partial(&self, id: SegmentId) -> bool {
        self.copies.as_ref().is_some_and(|copies| copies.is_partial(id))
    }

    /// Whether a file has as many bytes as the row of its segment says.
    fn is_whole(&self, id: SegmentId, copy: &SegmentCopy) -> bool {
        let row = self.engine.get(&key::segment(id)).ok().and_then(|row| row.value);
        let record = row.and_then(|row| SegmentRecord::decode(&row.value).ok());
        let len = match record.map(|record| record.state) {
            Some(SegmentState::Sealed { len }) => len,
            _ => return false,
        };
        copy.file.len().is_ok_and(|has| has >= len)
    }

    /// Whether the file of an own segment is lost, and its row names stores that have it. One in quarantine is not lost: that something
    /// refers to it is told.
    fn is_only_elsewhere(&self, id: SegmentId) -> bool {
        let is_elsewhere = |holders: Vec<StoreNumber>| holders.iter().any(|store| *store != self.number);
        self.copies.is_some()
            && self.own.quarantined().iter().all(|held| held.id != id)
            && self.holders(id).is_ok_and(is_elsewhere)
    }

    /// The stores of a segment, from its row.
    fn holders(&self, id: SegmentId) -> Result<Vec<StoreNumber>, SegmentError> {
        // Without rows nobody knows who else has it.
        let unknown = |_| SegmentError::Unreachable(id, id.made_by());
        let row = self.engine.get(&key::segment(id)).map_err(unknown)?.value;
        let Some(row) = row else { return Ok(Vec::new()) };
        let damaged = |error| SegmentError::Io(std::io::Error::other(error));
        let record = SegmentRecord::decode(&row.value).map_err(damaged)?;
        Ok(if record.state == SegmentState::Removed { Vec::new() } else { record.stores })
    }
}

/// Whether another store may have what one has not, or has damaged.
fn may_be_elsewhere(error: &SegmentError) -> bool {
    use SegmentError::{Corrupt, Io, Missing, Unreachable};
    matches!(error, Missing(_) | Unreachable(..) | Corrupt { .. } | Io(_))
}

impl Segments for Stores {
    fn name(&self) -> StoreName {
        self.own.name()
    }

    fn is_attached(&self) -> bool {
        self.own.is_attached()
    }

    fn attach(&self, name: StoreName) -> Result<(), SegmentError> {
        self.own.attach(name)
    }

    fn skip_ids(&self, last: SegmentId) -> Result<(), SegmentError> {
        self.own.skip_ids(last)
    }

    fn begin(&self, length: RunLength, owner: &[u8]) -> Result<Box<dyn RunWriter>, SegmentError> {
        let run = self.own.begin(length, owner)?;
        Ok(match &self.copies {
            Some(copies) => Box::new(CopiedRun::begin(run, Arc::clone(copies))),
            None => run,
        })
    }

    fn start_sync(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.copies.iter().for_each(|copies| copies.start(id));
        self.own.start_sync(id)
    }

    fn sync(&self, id: SegmentId) -> SyncFuture<'_> {
        match &self.copies {
            Some(copies) => Box::pin(copies::sync(&*self.own, &**copies, id)),
            None => self.own.sync(id),
        }
    }

    fn sync_blocking(&self, id: SegmentId) -> Result<(), SegmentError> {
        match &self.copies {
            Some(copies) => copies::sync_blocking(&*self.own, &**copies, id),
            None => self.own.sync_blocking(id),
        }
    }

    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        if let Some(bytes) = self.read_copy(&extent.run, |own| own.read(extent, skip, len)) {
            return Ok(bytes);
        }
        if let Some(Ok(bytes)) = self.read_elsewhere(extent, skip, len) {
            return Ok(bytes);
        }
        self.ask(extent.run.segment, |store| store.read(extent, skip, len))
    }

    fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError> {
        if let Some(cached) = self.read_copy(&extent.run, |own| own.read_cached(extent, skip, len)) {
            return Ok(cached);
        }
        // If the bytes are not here, the blocking read asks other stores.
        match self.store(extent.run.segment.made_by()).map(|store| store.read_cached(extent, skip, len)) {
            None => Ok(None),
            Some(Err(error)) if may_be_elsewhere(&error) => Ok(None),
            Some(read) => read,
        }
    }

    fn will_read(&self, extent: &Extent) -> Result<(), SegmentError> {
        if self.is_own(extent.run.segment) {
            return self.own.will_read(extent);
        }
        self.read_copy(&extent.run, |own| own.will_read(extent));
        Ok(())
    }

    fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        self.ask(extent.run.segment, |store| store.verify(extent))
    }

    fn pin(&self, id: SegmentId, quarantined: InQuarantine) -> Result<SegmentPin, SegmentError> {
        if self.is_own(id) {
            let pin = self.own.pin(id, quarantined);
            if !matches!(pin, Err(SegmentError::Missing(_))) || !self.is_only_elsewhere(id) {
                return pin;
            }
        }
        Ok(SegmentPin::elsewhere(id, self.readers.hold()))
    }

    /// A pin counts from the newest generation, so for callers that read their rows before it a new generation is like
    /// a removal.
    fn removals(&self) -> u64 {
        self.own.removals().wrapping_add(self.readers.generations())
    }

    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        self.ask(id, |store| store.state(id))
    }

    fn list(&self) -> Vec<SegmentInfo> {
        self.own.list()
    }

    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        if self.has_others()
            && !self.is_own(id)
            && let Ok(copy) = self.own.source(id)
            && self.is_whole(id, &copy)
        {
            return Ok(copy);
        }
        self.ask(id, |store| store.source(id))
    }

    fn seal(&self, id: SegmentId) -> Result<(), SegmentError> {
        self.own.seal(id)
    }

    fn space(&self) -> Result<StoreSpace, SegmentError> {
        self.own.space()
    }

    fn check_space(&self, bytes: u64) -> Result<(), SegmentError> {
        self.own.check_space(bytes)
    }

    fn refused(&self) -> u64 {
        self.own.refused()
    }

    fn allocated_bytes(&self, id: SegmentId) -> Result<u64, SegmentError> {
        self.own.allocated_bytes(id)
    }

    fn set_aside(&self, id: SegmentId) -> Result<bool, SegmentError> {
        self.own.set_aside(id)
    }

    fn quarantined(&self) -> Vec<Quarantined> {
        self.own.quarantined()
    }

    fn take_back(&self, id: SegmentId) -> Result<bool, SegmentError> {
        self.own.take_back(id)
    }

    fn taken_back(&self) -> u64 {
        self.own.taken_back()
    }

    fn hold_quarantine(&self) -> QuarantineHold {
        self.own.hold_quarantine()
    }

    fn begin_walk(&self) -> Walk {
        self.own.begin_walk()
    }

    fn release(&self, id: SegmentId, walk: &Walk) -> Result<Quarantined, SegmentError> {
        let released = self.own.release(id, walk)?;
        self.copies.iter().for_each(|copies| copies.removed(id));
        Ok(released)
    }

    fn punch(&self, id: SegmentId, is_live: &dyn Fn(&Run) -> bool, walk: &Walk) -> Result<Holes, SegmentError> {
        let Some(copies) = &self.copies else { return self.own.punch(id, is_live, walk) };
        let dead = std::cell::RefCell::new(Vec::new());
        let holes = self.own.punch(id, &|run| copies::is_live_or_noted(run, is_live, &dead), walk)?;
        // Else it is not known which of them were punched; they are, at a later time.
        if holes.complete {
            copies.punched(id, dead.into_inner());
        }
        Ok(holes)
    }
}
