//! Copies of own segments elsewhere, whether at servers or in pools.
//!
//! Locking:    `Tried` is a leaf.
//! Not here:   which servers get copies (targets), what is put into pools (pooled).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use margay_segment::{OtherStore, SegmentError, SegmentId, SegmentInfo, StoreNumber};
use margay_volume::{Error, visit_segments_made_by};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Inner;
use crate::pools::{PoolObjects, PoolStore};
use crate::store::HttpStore;

pub(super) type Copy = (SegmentId, StoreNumber);
/// What is being put or removed, and what could not be put and when.
pub(super) type Tried = Arc<Mutex<HashMap<Copy, Option<Instant>>>>;

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

/// Which of these segments have a row that names the store.
pub(super) fn named_at(
    inner: &Inner,
    ids: impl Iterator<Item = SegmentId>,
    store: StoreNumber,
) -> Result<HashSet<SegmentId>, Error> {
    let made_by: BTreeSet<StoreNumber> = ids.map(|id| id.made_by()).collect();
    let mut named = HashSet::new();
    for maker in made_by {
        visit_segments_made_by(&*inner.peers.engine, maker, &mut |known| {
            named.extend(known.is_at(store).then_some(known.id));
            Ok(ControlFlow::Continue(()))
        })?;
    }
    Ok(named)
}

/// Pools that are in use and can be opened.
pub(super) fn pools(inner: &Inner) -> Vec<Arc<PoolObjects>> {
    let numbers = inner.targets.numbers();
    let in_use = numbers.pools.keys().filter(|number| !numbers.detached.contains(number));
    in_use.filter_map(|number| inner.peers.pools.objects(*number)).collect()
}

/// The segment is gone, or nothing names its object. One that is not removed is found later by a sweep.
pub(super) async fn remove_object(inner: Arc<Inner>, pool: Arc<PoolObjects>, id: SegmentId) {
    inner.peers.pools.blocks.forget((pool.number, id));
    match pool.remove(id).await {
        Ok(()) => drop(inner.counters.removed.fetch_add(1, Ordering::Relaxed)),
        Err(error) => tracing::warn!(segment = ?id, pool = pool.name, %error, "an object of a pool is removed later"),
    }
}
