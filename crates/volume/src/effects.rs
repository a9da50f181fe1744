//! What follows from a commit in this process: mounts are told, events are counted, kept rows change.
//!
//! Why:        the commit of an engine that waits ends when nobody may wait for it any more; a kernel that is not told
//!             of it would show what was for a day.
//! Invariants: what follows is made ready before the commit, and done before anybody has its answer.
//! Locking:    the leaf locks of what is told, one after the other.
//! Not here:   what an operation itself remembers (quotas, paths): that is checked by preconditions, or bounded in time.

use std::sync::Arc;

use margay_meta::{CommitError, Committed, Cursor};

use crate::api::Error;
use crate::error::Refused;
use crate::event_queue::EventQueue;
use crate::followed::FollowedFeed;
use crate::kept_rows::{KeptRows, RowChanges};
use crate::segment_rows::DraftedRows;
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
    Made(Cursor),
    Unknown,
    NotMade,
}

impl From<&Result<Committed, CommitError>> for CommitFate {
    fn from(done: &Result<Committed, CommitError>) -> CommitFate {
        match done {
            Ok(done) => CommitFate::Made(done.cursor),
            Err(CommitError::Unknown(_)) => CommitFate::Unknown,
            Err(_) => CommitFate::NotMade,
        }
    }
}

impl From<&Result<Committed, Refused>> for CommitFate {
    fn from(done: &Result<Committed, Refused>) -> CommitFate {
        match done {
            Ok(done) => CommitFate::Made(done.cursor),
            Err(Refused::Error(Error::OutcomeUnknown)) => CommitFate::Unknown,
            Err(_) => CommitFate::NotMade,
        }
    }
}

impl Effects {
    pub(crate) fn settle(self, made: CommitFate) {
        if let Some((changes, rows)) = self.rows {
            rows.changed(changes, matches!(made, CommitFate::Made(_)));
        }
        match made {
            CommitFate::NotMade => return,
            // What follows is harmless if it was not made. The feed shows whether it was.
            CommitFate::Unknown => {}
            CommitFate::Made(cursor) => {
                if let Some(followed) = self.followed {
                    followed.made(cursor);
                }
                if let Some(segments) = self.segments {
                    segments.committed();
                }
            }
        }
        if let Some((count, events)) = self.events {
            events.grew(count);
        }
        if let Some((notice, watchers)) = self.notice {
            watchers.tell(notice);
        }
    }
}
