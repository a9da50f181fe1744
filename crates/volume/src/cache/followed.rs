//! The follower's position in the feed, and the recent own commits.
//!
//! Invariants: D1 an own commit that is not recorded is treated as another's: dropping too much is always correct.
//! Locking:    leaf locks.
//! Not here:   reading the feed (follower).

use std::collections::BTreeSet;

use event_listener::Event;
use margay_meta::Cursor;
use parking_lot::Mutex;

/// Maximum number of own commits that are recorded until the follower has passed them.
const OWN_COMMITS_MAX: usize = 65_536;

#[derive(Debug, Default)]
pub(crate) struct FollowedFeed {
    /// Every commit up to this one was applied.
    pub(crate) at: Mutex<Cursor>,
    own: Mutex<BTreeSet<Cursor>>,
    /// Signalled when another process changed an identity.
    pub(crate) identities: Event,
}

impl FollowedFeed {
    /// Records a commit of this volume.
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

    /// Records that every commit up to `next` was applied.
    pub(crate) fn passed(&self, next: Cursor) {
        let mut own = self.own.lock();
        *own = own.split_off(&Cursor(next.0.saturating_add(1)));
        *self.at.lock() = next;
    }
}
