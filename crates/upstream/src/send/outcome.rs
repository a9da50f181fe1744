//! What the outcome of a request changes in the rows.
//!
//! Invariants: O1 the object of a file, its number and its dirty row change in one batch.
//!             O2 a file keeps the number of its bytes when it is sent: extents that still have it are at offsets where the new
//!                object has the same bytes, since a file gets local bytes before it is written.
//! Locking:    the table of files, over the commit.

use std::collections::HashMap;
use std::time::Duration;

use margay_client::upstream::Described;
use margay_meta::Write;
use margay_rows::record::{UpstreamLeftover, UpstreamObject};
use margay_rows::{Ino, key};

use super::Sender;
use super::request::{Sent, Unsent};
use crate::plan::{self, Action, PlannedRequest};
use crate::tracked::{File, Files, commit, dirty_write};

/// Wait after the first failure; it doubles.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// Wait after a refusal.
const REFUSED_AFTER: Duration = Duration::from_secs(300);

impl Sender {
    /// The request succeeded.
    pub(super) fn finished(&self, request: &PlannedRequest, sent: &Sent) {
        let mut files = self.tracked.files.lock();
        if let Err(error) = self.take_outcome(&mut files, request, sent) {
            // The object is there; the next try finds it by its write id.
            tracing::error!(%error, key = request.key, "the outcome of a request could not be stored");
            postpone(&mut files, request, &error.to_string(), false);
        }
        drop(files);
        self.tracked.settled.notify_all();
    }

    fn take_outcome(
        &self,
        files: &mut Files,
        request: &PlannedRequest,
        sent: &Sent,
    ) -> Result<(), margay_meta::EngineError> {
        let inos: Vec<Ino> = [Some(request.file), request.replaces].into_iter().flatten().map(Ino).collect();
        // The name matters to `finish` only as being there.
        let named = |file: &File| file.dirty.name.is_some().then(String::new);
        let planned = inos.iter().filter_map(|ino| {
            let file = files.by_ino.get(ino)?;
            Some((ino.0, file.planned(*ino, named(file), false)))
        });
        let mut planned: HashMap<u64, plan::Dirty> = planned.collect();
        let changed = plan::finish(&mut planned, request, &sent.etag);
        let mut writes = Vec::new();
        let mut finished = Vec::new();
        for ino in changed {
            let (Some(one), Some(file)) = (planned.get(&ino), files.by_ino.get(&Ino(ino))) else { continue };
            let mut file = file.clone();
            if ino == request.file && request.action != Action::Delete {
                (file.in_progress, file.now, file.tries, file.failure) = (false, false, 0, None);
                (file.sending, file.dirty.sent) = (None, None);
            }
            (file.dirty.since, file.since_sent) = (one.since, one.since_sent);
            let left = |left: &plan::Leftover| UpstreamLeftover {
                key: left.key.clone(),
                etag: left.etag.clone(),
                since: left.since,
            };
            file.dirty.leftovers = one.leftovers.iter().map(left).collect();
            set_object(&mut file, Ino(ino), one, sent.size, &mut writes);
            finished.push((Ino(ino), file));
        }
        let mut done = Vec::new();
        for (ino, file) in &finished {
            if self.is_done(files, file)? {
                writes.push(Write::Delete { key: key::upstream_dirty(*ino) });
                done.push(*ino);
            } else {
                writes.push(dirty_write(*ino, file));
            }
        }
        commit(&*self.tracked.below, writes)?;
        files.by_ino.extend(finished);
        done.iter().for_each(|ino| drop(files.by_ino.remove(ino)));
        Ok(())
    }

    /// Whether the bucket has what is here, and no more.
    fn is_done(&self, files: &mut Files, file: &File) -> Result<bool, margay_meta::EngineError> {
        let is_open = file.in_progress || file.dirty.moved || file.dirty.sent.is_some();
        if is_open || !file.dirty.leftovers.is_empty() {
            return Ok(false);
        }
        let Some((directory, name)) = file.dirty.name.clone() else { return Ok(file.object.is_none()) };
        let key = files.paths.key(&*self.tracked.below, (directory, &name))?;
        Ok(file.object.as_ref().is_some_and(|object| {
            Some(&object.key) == key.as_ref()
                && file
                    .state
                    .is_some_and(|state| (state.content, state.attributes) == (object.content, object.attributes))
        }))
    }

    /// The request failed.
    pub(super) async fn failed(&self, request: &PlannedRequest, unsent: Unsent) {
        let status = match &unsent {
            Unsent::Changed => {
                self.let_go(request, false);
                self.tracked.wake.notify_one();
                return;
            }
            Unsent::Local(_) => None,
            Unsent::Bucket(error) => error.status(),
        };
        // A refusal is an answer; anything else may have been done.
        let may_be_done = matches!(unsent, Unsent::Bucket(_)) && status.is_none_or(|status| status >= 500);
        self.let_go(request, may_be_done);
        match status {
            Some(412) => self.conflict(request).await,
            // The source of a copy is gone: the bytes are sent.
            Some(404) if !matches!(request.action, Action::Put) => self.source_gone(request),
            Some(400 | 401 | 403 | 405 | 413 | 501) => self.postponed(request, &unsent.to_string(), true),
            _ => self.postponed(request, &unsent.to_string(), false),
        }
    }

    /// The request is over.
    fn let_go(&self, request: &PlannedRequest, may_be_done: bool) {
        let mut files = self.tracked.files.lock();
        if let Some(file) = files.by_ino.get_mut(&Ino(request.file)).filter(|_| request.action != Action::Delete) {
            (file.in_progress, file.since_sent, file.sending) = (false, None, None);
            if may_be_done {
                file.dirty.sent = Some(request.key.clone());
            }
        }
    }

    /// Whether the write of a file to a key, where it is no longer wanted, succeeded.
    pub(super) async fn ask(&self, request: &PlannedRequest) {
        let there = match self.upstream.describe(&request.key).await {
            Ok(there) => there,
            Err(error) => return self.postponed(request, &error.to_string(), false),
        };
        let own = there.filter(|there| self.is_of_file(request, there));
        let ino = Ino(request.file);
        let mut files = self.tracked.files.lock();
        let Some(file) = files.by_ino.get_mut(&ino) else { return };
        (file.in_progress, file.since_sent, file.dirty.sent) = (false, None, None);
        let mut writes = Vec::new();
        if let Some(there) = own {
            take_found(file, ino, request, &there, &mut writes);
        }
        writes.push(dirty_write(ino, file));
        if let Err(error) = commit(&*self.tracked.below, writes) {
            tracing::error!(%error, "what the bucket has could not be noted");
        }
        drop(files);
        self.tracked.wake.notify_one();
    }

    pub(super) fn postponed(&self, request: &PlannedRequest, why: &str, is_refused: bool) {
        tracing::warn!(key = request.key, why, is_refused, "a change is not in the bucket yet");
        postpone(&mut self.tracked.files.lock(), request, why, is_refused);
        self.tracked.settled.notify_all();
    }
}

fn postpone(files: &mut Files, request: &PlannedRequest, why: &str, is_refused: bool) {
    let now = files.now();
    let Some(file) = files.by_ino.get_mut(&Ino(request.file)) else { return };
    if request.action != Action::Delete {
        (file.in_progress, file.since_sent, file.sending) = (false, None, None);
    }
    let wait = (RETRY_AFTER * 2u32.saturating_pow(file.tries.min(16))).min(RETRY_AFTER_MAX);
    file.due_at = now + if is_refused { REFUSED_AFTER } else { wait };
    file.tries += 1;
    file.is_refused = is_refused;
    file.failure = Some(why.to_owned());
    file.now = false;
}

/// An object of the file was found that the rows did not know.
fn take_found(file: &mut File, ino: Ino, request: &PlannedRequest, there: &Described, writes: &mut Vec<Write>) {
    match &mut file.object {
        Some(object) if object.key != request.key => {
            let (key, etag) = (request.key.clone(), there.etag.clone());
            file.dirty.leftovers.retain(|left| left.key != key);
            file.dirty.leftovers.push(UpstreamLeftover { key, etag, since: file.dirty.changed });
        }
        object => {
            let number = object.as_ref().map_or(0, |object| object.number);
            let (key, etag, size) = (request.key.clone(), there.etag.clone(), there.size);
            // Which of its states it has is not known, so it is sent again.
            let found = UpstreamObject { key, etag, size, number, content: 0, attributes: 0 };
            writes.push(Write::Put { key: key::upstream_object(ino), value: found.encode() });
            *object = Some(found);
        }
    }
}

/// Drafts the object of a file as the planner left it; `size`: of the content that was sent.
fn set_object(file: &mut File, ino: Ino, one: &plan::Dirty, size: Option<u64>, writes: &mut Vec<Write>) {
    let old = file.object.take();
    let Some(base) = &one.base else {
        if let Some(old) = old {
            writes.push(Write::Delete { key: key::upstream_object(ino) });
            writes.push(Write::Delete { key: key::upstream_bytes(old.number) });
        }
        return;
    };
    let object = UpstreamObject {
        key: base.key.clone(),
        etag: base.etag.clone(),
        size: size.or(old.as_ref().map(|old| old.size)).unwrap_or_default(),
        number: old.as_ref().map_or(0, |old| old.number),
        content: base.content,
        attributes: base.attributes,
    };
    if old.as_ref() != Some(&object) {
        writes.push(Write::Put { key: key::upstream_object(ino), value: object.encode() });
    }
    file.object = Some(object);
}
