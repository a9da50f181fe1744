//! Packs that a detached store has left behind: what is live in them is moved as from own ones.
//!
//! Why:        their maker never comes back, so nobody else would ever give the dead part back.
//! Invariants: L1 one process moves from a segment: that of the first of the stores that have it and run. Two that do (one has just
//!                started) do no harm, since each batch asserts the owners of the runs (reclaim C2).
//!             L2 the file stays: once nothing refers to a segment, it is given up as all of a detached store are (margay-cluster).
//! Not here:   which of them are mostly dead, and moving (rewrite); raw segments, which have one run.

use std::collections::HashSet;
use std::ops::ControlFlow;

use margay_rows::record::SegmentState;
use margay_segment::{Kind, SegmentInfo, StoreNumber};

use crate::api::Error;
use crate::open::Volume;
use crate::stores::{KnownSegment, known_stores, read_copies, visit_segments_made_by};

impl Volume {
    /// Sealed packs of detached stores whose live runs this process moves.
    pub(super) fn left_packs(&self) -> Result<Vec<SegmentInfo>, Error> {
        let mut packs = Vec::new();
        if !self.stores.has_others() || !self.engine.is_shared() {
            return Ok(packs);
        }
        let detached = read_copies(&*self.engine)?.detached;
        if detached.is_empty() {
            return Ok(packs);
        }
        let (own, known) = (self.stores.number, known_stores(&*self.engine)?);
        let open: HashSet<StoreNumber> =
            known.into_iter().filter(|store| store.address.is_some()).map(|store| store.number).collect();
        let is_left = |store: &StoreNumber| !detached.contains(store) && (*store == own || open.contains(store));
        let is_mine = |known: &KnownSegment| known.record.stores.iter().copied().find(is_left) == Some(own);
        for gone in detached.iter().copied().filter(|gone| *gone != own) {
            visit_segments_made_by(&*self.engine, gone, &mut |known| {
                let is_sealed = matches!(known.record.state, SegmentState::Sealed { .. });
                if known.record.kind == Kind::Pack
                    && is_sealed
                    && is_mine(&known)
                    && let Ok(info) = self.stores.own().state(known.id)
                {
                    packs.push(info);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(packs)
    }
}
