//! Effects of a commit within this process: mounts are notified, events counted, caches updated.
//!
//! Why:        if a client disconnects, the future of its commit is dropped although the engine still commits; a kernel
//!             that is not notified would show stale data for a day. So effects run even then.
//! Invariants: F1 effects are prepared before the commit, and applied before anybody receives its answer.
//! Locking:    the leaf locks of the notified parts, one after the other.
//! Not here:   what an operation itself caches (paths, facts of buckets): preconditions check that, or a time limit bounds it.

use std::sync::Arc;

use margay_meta::{CommitError, Committed, Cursor, RowVersion};

use crate::api::Error;
use crate::cache::{FollowedFeed, KeptRows, RowChanges};
use crate::error::Refused;
use crate::event::EventQueue;
use crate::stores::DraftedRows;
use crate::watch::{Notice, Watchers};

#[derive(Debug)]
pub(crate) struct Effects {
    pub(crate) notice: Option<(Notice, Arc<Watchers>)>,
    pub(crate) events: Option<(u64, Arc<EventQueue>)>,
    pub(crate) rows: Option<(RowChanges, Arc<KeptRows>)>,
    pub(crate) segments: Option<DraftedRows>,
    pub(crate) followed: Option<Arc<FollowedFeed>>,
}

/// What became of a commit, as far as this process could find out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CommitFate {
    Made { cursor: Cursor, version: RowVersion },
    Unknown,
    NotMade,
}

impl From<&Committed> for CommitFate {
    fn from(done: &Committed) -> CommitFate {
        CommitFate::Made { cursor: done.cursor, version: done.version }
    }
}

impl From<&Result<Committed, CommitError>> for CommitFate {
    fn from(done: &Result<Committed, CommitError>) -> CommitFate {
        match done {
            Ok(done) => done.into(),
            Err(CommitError::Unknown(_)) => CommitFate::Unknown,
            Err(_) => CommitFate::NotMade,
        }
    }
}

impl From<&Result<Committed, Refused>> for CommitFate {
    fn from(done: &Result<Committed, Refused>) -> CommitFate {
        match done {
            Ok(done) => done.into(),
            Err(Refused::Error(Error::OutcomeUnknown)) => CommitFate::Unknown,
            Err(_) => CommitFate::NotMade,
        }
    }
}

impl Effects {
    pub(crate) fn settle(self, made: CommitFate) {
        if let Some((changes, rows)) = self.rows {
            let version = if let CommitFate::Made { version, .. } = made { Some(version) } else { None };
            rows.changed(changes, version);
        }
        let cursor = match made {
            CommitFate::NotMade => return,
            // What follows is harmless if it was not made. The feed shows whether it was.
            CommitFate::Unknown => None,
            CommitFate::Made { cursor, .. } => {
                if let Some(followed) = self.followed {
                    followed.made(cursor);
                }
                if let Some(segments) = self.segments {
                    segments.committed();
                }
                Some(cursor)
            }
        };
        if let Some((count, events)) = self.events {
            events.changed(i64::try_from(count).unwrap_or(i64::MAX), cursor);
        }
        if let Some((notice, watchers)) = self.notice {
            watchers.tell(notice);
        }
    }
}
