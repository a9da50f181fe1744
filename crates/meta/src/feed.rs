//! The change feed: which keys each commit changed, in the order of commits.
//!
//! Why:        commits of one process make caches, kernels and identities of another one stale; scanning for changes
//!             would not scale. Keys are enough: a follower reads the rows that it needs.
//! Invariants: F1 a page contains every commit from its cursor up to `next`, oldest first, or the answer is `TooOld`.
//!             F2 only durable commits are shown, so a cursor remains valid after a crash.
//!             F3 the kept part is bounded: a follower that is too late gets `TooOld` and must invalidate everything.
//! Not here:   how an engine stores the feed, the consequences of a change (volume).

use crate::{Cursor, EngineError, Write};

/// Bytes of keys in one page; its first change may be larger.
pub const FEED_PAGE_BYTES_MAX: usize = 4 << 20;

/// One commit in the feed. Batches that an engine has committed together are next to each other and share a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub cursor: Cursor,
    /// Keys that were put, set or deleted, but not those that were only added to or raised.
    pub keys: Vec<Vec<u8>>,
}

/// A part of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedPage {
    pub changes: Vec<Change>,
    /// The cursor of the next request; the requested cursor if there were no changes.
    pub next: Cursor,
}

#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// Commits after the cursor are no longer available, or it belongs to an earlier state of the volume: take a new
    /// cursor, then invalidate everything.
    #[error("changes up to {oldest:?} are no longer held")]
    TooOld { oldest: Cursor },
    #[error(transparent)]
    Failed(#[from] EngineError),
}

impl Change {
    pub(crate) fn of(cursor: Cursor, writes: &[Write]) -> Change {
        let changed = writes.iter().filter(|write| write.is_exclusive());
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

    /// Takes changes in order up to `limit`, or [`FEED_PAGE_BYTES_MAX`].
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
