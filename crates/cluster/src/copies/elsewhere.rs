//! Copies of own segments elsewhere, whether at servers or in pools.
//!
//! Not here:   which servers get copies (targets), what is put into pools (pooled).

use std::sync::Arc;

use margay_segment::{OtherStore, SegmentError, SegmentId, SegmentInfo, StoreNumber};

use super::Inner;
use crate::pools::PoolStore;
use crate::store::HttpStore;

/// At so many other servers a segment is to be that is written no more.
pub(super) fn wanted(inner: &Inner, id: SegmentId) -> usize {
    let numbers = inner.targets.numbers();
    let stores = inner.stores.lock();
    let pools = stores.get(&id).into_iter().flatten().copied().filter(|store| numbers.is_pool(*store));
    usize::from(numbers.copies).saturating_sub(1 + numbers.count(pools))
}

/// A server or a pool.
pub(super) fn at(inner: &Inner, store: StoreNumber) -> Arc<dyn OtherStore> {
    match inner.peers.pools.is_pool(store) {
        true => Arc::new(PoolStore::new(&inner.peers.pools, store)),
        false => Arc::new(HttpStore::new(&inner.peers, store)),
    }
}

/// What a store says of a segment.
pub(super) fn state_at(inner: &Inner, store: StoreNumber, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
    at(inner, store).state(id)
}
