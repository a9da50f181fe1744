//! The follower: applies commits of other processes to this process's caches.
//!
//! Why:        caches, kernels, identities and notifiers become stale when another process commits.
//! Invariants: W1 a cached fact is dropped before the cursor passes the commit that changed it; a fact read in between
//!                is at least as new as that commit.
//!             W2 when the feed does not reach back far enough, everything is dropped, after a new cursor was taken.
//!             W3 unasserted caches (kept rows, quotas of open files, kernels, identities) are stale for at most `FOLLOW_EVERY_MAX`
//!                and the time of one page, while the follower runs and the engine answers.
//! Locking:    leaf locks of the caches, one at a time; one follower at a time.
//! Not here:   the thread (the jobs), kernel invalidations (fuse), reading identities (margay-accounts).

use std::time::Duration;

use crate::api::Error;
use crate::changes::{self, Stale};
use crate::open::Volume;
use crate::watch::Notice;
use margay_meta::{Cursor, FeedError};

/// Commits in one page.
const PAGE_COMMITS: usize = 1024;
/// Maximum time between two reads of the feed.
pub const FOLLOW_EVERY_MAX: Duration = Duration::from_secs(1);

/// Between two looks of somebody who waits for the feed.
const PAUSE: Duration = Duration::from_millis(1);

/// Result of one read of the feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Number of commits of other processes.
    pub commits: u64,
    /// The feed did not reach back far enough, so everything was dropped.
    pub everything: bool,
    /// The end of the feed was reached.
    pub is_newest: bool,
}

impl Volume {
    /// Reads one page of the feed and applies it; blocks this thread. Does nothing if the engine is not shared.
    pub fn follow_once(&self) -> Result<Followed, Error> {
        if !self.engine.is_shared() {
            return Ok(Followed { is_newest: true, ..Followed::default() });
        }
        let _alone = self.following.lock();
        let at = *self.followed.at.lock();
        let page = match self.engine.changes(at, PAGE_COMMITS) {
            Ok(page) => page,
            Err(FeedError::TooOld { .. }) => {
                let from = self.engine.feed_start()?;
                self.trails.all_lost(from);
                self.forget_everything()?;
                self.followed.passed(from);
                return Ok(Followed { everything: true, ..Followed::default() });
            }
            Err(FeedError::Failed(error)) => return Err(error.into()),
        };
        let (next, mut stale, mut followed) = (page.next, Stale::default(), Followed::default());
        let mut notices = Vec::new();
        followed.is_newest = page.changes.len() < PAGE_COMMITS;
        // Own ones too: another process moves on what this one has moved.
        self.trails.follow(&page.changes, next);
        for change in page.changes {
            stale.note_events(&change);
            if self.followed.is_own(change.cursor) {
                continue;
            }
            followed.commits += 1;
            if self.watchers.any() {
                let notice = changes::notice(change.keys.iter().map(Vec::as_slice), &self.known);
                if notice != Notice::default() {
                    notices.push(notice);
                }
            }
            stale.note(change);
        }
        self.forget(stale, next);
        // Behind that: a kernel asks at once for what it is told to drop.
        for notice in notices {
            self.watchers.tell(notice);
        }
        self.followed.passed(next);
        Ok(followed)
    }

    /// Follows until the feed has passed a commit, and kernels have dropped what it and those before it changed; blocks this thread,
    /// for so long at most: a transaction of somebody else may hold the feed back.
    pub(crate) fn follow_to(&self, cursor: Cursor, longest: Duration) -> Result<(), Error> {
        let (clock, begun) = (&self.env.clock, self.env.clock.monotonic());
        let is_late = || clock.monotonic().saturating_sub(begun) >= longest;
        while *self.followed.at.lock() < cursor && !is_late() {
            self.follow_once()?;
            if *self.followed.at.lock() < cursor {
                clock.sleep(PAUSE);
            }
        }
        let ticket = self.watchers.newest();
        while !self.watchers.have_done(ticket) && !is_late() {
            clock.sleep(PAUSE);
        }
        Ok(())
    }

    /// Resolves when the feed has changes that were not applied yet.
    pub async fn wait_to_follow(&self) -> Result<(), Error> {
        let at = *self.followed.at.lock();
        Ok(self.engine.wait_changes(at).await?)
    }

    /// Resolves when another process changes identities after this call.
    pub fn identities_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.followed.identities.listen()
    }

    fn forget(&self, stale: Stale, next: Cursor) {
        self.kept_rows.forget(stale.rows);
        if !stale.steps.is_empty() {
            self.paths.forget_over(&stale.steps);
        }
        if stale.buckets {
            self.bucket_facts.forget_all();
        }
        stale.settings.iter().for_each(|root| self.bucket_facts.forget(*root));
        if stale.identities {
            self.followed.identities.notify(usize::MAX);
        }
        self.events.follow(&stale.events, next);
    }

    fn forget_everything(&self) -> Result<(), Error> {
        tracing::warn!(
            "the feed of changes does not reach back far enough: everything that is remembered is forgotten"
        );
        self.kept_rows.forget_all();
        self.paths.forget_all();
        self.bucket_facts.forget_all();
        self.count_events()?;
        if self.watchers.any() {
            self.watchers.tell(Notice { everything: true, ..Notice::default() });
        }
        self.followed.identities.notify(usize::MAX);
        self.events.queued.notify(usize::MAX);
        Ok(())
    }
}
