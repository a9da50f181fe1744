//! The local folder as an implementation of the port `Segments`.
//!
//! Not here:   the folder itself (store).

use std::ops::ControlFlow;

use bytes::Bytes;

use crate::quarantine::{QuarantineHold, Quarantined, Walk};
use crate::segments::{Holes, InQuarantine, RunLength, RunWriter, Segments, StoreSpace, SyncFuture};
use crate::store::Store;
use crate::{Extent, Kind, Run, SegmentCopy, SegmentError, SegmentId, SegmentInfo, SegmentPin, StoreName};

impl Segments for Store {
    fn name(&self) -> StoreName {
        Store::name(self)
    }

    fn is_attached(&self) -> bool {
        Store::is_attached(self)
    }

    fn attach(&self, name: StoreName) -> Result<(), SegmentError> {
        Store::attach(self, name)
    }

    fn skip_ids(&self, last: SegmentId) -> Result<(), SegmentError> {
        Store::skip_ids(self, last)
    }

    fn begin(&self, length: RunLength, owner: &[u8]) -> Result<Box<dyn RunWriter>, SegmentError> {
        Ok(Box::new(self.begin_of(length, owner)?))
    }

    fn start_sync(&self, id: SegmentId) -> Result<(), SegmentError> {
        Store::start_sync(self, id)
    }

    fn sync(&self, id: SegmentId) -> SyncFuture<'_> {
        Box::pin(Store::sync(self, id))
    }

    fn sync_blocking(&self, id: SegmentId) -> Result<(), SegmentError> {
        Store::sync_blocking(self, id)
    }

    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        Store::read(self, extent, skip, len)
    }

    fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError> {
        Store::read_cached(self, extent, skip, len)
    }

    fn will_read(&self, extent: &Extent) -> Result<(), SegmentError> {
        Store::will_read(self, extent)
    }

    fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        Store::verify(self, extent)
    }

    fn pin(&self, id: SegmentId, quarantined: InQuarantine) -> Result<SegmentPin, SegmentError> {
        match quarantined {
            InQuarantine::TakeBack => Store::pin(self, id),
            InQuarantine::Leave => self.pin_listed(id),
        }
    }

    fn removals(&self) -> u64 {
        Store::removals(self)
    }

    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        Store::state(self, id)
    }

    fn list(&self) -> Vec<SegmentInfo> {
        self.segments()
    }

    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        Store::source(self, id)
    }

    fn seal(&self, id: SegmentId) -> Result<(), SegmentError> {
        Store::seal(self, id)
    }

    fn space(&self) -> Result<StoreSpace, SegmentError> {
        let space = Store::space(self)?;
        Ok(StoreSpace {
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            reserve_bytes: self.reserve_bytes(),
            available_bytes: self.available_bytes()?,
            quarantined_bytes: self.quarantined_bytes(),
        })
    }

    fn check_space(&self, bytes: u64) -> Result<(), SegmentError> {
        Store::check_space(self, bytes)
    }

    fn refused(&self) -> u64 {
        Store::refused(self)
    }

    fn allocated_bytes(&self, id: SegmentId) -> Result<u64, SegmentError> {
        Store::allocated_bytes(self, id)
    }

    fn set_aside(&self, id: SegmentId) -> Result<bool, SegmentError> {
        Store::set_aside(self, id)
    }

    fn quarantined(&self) -> Vec<Quarantined> {
        Store::quarantined(self)
    }

    fn take_back(&self, id: SegmentId) -> Result<bool, SegmentError> {
        Store::take_back(self, id)
    }

    fn taken_back(&self) -> u64 {
        Store::taken_back(self)
    }

    fn hold_quarantine(&self) -> QuarantineHold {
        Store::hold_quarantine(self)
    }

    fn begin_walk(&self) -> Walk {
        Store::begin_walk(self)
    }

    fn release(&self, id: SegmentId, walk: &Walk) -> Result<Quarantined, SegmentError> {
        Store::release(self, id, walk)
    }

    fn punch(&self, id: SegmentId, is_live: &dyn Fn(&Run) -> bool, walk: &Walk) -> Result<Holes, SegmentError> {
        let kind = self.listed(id)?.kind;
        let before = Store::allocated_bytes(self, id)?;
        // Before the check for readers: a later reader then notices the removal and reads its row again.
        self.begin_removal();
        let complete = match kind {
            Kind::Pack => self.punch_pack(id, is_live, walk)?,
            Kind::Log if self.is_settled(id) => self.punch_log(id, walk).map(|()| true)?,
            Kind::Log | Kind::Raw => false,
        };
        Ok(Holes { bytes: before.saturating_sub(Store::allocated_bytes(self, id)?), complete })
    }
}

impl Store {
    /// False when somebody pinned the pack before all dead runs were freed.
    fn punch_pack(&self, id: SegmentId, is_live: &dyn Fn(&Run) -> bool, walk: &Walk) -> Result<bool, SegmentError> {
        let mut dead = Vec::new();
        self.walk_pack(id, &mut |walked| {
            dead.extend(walked.run.filter(|run| !is_live(run)));
            ControlFlow::Continue(())
        })?;
        for run in dead {
            // A new pin may exist now. A reader that came later cannot have found these dead runs, but an earlier one
            // could.
            if !self.is_settled(id) {
                return Ok(false);
            }
            self.punch_run(&run, walk)?;
        }
        Ok(true)
    }

    /// Whether it is sealed and not pinned.
    fn is_settled(&self, id: SegmentId) -> bool {
        self.listed(id).is_ok_and(|info| !info.open)
    }
}
