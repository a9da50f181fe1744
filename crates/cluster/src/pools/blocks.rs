//! Some of what was read from pools, in memory.
//!
//! Why:        a run is read with its checksum table, piece by piece; each would be requests of its own.
//! Invariants: K1 at most `BYTES_MAX`; what came first goes first.
//!             K2 what was found damaged is dropped before it is read again.
//! Locking:    one leaf lock.
//! Not here:   verifying (store), requests (objects).

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use margay_segment::{SegmentId, StoreNumber};
use parking_lot::Mutex;

/// Bytes of one block; the last one of an object is shorter.
pub(crate) const BLOCK_BYTES: u64 = 1 << 20;
const BYTES_MAX: usize = 64 << 20;
/// Lengths of objects that are remembered.
const LENGTHS_MAX: usize = 100_000;

type Object = (StoreNumber, SegmentId);

#[derive(Debug, Default)]
pub(crate) struct Blocks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    blocks: HashMap<(Object, u64), Bytes>,
    order: VecDeque<(Object, u64)>,
    bytes: usize,
    lengths: HashMap<Object, u64>,
}

impl Blocks {
    pub(super) fn get(&self, object: Object, index: u64) -> Option<Bytes> {
        self.0.lock().blocks.get(&(object, index)).cloned()
    }

    pub(super) fn put(&self, object: Object, index: u64, block: Bytes) {
        let mut state = self.0.lock();
        state.bytes += block.len();
        match state.blocks.insert((object, index), block) {
            Some(before) => state.bytes -= before.len(),
            None => state.order.push_back((object, index)),
        }
        while state.bytes > BYTES_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            let dropped = state.blocks.remove(&oldest);
            state.bytes -= dropped.map_or(0, |block| block.len());
        }
    }

    pub(super) fn length(&self, object: Object) -> Option<u64> {
        self.0.lock().lengths.get(&object).copied()
    }

    pub(super) fn put_length(&self, object: Object, length: u64) {
        let mut state = self.0.lock();
        if state.lengths.len() >= LENGTHS_MAX {
            state.lengths.clear();
        }
        state.lengths.insert(object, length);
    }

    /// K2.
    pub(crate) fn forget(&self, object: Object) {
        let mut state = self.0.lock();
        state.lengths.remove(&object);
        let State { blocks, order, bytes, .. } = &mut *state;
        order.retain(|block| block.0 != object);
        blocks.retain(|block, content| {
            let is_kept = block.0 != object;
            *bytes -= if is_kept { 0 } else { content.len() };
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_blocks_go_first_and_what_is_forgotten_is_gone() {
        let (blocks, store) = (Blocks::default(), StoreNumber(3));
        let block = Bytes::from(vec![7; BLOCK_BYTES as usize]);
        let object = |id: u64| (store, SegmentId(id));
        for index in 0..100 {
            blocks.put(object(index % 2), index, block.clone());
        }
        blocks.put(object(1), 99, block.clone());
        let there = |id: u64| (0..100).filter(|index| blocks.get(object(id), *index).is_some()).count();
        assert_eq!((there(0), there(1)), (32, 32));
        assert!(blocks.get(object(0), 34).is_none() && blocks.get(object(0), 36).is_some());
        blocks.put_length(object(0), 9);
        blocks.forget(object(0));
        assert_eq!((there(0), there(1), blocks.length(object(0))), (0, 32, None));
        assert_eq!(blocks.0.lock().bytes, 32 << 20);
        for index in 0..32 {
            blocks.put(object(0), index, block.clone());
        }
        assert_eq!((there(0), there(1)), (32, 32));
    }
}
