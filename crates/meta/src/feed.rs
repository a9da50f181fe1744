//! The change feed: which keys each commit changed, in the order of commits.
//!
//! Why:        caches, kernels and identities of a process go stale by the commits of another one; scanning for changes
//!             would not scale. Keys are enough: a follower reads what it needs of them.
//! Invariants: F1 a page holds every commit behind its cursor up to `next`, oldest first, or the answer is `TooOld`.
//!             F2 only durable commits are shown, so a cursor that was given still stands behind the same commits after a
//!                crash.
//!             F3 what is held is bounded: a follower that falls behind, or comes back late, is told so and looks at
//!                everything anew.
//! Not here:   how an engine holds it, what follows from a change (volume).

use crate::{Cursor, EngineError, Write};

/// Bytes of keys in one page; its first change may be larger.
pub const FEED_PAGE_BYTES_MAX: usize = 4 << 20;

/// One commit as the feed shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub cursor: Cursor,
    /// Keys that were put or deleted (not counters).
    pub keys: Vec<Vec<u8>>,
}

/// Some of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPage {
    pub changes: Vec<Change>,
    /// Where to go on; the cursor that was asked for, when there was nothing behind it.
    pub next: Cursor,
}

#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// Commits behind the cursor are no longer held, or it belongs to another life of the volume: look at everything
    /// anew, and go on from a cursor that was taken before that.
    #[error("changes up to {oldest:?} are no longer held")]
    TooOld { oldest: Cursor },
    #[error(transparent)]
    Failed(#[from] EngineError),
}

impl Change {
    pub(crate) fn of(cursor: Cursor, writes: &[Write]) -> Change {
        let changed = writes.iter().filter(|write| matches!(write, Write::Put { .. } | Write::Delete { .. }));
        Change { cursor, keys: changed.map(|write| write.key().to_vec()).collect() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.keys.iter().map(Vec::len).sum()
    }
}

impl FeedPage {
    pub(crate) fn empty(after: Cursor) -> FeedPage {
        FeedPage { changes: Vec::new(), next: after }
    }

    /// Takes changes in their order until there are `limit`, or [`FEED_PAGE_BYTES_MAX`].
    pub(crate) fn gather<'a>(after: Cursor, limit: usize, changes: impl Iterator<Item = &'a Change>) -> FeedPage {
        let (mut page, mut bytes) = (FeedPage::empty(after), 0);
        for change in changes.take(limit) {
            bytes += change.bytes();
            if bytes > FEED_PAGE_BYTES_MAX && !page.changes.is_empty() {
                break;
            }
            page.push(change.clone());
        }
        page
    }

    pub(crate) fn push(&mut self, change: Change) {
        assert!(change.cursor > self.next, "changes are in the order of their commits (F1)");
        self.next = change.cursor;
        self.changes.push(change);
    }
}
