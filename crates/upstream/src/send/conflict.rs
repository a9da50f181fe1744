//! The bucket has something else under a key than what was sent there last.
//!
//! Why:        somebody else changed the object, or an answer of ours was lost.
//! Invariants: C1 no content is lost: the object stays under its name, and what is here gets another name beside it.
//!             C2 an object with the write id of this request is its own, whatever became of the answer.
//! Not here:   clocks: they decide nothing.

use margay_client::upstream::{Described, WRITE_ID};
use margay_env::Timestamp;
use margay_meta::Write;
use margay_rows::{Ino, key};
use margay_volume::WriteCondition;

use super::Sender;
use super::request::Sent;
use crate::list::parse_etag;
use crate::plan::{Action, PlannedRequest};
use crate::tracked::{MARKER, commit, content_of, dirty_write};

impl Sender {
    /// A condition of a write did not hold.
    pub(super) async fn conflict(&self, request: &PlannedRequest) {
        let there = match self.upstream.describe(&request.key).await {
            Ok(there) => there,
            Err(error) => return self.postponed(request, &error.to_string(), false),
        };
        let Some(there) = there else {
            // Removed there, changed here: it is made again.
            self.forget_objects(request);
            return;
        };
        if let Some((content, attributes)) = self.own_state(request, &there) {
            let own = PlannedRequest { content, attributes, ..request.clone() };
            return self.finished(&own, &Sent { etag: there.etag, size: Some(there.size) });
        }
        self.forget_objects(request);
        if let Err(error) = self.step_aside(request, &there).await {
            self.postponed(request, &error, false);
        }
    }

    /// The content and attributes that the object has of this file; 0 for what is not known. `None`: it is somebody else's.
    fn own_state(&self, request: &PlannedRequest, there: &Described) -> Option<(u64, u64)> {
        let id = there.headers.get(WRITE_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        if id == self.write_id(request) {
            return Some((request.content, request.attributes));
        }
        if request.content == MARKER && request.key.ends_with('/') {
            // Two made the same directory, or an earlier state of ours is there.
            return Some((MARKER, 0));
        }
        if self.is_of_file(request, there) {
            return Some((0, 0));
        }
        let is_equal = content_of(&parse_etag(&there.etag), there.size) == request.content;
        (is_equal && !matches!(request.action, Action::SetAside { .. })).then_some((request.content, 0))
    }

    /// Whether this volume wrote the object as one of the file.
    pub(super) fn is_of_file(&self, request: &PlannedRequest, there: &Described) -> bool {
        let id = there.headers.get(WRITE_ID).and_then(|id| id.to_str().ok()).unwrap_or_default();
        id.starts_with(&format!("{}-{}-", self.id, request.file))
    }

    /// What the rows say of the key is no longer so.
    fn forget_objects(&self, request: &PlannedRequest) {
        let mut files = self.tracked.files.lock();
        let mut writes = Vec::new();
        for ino in [Some(request.file), request.replaces].into_iter().flatten().map(Ino) {
            let Some(file) = files.by_ino.get_mut(&ino) else { continue };
            if file.object.as_ref().is_some_and(|object| object.key == request.key) {
                file.object = None;
                writes.push(Write::Delete { key: key::upstream_object(ino) });
            }
            file.dirty.leftovers.retain(|left| left.key != request.key);
            if ino.0 == request.file {
                (file.in_progress, file.since_sent) = (false, None);
            }
            writes.push(dirty_write(ino, file));
        }
        files.by_ino.retain(|_, file| !file.is_nothing());
        if let Err(error) = commit(&*self.tracked.below, writes) {
            tracing::error!(%error, "a conflict could not be noted");
        }
        drop(files);
        self.tracked.wake.notify_one();
    }

    /// What is here gets another name; what is there comes in under the name.
    async fn step_aside(&self, request: &PlannedRequest, there: &Described) -> Result<(), String> {
        let local = self.tracked.files.lock().paths.local(&request.key).to_owned();
        for number in 1..100u32 {
            let aside = format!("{local}{}", self.mark(number));
            match self.volume.rename(&self.bucket, &local, &aside, &WriteCondition::Absent).await {
                Ok(_) => {
                    tracing::warn!(key = request.key, kept_as = aside, "changed here and in the bucket: both are kept");
                    self.conflicts.lock().push(aside);
                    if let Err(error) = self.listing.enter_key(&request.key, there) {
                        tracing::warn!(error, key = request.key, "what is in the bucket is not shown here");
                    }
                    return Ok(());
                }
                Err(margay_volume::Error::PreconditionFailed) => {}
                Err(margay_volume::Error::NoSuchKey) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("no name is free for what is here".to_owned())
    }

    /// Behind the extension, so that patterns such as `*.conf` do not match it.
    fn mark(&self, number: u32) -> String {
        let time = utc(self.clock.now());
        let again = if number > 1 { format!("-{number}") } else { String::new() };
        format!(".conflict-{time}-{}{again}", self.host)
    }

    /// The bucket has another object than the one that was to be removed: it stays, and is shown if its name is free.
    pub(super) async fn changed_there(&self, request: &PlannedRequest) {
        let there = match self.upstream.describe(&request.key).await {
            Ok(there) => there,
            Err(error) => return self.postponed(request, &error.to_string(), false),
        };
        if let Some(there) = there.as_ref().filter(|there| self.is_of_file(request, there)) {
            return self.removes_instead(request, &there.etag);
        }
        if let Some(there) = &there {
            tracing::warn!(key = request.key, "removed here, changed in the bucket: what is there stays");
            if let Err(error) = self.listing.enter_key(&request.key, there) {
                tracing::warn!(error, key = request.key, "it is not shown here");
            }
        }
        self.finished(request, &Sent::default());
    }

    /// The object is of this file, from a write whose answer was lost: it is removed under its ETag of now.
    fn removes_instead(&self, request: &PlannedRequest, etag: &str) {
        let mut files = self.tracked.files.lock();
        if let Some(file) = files.by_ino.get_mut(&Ino(request.file)) {
            let left = file.dirty.leftovers.iter_mut().filter(|left| left.key == request.key);
            left.for_each(|left| etag.clone_into(&mut left.etag));
            if let Some(object) = file.object.as_mut().filter(|object| object.key == request.key) {
                etag.clone_into(&mut object.etag);
            }
        }
        drop(files);
        self.tracked.wake.notify_one();
    }

    /// The source of a copy is not there: what is here is sent instead.
    pub(super) fn source_gone(&self, request: &PlannedRequest) {
        let mut files = self.tracked.files.lock();
        let mut writes = Vec::new();
        if let Some(file) = files.by_ino.get_mut(&Ino(request.file)) {
            file.object = None;
            (file.in_progress, file.since_sent) = (false, None);
            writes.push(Write::Delete { key: key::upstream_object(Ino(request.file)) });
            writes.push(dirty_write(Ino(request.file), file));
        }
        if let Err(error) = commit(&*self.tracked.below, writes) {
            tracing::error!(%error, "a missing object could not be noted");
        }
    }
}

/// `20261122T101500Z`.
fn utc(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(at.0.into()).unwrap_or_default();
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}
