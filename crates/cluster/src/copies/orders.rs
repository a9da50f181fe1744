//! What an operator, or another process through the port, wants of one copy: to be looked at, made right, removed.
//!
//! Not here:   how that is done (`mend`, `put`), who may ask (port).

use margay_segment::{Extent, Run, SegmentError, SegmentId, StoreNumber};
use margay_volume::Error;

use super::mend::{self, Mended};
use super::{HttpCopies, elsewhere, put};
use crate::store::HttpStore;

impl HttpCopies {
    /// Fetches what the own file of a segment lacks from other stores. Blocks this thread; fails if the segment is being written.
    pub fn mend(&self, id: SegmentId) -> Result<Mended, Error> {
        mend::mend(&self.inner, id)
    }

    /// Bytes of a copy came.
    pub(crate) fn note_put(&self, id: SegmentId) {
        put::note(&self.inner, id);
    }

    /// Removes a copy of another store's segment, unless it is needed (`put`). Blocks this thread.
    pub(crate) fn remove_unnamed(&self, id: SegmentId) -> Result<(), SegmentError> {
        put::remove_unnamed(&self.inner, id)
    }

    /// As `mend`, at any store.
    pub fn mend_at(&self, store: StoreNumber, id: SegmentId) -> Result<Mended, Error> {
        if store == self.inner.own_number() {
            return self.mend(id);
        }
        if self.inner.peers.pools.is_pool(store) {
            // Its maker puts it there again, if this is it.
            self.inner.forget_copy(id, store);
            self.inner.wake_upkeep();
            return Ok(Mended { bad: 1, left: 1 });
        }
        let (bad, left) = HttpStore::new(&self.inner.peers, store).mend(id)?;
        Ok(Mended { bad, left })
    }

    /// Whether a store has the whole run, and right. Blocks this thread.
    pub fn verify_at(&self, store: StoreNumber, run: &Run) -> Result<(), SegmentError> {
        let extent = Extent::whole(*run);
        if store == self.inner.own_number() {
            return self.inner.own.verify(&extent);
        }
        elsewhere::at(&self.inner, store).verify(&extent)
    }
}
