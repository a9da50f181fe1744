//! Blocks of objects in memory: fetched once for all readers, and let go when others need the room.
//!
//! Invariants: K1 at most `BYTES_MAX` of blocks that nobody reads now; those first that were not used for longest, by halves.
//!             K2 a block is fetched by one request at a time, for all who wait.
//! Locking:    the table's lock for one operation; a slot's own lock while it is filled or waited for.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use margay_segment::SegmentId;
use parking_lot::{Condvar, Mutex};

/// Bytes of an object that are fetched together.
pub(super) const BLOCK_BYTES: u64 = 1 << 20;
const BYTES_MAX: u64 = 256 << 20;

type Key = (SegmentId, u64);
type Outcome = Result<Bytes, (std::io::ErrorKind, String)>;

/// A block, or the wait for it.
#[derive(Debug, Default)]
pub(super) struct Slot {
    outcome: Mutex<Option<Outcome>>,
    filled: Condvar,
}

impl Slot {
    pub(super) fn fill(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.filled.notify_all();
    }

    pub(super) fn fill_if_empty(&self, outcome: Outcome) {
        self.outcome.lock().get_or_insert(outcome);
        self.filled.notify_all();
    }

    pub(super) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(done) = &*outcome {
                return done.clone();
            }
            self.filled.wait(&mut outcome);
        }
    }

    fn is_ready(&self) -> bool {
        matches!(&*self.outcome.lock(), Some(Ok(_)))
    }
}

/// Two halves: blocks that were used since the last change of halves, and older ones.
#[derive(Debug, Default)]
struct Halves {
    young: HashMap<Key, Arc<Slot>>,
    old: HashMap<Key, Arc<Slot>>,
}

#[derive(Debug, Default)]
pub(super) struct BlockCache(Mutex<Halves>);

impl BlockCache {
    /// The block's slot, and whether the caller must fill it.
    pub(super) fn slot(&self, id: SegmentId, index: u64) -> (Arc<Slot>, bool) {
        let mut halves = self.0.lock();
        let key = (id, index);
        if let Some(slot) = halves.young.get(&key) {
            return (Arc::clone(slot), false);
        }
        let kept = halves.old.remove(&key);
        let is_new = kept.is_none();
        let slot = kept.unwrap_or_default();
        if halves.young.len() as u64 >= BYTES_MAX / BLOCK_BYTES / 2 {
            halves.old = std::mem::take(&mut halves.young);
        }
        halves.young.insert(key, Arc::clone(&slot));
        (slot, is_new)
    }

    pub(super) fn has(&self, id: SegmentId, index: u64) -> bool {
        let halves = self.0.lock();
        halves.young.contains_key(&(id, index)) || halves.old.contains_key(&(id, index))
    }

    pub(super) fn is_ready(&self, id: SegmentId, index: u64) -> bool {
        let halves = self.0.lock();
        let slot = halves.young.get(&(id, index)).or_else(|| halves.old.get(&(id, index))).cloned();
        drop(halves);
        slot.is_some_and(|slot| slot.is_ready())
    }

    pub(super) fn forget(&self, id: SegmentId, index: u64) {
        let mut halves = self.0.lock();
        halves.young.remove(&(id, index));
        halves.old.remove(&(id, index));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_fetched_once_and_the_cache_is_bounded() {
        let cache = BlockCache::default();
        let (id, most) = (SegmentId(7), BYTES_MAX / BLOCK_BYTES);
        let (slot, is_new) = cache.slot(id, 0);
        assert!(is_new && !cache.slot(id, 0).1 && !cache.is_ready(id, 0));
        slot.fill(Ok(Bytes::from_static(b"bytes")));
        assert_eq!(cache.slot(id, 0).0.wait(), Ok(Bytes::from_static(b"bytes")));
        assert!(cache.is_ready(id, 0));
        for index in 1..3 * most {
            cache.slot(id, index);
            // A block that is used stays.
            assert!(!cache.slot(id, 0).1, "{index}");
        }
        let halves = cache.0.lock();
        assert!((halves.young.len() + halves.old.len()) as u64 <= most);
        drop(halves);
        cache.forget(id, 0);
        assert!(cache.slot(id, 0).1);
    }
}
