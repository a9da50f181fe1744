//! The ordered in-memory layer over the B-tree: live rows and dead intervals.
//!
//! Why:        commits must not wait for a B-tree, and deletions must leave nothing to scan: a tombstone per deleted
//!             row would make listings cost O(deleted rows) until the next checkpoint, as in an LSM store.
//! Invariants: O1 an interval masks every row of the *older* layers in `start..=end`; live rows of this layer stay
//!                visible.
//!             O2 intervals are disjoint.
//!             O3 an interval is extended over a gap only if the older layers have no live row in it, so it never hides
//!                a row that was not deleted.
//! Locking:    none of its own; the active overlay is behind the engine's lock, a sealed one is immutable.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::{Cursor, RowVersion};

/// Bookkeeping bytes counted for each row or interval beside its key and value.
pub(super) const ENTRY_OVERHEAD_BYTES: usize = 96;

#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) value: Arc<[u8]>,
    /// The commit that put the row.
    pub(super) version: RowVersion,
    /// The commit that last changed it, counters included.
    pub(super) touched: Cursor,
}

/// What a layer knows of a key.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Live(&'a Live),
    /// Deleted here: older layers must not be asked.
    Dead,
    Unknown,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    live: BTreeMap<Box<[u8]>, Live>,
    /// Start of an interval to its end, both inclusive.
    dead: BTreeMap<Box<[u8]>, Box<[u8]>>,
    bytes: usize,
    /// The newest commit that it has.
    last: Cursor,
}

impl Overlay {
    pub(super) fn find(&self, key: &[u8]) -> Found<'_> {
        match self.live.get(key) {
            Some(live) => Found::Live(live),
            None if self.covering(key).is_some() => Found::Dead,
            None => Found::Unknown,
        }
    }

    /// The interval that holds `key`: its first and last key.
    pub(super) fn covering(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (start, end) = self.dead.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (end.as_ref() >= key).then_some((start, end))
    }

    /// End of the last interval before `key`, when `key` is in none.
    pub(super) fn dead_before(&self, key: &[u8]) -> Option<&[u8]> {
        let (_, end) = self.dead.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()?;
        Some(end)
    }

    /// Start of the first interval after `key`.
    pub(super) fn dead_after(&self, key: &[u8]) -> Option<&[u8]> {
        let (start, _) = self.dead.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next()?;
        Some(start)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8], version: RowVersion, touched: Cursor) {
        // Most rows are new, so one search with a key of its own is cheaper than a search before it.
        let row = Live { value: value.into(), version, touched };
        match self.live.insert(key.into(), row) {
            Some(old) => self.bytes = self.bytes + value.len() - old.value.len(),
            None => self.bytes += key.len() + value.len() + ENTRY_OVERHEAD_BYTES,
        }
    }

    /// As `put`, of a counter: most are here already.
    pub(super) fn count(&mut self, key: &[u8], value: &[u8; 8], version: RowVersion, touched: Cursor) {
        let Some(old) = self.live.get_mut(key) else { return self.put(key, value, version, touched) };
        (old.version, old.touched) = (version, touched);
        match Arc::get_mut(&mut old.value) {
            Some(bytes) if bytes.len() == value.len() => bytes.copy_from_slice(value),
            // A reader has it, or it was no counter.
            _ => {
                self.bytes = self.bytes + value.len() - old.value.len();
                old.value = Arc::from(&value[..]);
            }
        }
    }

    /// Its newest commit.
    pub(super) fn last(&self) -> Cursor {
        self.last
    }

    /// This commit is applied next.
    pub(super) fn rises_to(&mut self, last: Cursor) {
        assert!(self.last < last, "commits are applied in their order");
        self.last = last;
    }

    /// Removes the row of this layer, if any.
    pub(super) fn forget(&mut self, key: &[u8]) {
        if let Some(old) = self.live.remove(key) {
            self.bytes -= key.len() + old.value.len() + ENTRY_OVERHEAD_BYTES;
        }
    }

    /// Masks `key`, which is in no interval yet, in the older layers. `bridge_before` says that they have no live row
    /// between the interval before the key and the key, `bridge_after` the same for the interval after it.
    pub(super) fn bury(&mut self, key: &[u8], bridge_before: bool, bridge_after: bool) {
        if self.covering(key).is_some() {
            return;
        }
        let next = if bridge_after { self.dead_after(key).map(Box::<[u8]>::from) } else { None };
        let end = match next.and_then(|start| self.dead.remove_entry(&start)) {
            Some((start, end)) => {
                self.bytes -= start.len() + end.len() + ENTRY_OVERHEAD_BYTES;
                end
            }
            None => key.into(),
        };
        if bridge_before {
            let before = (Bound::Unbounded, Bound::Excluded(key));
            if let Some((_, old_end)) = self.dead.range_mut::<[u8], _>(before).next_back() {
                assert!(old_end.as_ref() < key, "intervals are disjoint");
                self.bytes = self.bytes + end.len() - old_end.len();
                *old_end = end;
                return;
            }
        }
        self.bytes += key.len() + end.len() + ENTRY_OVERHEAD_BYTES;
        self.dead.insert(key.into(), end);
    }

    pub(super) fn live_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> LiveRange<'_> {
        if is_empty(start, end) {
            return self.live.range::<[u8], _>((Bound::Excluded(&[][..]), Bound::Included(&[][..])));
        }
        self.live.range::<[u8], _>((start, end))
    }

    pub(super) fn dead_range(&self, start: Bound<&[u8]>, end: Bound<&[u8]>) -> DeadRange<'_> {
        if is_empty(start, end) {
            return self.dead.range::<[u8], _>((Bound::Excluded(&[][..]), Bound::Included(&[][..])));
        }
        self.dead.range::<[u8], _>((start, end))
    }

    pub(super) fn live_rows(&self) -> impl Iterator<Item = (&[u8], &Live)> {
        self.live.iter().map(|(key, live)| (key.as_ref(), live))
    }

    pub(super) fn dead_intervals(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.dead.iter().map(|(start, end)| (start.as_ref(), end.as_ref()))
    }

    pub(super) fn rows(&self) -> usize {
        self.live.len() + self.dead.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty() && self.dead.is_empty()
    }

    /// Memory held, in bytes, estimated.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

pub(super) type LiveRange<'a> = std::collections::btree_map::Range<'a, Box<[u8]>, Live>;
pub(super) type DeadRange<'a> = std::collections::btree_map::Range<'a, Box<[u8]>, Box<[u8]>>;

/// `BTreeMap::range` panics on an inverted range; a scan may well ask for one.
pub(super) fn is_empty(start: Bound<&[u8]>, end: Bound<&[u8]>) -> bool {
    match (start, end) {
        (Bound::Included(start), Bound::Included(end)) => start > end,
        (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) => start >= end,
        _ => false,
    }
}
