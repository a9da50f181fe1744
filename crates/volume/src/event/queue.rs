//! The state of the event queue in memory: its length, and where orders begin.
//!
//! Invariants: E1 the order of an event is below the orders of all changes that read its commit, in any process: it is that of a commit
//!                which nothing is behind that the change has read (`seen_cursor`), and the commit of the change itself is behind that.
//!             E2 no order is below that of an event that was queued when the volume was opened (`base`), even if
//!                commits are counted from the start again (a restored volume).
//!             E3 where processes share the engine, each commit's events count once: an own commit's when it is made,
//!                any other's when the follower reads it (`at`, `own`). A batch that removes events writes nothing
//!                else, and one that queues events writes more, so the keys in the feed tell which it was.
//! Locking:    a leaf lock on the count.
//! Not here:   the rows (events), cached rules (bucket_facts).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;

use margay_meta::Cursor;

/// Number of orders per commit; a commit with more events uses the last one for the rest.
const ORDERS_PER_COMMIT: u64 = 1 << 8;

/// The state of the queue in memory.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    /// Where orders begin.
    pub(crate) base: AtomicU64,
    /// Below zero while events are removed whose queueing the follower has not read yet.
    waiting: AtomicI64,
    followed: Mutex<Option<FollowedEvents>>,
    pub(crate) queued: event_listener::Event,
}

/// Which commits are counted, where processes share the engine (E3).
#[derive(Debug, Default)]
struct FollowedEvents {
    /// All up to this one.
    at: Cursor,
    /// What own commits after that one changed; several batches may share one.
    own: BTreeMap<Cursor, i64>,
}

impl EventQueue {
    /// The order of an event of a change that has read what it depends on (Q2), after `behind` others of its batch.
    pub(crate) fn order(&self, newest: Cursor, behind: u64) -> u64 {
        let of_commit = newest.0.saturating_mul(ORDERS_PER_COMMIT).saturating_add(behind.min(ORDERS_PER_COMMIT - 1));
        self.base.load(Ordering::Acquire).saturating_add(of_commit)
    }

    /// Number of queued events, as far as known.
    pub(crate) fn waiting(&self) -> u64 {
        u64::try_from(self.waiting.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// So many events were queued as of a commit; `follows`: commits after it are read from the feed.
    pub(crate) fn counted(&self, waiting: i64, at: Cursor, follows: bool) {
        let mut followed = self.followed.lock();
        *followed = follows.then(|| FollowedEvents { at, own: BTreeMap::new() });
        self.waiting.store(waiting, Ordering::Release);
    }

    /// An own commit queued (positive) or removed events; without a cursor it is not known whether it was made.
    pub(crate) fn changed(&self, change: i64, made: Option<Cursor>) {
        let counts = match (self.followed.lock().as_mut(), made) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(followed), Some(cursor)) if cursor > followed.at => {
                *followed.own.entry(cursor).or_default() += change;
                true
            }
            (Some(_), Some(_)) => false,
        };
        if counts {
            self.add(change);
        }
        if change > 0 {
            self.queued.notify(usize::MAX);
        }
    }

    /// The follower has read all commits up to `next`; those in `changes` queued or removed events.
    pub(crate) fn follow(&self, changes: &[(Cursor, i64)], next: Cursor) {
        let mut held = self.followed.lock();
        let Some(followed) = held.as_mut() else { return };
        let new = changes.iter().filter(|(cursor, _)| *cursor > followed.at);
        let counted = followed.own.range(..=next).map(|(_, change)| change);
        let change = new.map(|(_, change)| change).sum::<i64>() - counted.sum::<i64>();
        followed.own = followed.own.split_off(&Cursor(next.0.saturating_add(1)));
        followed.at = followed.at.max(next);
        self.add(change);
        drop(held);
        if !changes.is_empty() {
            self.queued.notify(usize::MAX);
        }
    }

    fn add(&self, change: i64) {
        self.waiting.fetch_add(change, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_commit_counts_once_whoever_sees_it_first() {
        let queue = EventQueue::default();
        queue.counted(5, Cursor(10), true);
        queue.changed(2, Some(Cursor(12)));
        queue.follow(&[(Cursor(9), 7), (Cursor(11), 3), (Cursor(12), 2)], Cursor(12));
        assert_eq!(queue.waiting(), 10);
        // The follower was faster.
        queue.follow(&[(Cursor(13), 1), (Cursor(14), -4)], Cursor(14));
        queue.changed(1, Some(Cursor(13)));
        assert_eq!(queue.waiting(), 7);
        queue.changed(1, None);
        assert_eq!(queue.waiting(), 7, "the feed shows whether it was made");
        queue.changed(-9, Some(Cursor(15)));
        queue.follow(&[(Cursor(15), -9), (Cursor(16), 3)], Cursor(16));
        assert_eq!(queue.waiting(), 1, "removed before the follower has read that it was queued");
        // Batches that share a commit.
        queue.changed(2, Some(Cursor(18)));
        queue.changed(-1, Some(Cursor(18)));
        queue.follow(&[(Cursor(18), -1), (Cursor(18), 4), (Cursor(18), 2)], Cursor(19));
        queue.changed(4, Some(Cursor(18)));
        assert_eq!(queue.waiting(), 6);
        queue.counted(0, Cursor(20), true);
        queue.follow(&[(Cursor(15), 1)], Cursor(16));
        assert_eq!(queue.waiting(), 0);
        queue.counted(1, Cursor(0), false);
        queue.changed(1, Some(Cursor(3)));
        queue.changed(1, None);
        queue.changed(-2, Some(Cursor(4)));
        assert_eq!(queue.waiting(), 1);
    }
}
