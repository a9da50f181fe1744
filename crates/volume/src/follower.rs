//! The follower: what commits of other processes mean here, once for each process.
//!
//! Why:        kernels, caches, identities and notifiers of this process go stale by what others commit.
//! Invariants: W1 a fact is forgotten before the follower's cursor passes the commit that changed it; one that is read in
//!                between is as new as that commit.
//!             W2 what the feed cannot show any more ends in forgetting everything, from a cursor taken before.
//!             W3 what is kept without being asserted (kept rows, quotas, kernels, identities) is stale for no longer than
//!                `FOLLOW_EVERY_MAX` and the time of one page, while the follower runs and the engine answers.
//! Locking:    leaf locks of what is forgotten, one after the other; one follower at a time.
//! Not here:   who runs it (the jobs), what a notice means for a kernel (fuse), reading identities (margay-accounts).

use std::ops::ControlFlow;
use std::time::Duration;

use margay_meta::{Cursor, FeedError};
use margay_rows::kinds::Setting;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::changes::{self, Stale};
use crate::open::Volume;
use crate::quota::Quota;
use crate::seen::Seen;
use crate::watch::Notice;

/// Commits of one page.
const PAGE_COMMITS: usize = 1024;
/// The follower looks at the feed at least so often.
pub const FOLLOW_EVERY_MAX: Duration = Duration::from_secs(1);

/// What one look at the feed came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Commits of others.
    pub commits: u64,
    /// The feed did not reach back far enough: everything was forgotten.
    pub everything: bool,
    /// There was nothing more.
    pub is_newest: bool,
}

impl Volume {
    /// Follows one page of the feed; blocks this thread. Nothing to do where nobody shares the engine.
    pub fn follow_once(&self) -> Result<Followed, Error> {
        if !self.engine.is_shared() {
            return Ok(Followed { is_newest: true, ..Followed::default() });
        }
        let _alone = self.following.lock();
        let at = *self.followed.at.lock();
        let page = match self.engine.changes(at, PAGE_COMMITS) {
            Ok(page) => page,
            Err(FeedError::TooOld { .. }) => {
                let from = self.engine.durable_cursor();
                self.forget_everything()?;
                self.followed.passed(from);
                return Ok(Followed { everything: true, ..Followed::default() });
            }
            Err(FeedError::Failed(error)) => return Err(error.into()),
        };
        let (next, mut stale, mut followed) = (page.next, Stale::default(), Followed::default());
        followed.is_newest = page.changes.len() < PAGE_COMMITS;
        for change in page.changes {
            if self.followed.is_own(change.cursor) {
                continue;
            }
            followed.commits += 1;
            if self.watchers.any() {
                let notice = changes::notice(change.keys.iter().map(Vec::as_slice), &self.known);
                if notice != Notice::default() {
                    self.watchers.tell(notice);
                }
            }
            stale.note(change);
        }
        self.forget(stale, next)?;
        self.followed.passed(next);
        Ok(followed)
    }

    /// Resolves when the feed has something that was not followed yet.
    pub async fn wait_to_follow(&self) -> Result<(), Error> {
        let at = *self.followed.at.lock();
        Ok(self.engine.wait_changes(at).await?)
    }

    /// Resolves when another process changed who may call, after this call.
    pub fn identities_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        self.followed.identities.listen()
    }

    fn forget(&self, stale: Stale, next: Cursor) -> Result<(), Error> {
        self.kept_rows.forget(stale.attributes);
        if !stale.steps.is_empty() {
            self.paths.forget_over(&stale.steps);
        }
        if stale.buckets {
            self.bucket_states.forget_all();
        }
        stale.settings.iter().for_each(|root| self.bucket_states.forget(*root));
        for root in stale.quotas {
            self.quotas.set(root, self.stored_quota(root)?, next);
        }
        if stale.identities {
            self.followed.identities.notify(usize::MAX);
        }
        if stale.events {
            self.events.queued.notify(usize::MAX);
        }
        Ok(())
    }

    fn stored_quota(&self, root: Ino) -> Result<Quota, Error> {
        let mut quota = Quota::default();
        self.scan(&key::setting(root, Setting::Quota), &mut Seen::default(), |row| {
            quota = Quota::decode(row.value)?;
            Ok(ControlFlow::Break(()))
        })?;
        Ok(quota)
    }

    fn forget_everything(&self) -> Result<(), Error> {
        tracing::warn!(
            "the feed of changes does not reach back far enough: everything that is remembered is forgotten"
        );
        self.kept_rows.forget_all();
        self.paths.forget_all();
        self.bucket_states.forget_all();
        self.quotas.forget_all();
        self.read_quotas()?;
        self.count_events()?;
        if self.watchers.any() {
            self.watchers.tell(Notice { everything: true, ..Notice::default() });
        }
        self.followed.identities.notify(usize::MAX);
        self.events.queued.notify(usize::MAX);
        Ok(())
    }
}
