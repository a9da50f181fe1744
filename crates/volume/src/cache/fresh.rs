//! Cache of payloads that the log may not have written yet.
//!
//! Why:        a file that was just closed can be read at once, although its bytes wait with their commit for the log's
//!             next sync, up to a second.
//! Invariants: F1 a cached payload equals the bytes at its log position.
//!             F2 at most [`FRESH_BYTES_MAX`] are cached; a reader that misses waits until the commit is durable.
//! Locking:    a leaf.
//! Not here:   the log (meta).

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use margay_meta::Cursor;
use margay_segment::{Run, SegmentId};
use parking_lot::Mutex;

/// Capacity, in bytes.
pub(crate) const FRESH_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Fresh {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    payloads: HashMap<(SegmentId, u64), Bytes>,
    order: VecDeque<(Cursor, (SegmentId, u64))>,
    bytes: usize,
}

impl Held {
    fn drop_oldest(&mut self) {
        if let Some((_, place)) = self.order.pop_front()
            && let Some(bytes) = self.payloads.remove(&place)
        {
            self.bytes -= bytes.len();
        }
    }
}

impl Fresh {
    /// Caches the payload of commit `seq`, and drops those that are durable.
    pub(crate) fn hold(&self, run: &Run, bytes: Bytes, seq: Cursor, durable: Cursor) {
        let place = (run.segment, run.offset);
        let mut held = self.held.lock();
        while held.order.front().is_some_and(|(seq, _)| *seq <= durable) {
            held.drop_oldest();
        }
        while held.bytes + bytes.len() > FRESH_BYTES_MAX && !held.order.is_empty() {
            held.drop_oldest();
        }
        held.bytes += bytes.len();
        held.order.push_back((seq, place));
        held.payloads.insert(place, bytes);
    }

    /// The payload at a run's location, if cached.
    pub(crate) fn get(&self, run: &Run) -> Option<Bytes> {
        self.held.lock().payloads.get(&(run.segment, run.offset)).cloned()
    }
}
