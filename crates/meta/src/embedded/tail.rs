//! Cache of the newest commits' keys, filled while somebody reads the feed.
//!
//! Why:        a follower that keeps up is served from memory; a late one reads the log (feed_logs).
//! Invariants: T1 the cached commits are a gapless suffix of all commits.  T2 their number and the bytes of their keys
//!                are bounded.  T3 while inactive it costs a commit one lock and no copy. A request activates it; it
//!                becomes inactive after a full cache of commits without a request.
//! Locking:    its own mutex, taken last and briefly.
//! Not here:   which commits are durable (log), older commits (feed_logs).

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::feed::{Change, FeedPage};
use crate::{Cursor, Write};

/// Bytes counted for each change in addition to its keys.
const CHANGE_OVERHEAD_BYTES: usize = 64;

#[derive(Debug)]
pub(super) struct Tail {
    commits_max: usize,
    bytes_max: usize,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    /// Changes up to this one are not cached.
    dropped: Cursor,
    changes: VecDeque<Change>,
    bytes: usize,
    asleep: bool,
    /// Commits since the last request.
    unasked: usize,
}

impl Held {
    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.changes.pop_front() {
            self.bytes -= oldest.bytes() + CHANGE_OVERHEAD_BYTES;
            self.dropped = oldest.cursor;
        }
    }
}

impl Tail {
    pub(super) fn new(last: Cursor, commits_max: usize, bytes_max: usize) -> Tail {
        let held = Held { dropped: last, changes: VecDeque::new(), bytes: 0, asleep: true, unasked: 0 };
        Tail { commits_max, bytes_max, held: Mutex::new(held) }
    }

    /// Called in the order of commits.
    pub(super) fn record(&self, cursor: Cursor, writes: &[Write]) {
        let mut held = self.held.lock();
        if held.asleep {
            held.dropped = cursor;
            return;
        }
        held.unasked += 1;
        if held.unasked > self.commits_max {
            (held.asleep, held.dropped, held.bytes) = (true, cursor, 0);
            held.changes = VecDeque::new();
            return;
        }
        let change = Change::of(cursor, writes);
        held.bytes += change.bytes() + CHANGE_OVERHEAD_BYTES;
        held.changes.push_back(change);
        while held.changes.len() > self.commits_max || held.bytes > self.bytes_max {
            held.drop_oldest();
        }
    }

    /// Changes after `after` and up to `durable`; `None` if some of them are not cached.
    pub(super) fn since(&self, after: Cursor, limit: usize, durable: Cursor) -> Option<FeedPage> {
        let mut held = self.held.lock();
        (held.asleep, held.unasked) = (false, 0);
        if after < held.dropped {
            return None;
        }
        let first = held.changes.partition_point(|change| change.cursor <= after);
        let last = held.changes.partition_point(|change| change.cursor <= durable).max(first);
        Some(FeedPage::gather(after, limit, held.changes.range(first..last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(bytes: usize) -> Vec<Write> {
        vec![Write::Put { key: vec![1; bytes], value: Vec::new() }, Write::Add { key: vec![2], delta: 1 }]
    }

    fn held(tail: &Tail) -> usize {
        tail.held.lock().changes.len()
    }

    #[test]
    fn nothing_is_copied_while_nobody_asks() {
        let tail = Tail::new(Cursor(4), 3, 1 << 20);
        tail.record(Cursor(5), &put(9));
        assert_eq!((held(&tail), tail.since(Cursor(4), 9, Cursor(5))), (0, None));
        tail.record(Cursor(6), &put(9));
        assert_eq!(tail.since(Cursor(5), 9, Cursor(6)).map(|page| page.next), Some(Cursor(6)));
        (7..=9).for_each(|cursor| tail.record(Cursor(cursor), &put(9)));
        assert_eq!(held(&tail), 3, "the oldest one went");
        tail.record(Cursor(10), &put(9));
        assert_eq!((held(&tail), tail.held.lock().asleep), (0, true), "nobody asked for so many commits");
        assert_eq!(tail.since(Cursor(10), 9, Cursor(10)), Some(FeedPage::empty(Cursor(10))));
    }

    #[test]
    fn it_is_bounded_in_bytes_and_shows_only_what_is_durable() {
        let tail = Tail::new(Cursor(0), 100, 2000);
        assert_eq!(tail.since(Cursor(0), 9, Cursor(0)), Some(FeedPage::empty(Cursor(0))));
        (1..=5).for_each(|cursor| tail.record(Cursor(cursor), &put(900)));
        assert_eq!(held(&tail), 2);
        assert_eq!(tail.since(Cursor(2), 9, Cursor(5)), None);
        let cursors = |page: FeedPage| page.changes.iter().map(|change| change.cursor.0).collect::<Vec<_>>();
        assert_eq!(tail.since(Cursor(3), 9, Cursor(4)).map(cursors), Some(vec![4]));
        assert_eq!(tail.since(Cursor(3), 1, Cursor(5)).map(cursors), Some(vec![4]));
        assert_eq!(tail.since(Cursor(4), 9, Cursor(3)).map(cursors), Some(vec![]));
    }
}
