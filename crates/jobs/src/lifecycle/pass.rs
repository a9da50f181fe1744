//! One pass over one bucket: removes everything that its rules say is due.
//!
//! Invariants: P1 memory holds one page of a listing, whatever the bucket holds.
//!             P2 a removal asserts the modification time that was evaluated, so an object replaced meanwhile stays.
//!             P3 a locked version is skipped; a failure ends the pass.
//! Not here:   when a pass runs (`lifecycle`), what the rules say (margay-s3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::{Env, Timestamp};
use margay_s3::lifecycle::{Days, Lifecycle, Subject};
use margay_volume::{Error, Lease, ListItem, ListRequest, Volume};

use super::{Counters, Pace};

/// Objects, versions or uploads that are examined before the next removals.
pub(super) const PAGE_ITEMS: usize = 1000;
/// Pause between two pages, so that requests come first.
pub(super) const PAGE_PAUSE: Duration = Duration::from_millis(2);

/// A bucket and its rules at one moment.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    pub env: &'a Env,
    pub volume: &'a Volume,
    pub bucket: &'a str,
    pub rules: &'a Lifecycle,
    pub days: Days,
    pub now: Timestamp,
    /// The lease that every removal asserts.
    pub lease: &'a Lease,
    pub pace: Pace,
    pub counters: &'a Counters,
}

/// A current object that is due, as far as can be told without its tags.
#[derive(Debug)]
struct Candidate {
    key: String,
    size: u64,
    modified: Timestamp,
    by_tags: bool,
}

impl Pass<'_> {
    /// Examines everything after `after`; calls `reached` with the last key of each page.
    pub(super) async fn run(
        &mut self,
        after: Option<String>,
        reached: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), Error> {
        if self.rules.ends_current() {
            self.objects(after, reached).await?;
        }
        if self.rules.ends_uploads() {
            self.uploads().await?;
        }
        if self.rules.ends_versions() {
            self.versions().await?;
        }
        Ok(())
    }

    async fn objects(
        &mut self,
        mut after: Option<String>,
        reached: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), Error> {
        loop {
            let mut due = Vec::new();
            let (bucket, rules, days, now) = (self.bucket, self.rules, self.days, self.now);
            let request = ListRequest {
                bucket,
                prefix: "",
                delimiter: None,
                after: after.as_deref(),
                after_is_prefix: false,
                max: PAGE_ITEMS,
            };
            let mut look = |item: ListItem<'_>| {
                let ListItem::Object { key, size, modified, .. } = item else { return };
                let subject = Subject { key, size, modified, tags: None };
                if let Some(end) = rules.current(&subject, days).filter(|end| end.at <= now) {
                    let by_tags = !end.rule.filter.tags.is_empty();
                    due.push(Candidate { key: key.to_owned(), size, modified, by_tags });
                }
            };
            let next = self.volume.list(&request, &mut look).await?.next;
            for candidate in due {
                self.object(&candidate).await?;
            }
            let Some((key, _)) = next else { return Ok(()) };
            reached(&key);
            after = Some(key);
            tokio::time::sleep(PAGE_PAUSE).await;
        }
    }

    async fn object(&mut self, candidate: &Candidate) -> Result<(), Error> {
        if candidate.by_tags && !self.is_due_by_tags(candidate).await? {
            return Ok(());
        }
        self.pace.next(&*self.env.clock).await;
        let removed = self.volume.expire_object(self.bucket, &candidate.key, candidate.modified, self.lease).await;
        self.count(removed, &self.counters.objects).map(drop)
    }

    /// Evaluates the rules again with the object's tags.
    async fn is_due_by_tags(&self, candidate: &Candidate) -> Result<bool, Error> {
        let found = self.volume.head_object(self.bucket, &candidate.key, &Default::default()).await;
        let info = match found {
            Ok(info) if info.modified == candidate.modified => info,
            Ok(_) | Err(Error::NoSuchKey) => return Ok(false),
            Err(error) => return Err(error),
        };
        let tags = margay_s3::lifecycle::tags(&info.documents);
        let Candidate { key, size, modified, .. } = candidate;
        let subject = Subject { key, size: *size, modified: *modified, tags: Some(&tags) };
        Ok(self.rules.current(&subject, self.days).is_some_and(|end| end.at <= self.now))
    }

    async fn uploads(&mut self) -> Result<(), Error> {
        let mut after: Option<(String, String)> = None;
        loop {
            let from = after.as_ref().map(|(key, upload)| (key.as_str(), Some(upload.as_str())));
            let (page, more) = self.volume.list_multipart(self.bucket, "", from, PAGE_ITEMS).await?;
            after = page.last().map(|last| (last.key.clone(), last.upload.clone()));
            for upload in page {
                let end = self.rules.upload(&upload.key, upload.initiated, self.days);
                if end.is_none_or(|end| end.at > self.now) {
                    continue;
                }
                self.pace.next(&*self.env.clock).await;
                let aborted = match self.volume.abort_multipart(self.bucket, &upload.key, &upload.upload).await {
                    Ok(()) => Ok(true),
                    // The upload was completed or aborted meanwhile.
                    Err(Error::NoSuchUpload) => Ok(false),
                    Err(error) => Err(error),
                };
                self.count(aborted, &self.counters.uploads)?;
            }
            if !more {
                return Ok(());
            }
            tokio::time::sleep(PAGE_PAUSE).await;
        }
    }

    /// Counts a removal and returns whether it happened. An object that is already gone, or that a lock protects, is no
    /// failure.
    pub(super) fn count(&self, removed: Result<bool, Error>, what: &AtomicU64) -> Result<bool, Error> {
        let (counter, made) = match removed {
            Ok(true) => (what, true),
            Ok(false) | Err(Error::NoSuchKey | Error::PreconditionFailed | Error::Locked | Error::Busy) => {
                (&self.counters.skipped, false)
            }
            Err(error) => return Err(error),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(made)
    }
}
