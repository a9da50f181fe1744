//! From which commit on this process still reads: what keeps other processes from removing what is read here.
//!
//! Why:        a pin of a segment of another store is not asked for there: that would be a call for each GET. It is noted
//!             here, and the least of all notes is published now and then.
//! Invariants: R1 a hold counts from a moment that is not behind the one at which its rows held: whoever takes one reads the
//!                count of generations, reads the rows, takes the hold, and finds the count as it was, or reads its rows again.
//!             R2 what `advance` gives never falls, and no hold counts from before it.
//! Locking:    a leaf.
//! Not here:   publishing it (the session), what waits for it (reclaim).

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
    /// Holds that are taken now count from here.
    since: Cursor,
    /// How many holds count from where.
    holds: BTreeMap<Cursor, u64>,
    /// What `advance` gave last.
    published: Cursor,
}

/// Keeps what any row leads to since it was taken.
#[derive(Debug)]
pub(crate) struct ReaderHold {
    readers: Arc<Readers>,
    since: Cursor,
}

impl Readers {
    /// `now`: a commit that was made before the first row was read.
    pub(crate) fn begin(now: Cursor) -> Readers {
        let state = Held { since: now, holds: BTreeMap::new(), published: Cursor(0) };
        Readers { generations: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Times that `advance` was called.
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

    /// The commit from which on this process still reads. `now`: the newest commit at a moment before the call.
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
