//! The oldest commit that this process still reads, which keeps other processes from removing segments.
//!
//! Why:        pinning a segment at another store would cost a call per GET. Pins are recorded here instead, and their
//!             minimum is published periodically.
//! Invariants: R1 a pin counts from a commit at which its rows were valid: the caller reads the generation, reads the
//!                rows, takes the pin, and reads the rows again if the generation changed.
//!             R2 the result of `advance` never decreases, and no pin counts from before it.
//! Locking:    a leaf lock.
//! Not here:   publishing (the session), waiting for it (reclaim).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::Cursor;
use margay_segment::Hold;
use parking_lot::Mutex;

#[derive(Debug)]
pub(crate) struct Readers {
    generations: AtomicU64,
    state: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// New pins count from here.
    since: Cursor,
    /// Number of pins by the commit from which they count.
    holds: BTreeMap<Cursor, u64>,
    /// The last result of `advance`.
    published: Cursor,
}

/// Keeps everything that any row refers to since it was taken.
#[derive(Debug)]
pub(crate) struct ReaderHold {
    readers: Arc<Readers>,
    since: Cursor,
}

impl Readers {
    /// `now`: a commit from before the first row was read.
    pub(crate) fn begin(now: Cursor) -> Readers {
        let state = Held { since: now, holds: BTreeMap::new(), published: Cursor(0) };
        Readers { generations: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Number of calls of `advance`.
    pub(crate) fn generations(&self) -> u64 {
        self.generations.load(Ordering::SeqCst)
    }

    pub(crate) fn hold(self: &Arc<Readers>) -> Arc<ReaderHold> {
        let mut state = self.state.lock();
        let since = state.since;
        assert!(since >= state.published, "no hold counts from before what was published (R2)");
        *state.holds.entry(since).or_default() += 1;
        Arc::new(ReaderHold { readers: Arc::clone(self), since })
    }

    /// The oldest commit that this process still reads. `now`: the newest commit at a moment before the call.
    pub(crate) fn advance(&self, now: Cursor) -> Cursor {
        let mut state = self.state.lock();
        self.generations.fetch_add(1, Ordering::SeqCst);
        state.since = state.since.max(now);
        let oldest = state.holds.first_key_value().map_or(state.since, |(since, _)| *since);
        assert!(oldest >= state.published, "what was published never falls (R2)");
        state.published = oldest;
        oldest
    }
}

impl Hold for ReaderHold {
    fn since(&self) -> u64 {
        self.since.0
    }
}

impl Drop for ReaderHold {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock();
        let count = state.holds.get_mut(&self.since).expect("every hold is counted once");
        *count -= 1;
        if *count == 0 {
            state.holds.remove(&self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_keeps_what_is_published_where_it_was() {
        let readers = Arc::new(Readers::begin(Cursor(5)));
        assert_eq!(readers.advance(Cursor(7)), Cursor(7));
        let hold = readers.hold();
        let copy = Arc::clone(&hold);
        assert_eq!(readers.advance(Cursor(9)), Cursor(7));
        let later = readers.hold();
        drop(hold);
        assert_eq!(readers.advance(Cursor(12)), Cursor(7));
        drop(copy);
        assert_eq!(readers.advance(Cursor(12)), Cursor(9));
        drop(later);
        assert_eq!((readers.advance(Cursor(11)), readers.generations()), (Cursor(12), 5));
    }
}
