//! How far a volume has followed the feed, and which of its commits were its own.
//!
//! Invariants: D1 an own commit that is not remembered is followed as another's: forgetting too much is always right.
//! Locking:    leaf locks.
//! Not here:   reading the feed (follower).

use std::collections::BTreeSet;

use event_listener::Event;
use margay_meta::Cursor;
use parking_lot::Mutex;

/// Own commits that are remembered until the follower has passed them.
const OWN_COMMITS_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct FollowedFeed {
    /// Everything up to here was followed.
    pub(crate) at: Mutex<Cursor>,
    own: Mutex<BTreeSet<Cursor>>,
    /// Told when an identity was changed by another process.
    pub(crate) identities: Event,
}

impl FollowedFeed {
    /// This volume made a commit.
    pub(crate) fn made(&self, cursor: Cursor) {
        let mut own = self.own.lock();
        own.insert(cursor);
        if own.len() > OWN_COMMITS_MAX {
            own.pop_first();
        }
    }

    pub(crate) fn is_own(&self, cursor: Cursor) -> bool {
        self.own.lock().contains(&cursor)
    }

    /// Everything up to `next` was followed.
    pub(crate) fn passed(&self, next: Cursor) {
        let mut own = self.own.lock();
        *own = own.split_off(&Cursor(next.0.saturating_add(1)));
        *self.at.lock() = next;
    }
}
