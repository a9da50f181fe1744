//! What an operator, or another process through the port, wants of one copy: to be looked at, made right, removed.
//!
//! Not here:   how that is done (`mend`, `put`), who may ask (port).

use std::io;

use margay_segment::{Extent, Run, SegmentError, SegmentId, StoreNumber};
use margay_volume::Error;

use super::mend::{self, Mended};
use super::{HttpCopies, elsewhere, put, right};
use crate::store::HttpStore;

/// What came of an order to make a copy right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    Mended(Mended),
    /// The object of a pool is put there again, a while later.
    PutAgain,
}

impl HttpCopies {
    /// Fetches what the own file of a segment lacks from other stores. Blocks this thread; fails if the segment is being written.
    pub fn mend(&self, id: SegmentId) -> Result<Mended, Error> {
        mend::mend(&self.inner, id)
    }

    /// Ends what takes long, as it is dropped: an order to mend that waits for gigabytes keeps it from being dropped.
    pub fn end(&self) {
        self.inner.end();
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
    pub fn mend_at(&self, store: StoreNumber, id: SegmentId) -> Result<Ordered, Error> {
        if store == self.inner.own_number() {
            return self.mend(id).map(Ordered::Mended);
        }
        if self.inner.peers.pools.is_pool(store) {
            return self.put_again(store, id);
        }
        let (bad, left) = HttpStore::new(&self.inner.peers, store).mend(id)?;
        Ok(Ordered::Mended(Mended { bad, left }))
    }

    /// An object is not mended: the maker of the segment puts it there again, from its own file once that is right.
    fn put_again(&self, pool: StoreNumber, id: SegmentId) -> Result<Ordered, Error> {
        let (inner, maker) = (&self.inner, id.made_by());
        if maker != inner.own_number() {
            return Err(told(format!("the object in the pool is put there by store {}: ask its server", maker.0)));
        }
        mend::mend(inner, id)?;
        let info = inner.own.listed(id)?;
        if !right::of(inner, &info)?.is_whole() {
            return Err(told("the own file is not whole, so the object in the pool stays as it is".to_owned()));
        }
        inner.forget_copy(id, pool);
        inner.wake_upkeep();
        Ok(Ordered::PutAgain)
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

fn told(what: String) -> Error {
    SegmentError::Io(io::Error::other(what)).into()
}
