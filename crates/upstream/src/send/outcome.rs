//! What the outcome of a request changes in the rows.
//!
//! Invariants: O1 the object of a file, its number and its dirty row change in one batch.
//!             O2 a file keeps the number of its bytes when it is sent: extents that still have it are at offsets where the new
//!                object has the same bytes, since a file gets local bytes before it is written.
//! Locking:    the table of files, over the commit.

use std::collections::HashMap;
use std::time::Duration;

use margay_client::ClientError;
use margay_client::upstream::Described;
use margay_meta::Write;
use margay_rows::record::{UpstreamLeftover, UpstreamObject};
use margay_rows::{Ino, key};

use super::Sender;
use super::kept::draft_gone;
use super::request::{Sent, Unsent};
use super::write_id::state_in;
use crate::attributes::write_id_of;
use crate::plan::{self, Action, PlannedRequest};
use crate::tracked::{File, Files, commit, dirty_write, object_gone};

/// Wait after the first failure; it doubles.
const RETRY_AFTER: Duration = Duration::from_secs(1);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);
/// A file that cannot be read counts as refused after so many tries.
const UNREADABLE_TRIES_MAX: u32 = 4;
/// Wait after a refusal.
const REFUSED_AFTER: Duration = Duration::from_secs(300);

impl Sender {
    /// The request succeeded.
    pub(super) fn finished(&self, request: &PlannedRequest, sent: &Sent) {
        self.tracked.answered();
        let mut files = self.tracked.files.lock();
        let gone = self.take_outcome(&mut files, request, sent).unwrap_or_else(|error| {
            // The object is there; the next try finds it by its write id.
            tracing::error!(%error, key = request.key, "the outcome of a request could not be stored");
            postpone(&mut files, request, &error.to_string(), false);
            Vec::new()
        });
        drop(files);
        self.drop_bytes(&gone);
        self.tracked.settled.notify([Some(request.file), request.replaces].into_iter().flatten().map(Ino));
    }

    /// Returns the names of kept bytes that are not needed any more.
    fn take_outcome(
        &self,
        files: &mut Files,
        request: &PlannedRequest,
        outcome: &Sent,
    ) -> Result<Vec<String>, margay_meta::EngineError> {
        let inos: Vec<Ino> = [Some(request.file), request.replaces].into_iter().flatten().map(Ino).collect();
        let planned = inos.iter().filter_map(|ino| {
            let file = files.table.get(*ino)?;
            let mut planned = file.planned(*ino, false);
            // The name matters to `finish` only as being there.
            if file.kept.is_empty() {
                planned.local = file.state.filter(|_| file.dirty.name.is_some()).map(|state| plan::Local {
                    key: String::new(),
                    content: state.content,
                    attributes: state.attributes,
                });
            }
            Some((ino.0, planned))
        });
        let mut planned: HashMap<u64, plan::Dirty> = planned.collect();
        let changed = plan::finish(&mut planned, request, &outcome.etag);
        let (mut writes, mut finished, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for ino in changed {
            let (Some(one), Some(file)) = (planned.get(&ino), files.table.get(Ino(ino))) else { continue };
            let mut file = file.clone();
            if ino == request.file && request.action != Action::Delete {
                // Who waits for a change since then still waits.
                file.now &= file.since_sent.is_some() || !file.kept.is_empty();
                (file.in_progress, file.tries, file.failure) = (false, 0, None);
                (file.sending, file.dirty.sent, file.lacks_since) = (None, None, files.now());
            }
            file.since_sent = one.since_sent;
            match file.kept.first_mut() {
                // What changed since then may be of a later epoch, and it is not known whether the bucket has this one.
                Some(kept) => kept.since = one.since.min(kept.changed),
                None => file.dirty.since = one.since,
            }
            file.dirty.leftovers = one.leftovers.iter().map(|left| identified(left, &file)).collect();
            let sent = (ino == request.file && request.action != Action::Delete).then_some(outcome);
            set_object(&mut file, Ino(ino), one, sent, &mut writes);
            gone.extend(draft_gone(Ino(ino), &file.drop_sent(), &mut writes));
            finished.push((Ino(ino), file));
        }
        let mut done = Vec::new();
        for (ino, file) in &finished {
            if file.is_done() {
                writes.push(Write::Delete { key: key::upstream_dirty(*ino) });
                done.push(*ino);
            } else {
                writes.push(dirty_write(*ino, file));
            }
        }
        commit(&*self.tracked.below, writes)?;
        let answered = outcome.answered.unwrap_or_else(|| files.now());
        files.note_recent(&request.key, answered);
        finished.into_iter().for_each(|(ino, file)| files.table.put(ino, file));
        done.iter().for_each(|ino| drop(files.table.remove(*ino)));
        Ok(gone)
    }

    /// The request failed.
    pub(super) async fn failed(&self, request: &PlannedRequest, unsent: Unsent) {
        let status = match &unsent {
            Unsent::Changed => {
                self.let_go(request, false);
                self.tracked.wake.notify_one();
                return;
            }
            Unsent::Lost => return self.conflict(request, true).await,
            Unsent::Overtaken => return self.conflict(request, false).await,
            Unsent::Local(_) => None,
            Unsent::Bucket(error) => error.status(),
        };
        // A bucket that is gone says nothing of its keys.
        let is_bucket_gone =
            matches!(&unsent, Unsent::Bucket(ClientError::Refused(refusal)) if refusal.code == "NoSuchBucket");
        // It stays in progress until it is decided. With If-Match, stores say of a missing object that it is missing.
        if matches!(status, Some(404 | 412)) && !is_bucket_gone {
            return self.conflict(request, false).await;
        }
        // A refusal is an answer; anything else may have been done, also what an answer 200 tells of in its body.
        let says_nothing = |status| status == 200 || status >= 500;
        let may_be_done = matches!(unsent, Unsent::Bucket(_)) && status.is_none_or(says_nothing);
        self.let_go(request, may_be_done);
        let is_refused = matches!(status, Some(400 | 401 | 403 | 405 | 413 | 501)) && !is_of_way(&unsent);
        // What cannot be read here must not hold up others for ever.
        let is_unreadable = matches!(unsent, Unsent::Local(_)) && self.tries(request) >= UNREADABLE_TRIES_MAX;
        self.postponed(request, &unsent.to_string(), is_refused || is_unreadable);
    }

    fn tries(&self, request: &PlannedRequest) -> u32 {
        self.tracked.files.lock().table.get(Ino(request.file)).map_or(0, |file| file.tries)
    }

    /// The request is over.
    fn let_go(&self, request: &PlannedRequest, may_be_done: bool) {
        if request.action == Action::Delete {
            return;
        }
        self.tracked.files.lock().table.edit(Ino(request.file), |file| {
            (file.in_progress, file.since_sent, file.sending) = (false, None, None);
            if may_be_done {
                file.dirty.sent = Some(request.key.clone());
            }
        });
    }

    /// Whether the write of a file to a key, where it is no longer wanted, succeeded.
    pub(super) async fn ask(&self, request: &PlannedRequest) {
        let there = match self.upstream.describe(&request.key).await {
            Ok(there) => there,
            Err(error) => return self.postponed(request, &error.to_string(), false),
        };
        self.tracked.answered();
        // A copy that is set aside has the metadata of its source, and nobody else puts anything there.
        let is_aside = self.tracked.files.lock().paths.is_temporary(&request.key);
        let own = there.filter(|there| is_aside || self.is_unknown_own(request, there));
        let mut files = self.tracked.files.lock();
        let now = files.now();
        files.note_recent(&request.key, now);
        let ended = |file: &mut File| (file.in_progress, file.since_sent, file.dirty.sent) = (false, None, None);
        if files.table.edit(Ino(request.file), ended).is_none() {
            return;
        }
        let gone = self.note_found(&mut files, request, own.as_ref());
        drop(files);
        self.drop_bytes(&gone);
        self.tracked.wake.notify_one();
    }

    /// Stores a file, with the object of it that was found, if any. Returns the names of kept bytes that are not needed any more.
    pub(super) fn note_found(
        &self,
        files: &mut Files,
        request: &PlannedRequest,
        there: Option<&Described>,
    ) -> Vec<String> {
        let (ino, mut writes) = (Ino(request.file), Vec::new());
        if let Some(there) = there {
            take_found(files, request, there, &mut writes);
        }
        let sent = files.table.edit(ino, File::drop_sent).unwrap_or_default();
        let gone = draft_gone(ino, &sent, &mut writes);
        writes.extend(files.table.get(ino).map(|file| dirty_write(ino, file)));
        if let Err(error) = commit(&*self.tracked.below, writes) {
            tracing::error!(%error, "what the bucket has could not be noted");
        }
        gone
    }

    pub(super) fn postponed(&self, request: &PlannedRequest, why: &str, is_refused: bool) {
        if is_refused {
            self.forget_kept_of(request.file);
        }
        let (now, is_nothing) = {
            let mut files = self.tracked.files.lock();
            postpone(&mut files, request, why, is_refused);
            (files.now(), files.table.get(Ino(request.file)).is_some_and(File::is_nothing))
        };
        if is_nothing {
            // It was removed meanwhile, and the bucket never had it.
            return self.ended(request);
        }
        self.tracked.told.tell(now, &request.key, why, is_refused);
        self.tracked.settled.notify([Ino(request.file)]);
    }
}

/// Whether the bytes did not arrive as they were sent. The next time they may, so it is no refusal of them.
fn is_of_way(unsent: &Unsent) -> bool {
    const CODES: [&str; 4] = ["BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"];
    matches!(unsent, Unsent::Bucket(ClientError::Refused(refusal)) if CODES.contains(&refusal.code.as_str()))
}

/// What is to be removed, with what tells it from other objects with the same bytes.
fn identified(left: &plan::Leftover, file: &File) -> UpstreamLeftover {
    let plan::Leftover { key, etag, since } = left.clone();
    let known = file.dirty.leftovers.iter().find(|known| known.key == key && known.etag == etag);
    let object = file.object.as_ref().filter(|object| object.key == key && object.etag == etag);
    let (write_id, modified) = known
        .map(|known| (known.write_id.clone(), known.modified))
        .or_else(|| object.map(|object| (object.write_id.clone(), object.modified)))
        .unwrap_or_default();
    UpstreamLeftover { key, etag, since, write_id, modified }
}

fn postpone(files: &mut Files, request: &PlannedRequest, why: &str, is_refused: bool) {
    let now = files.now();
    files.table.edit(Ino(request.file), |file| {
        if request.action != Action::Delete {
            (file.in_progress, file.since_sent, file.sending) = (false, None, None);
        }
        let wait = (RETRY_AFTER * 2u32.saturating_pow(file.tries.min(16))).min(RETRY_AFTER_MAX);
        file.due_at = now + if is_refused { REFUSED_AFTER } else { wait };
        file.tries += 1;
        file.is_refused = is_refused;
        file.failure = Some(why.to_owned());
        file.now = false;
    });
}

/// An object of the file was found that the rows did not know. Whoever had the key before has it no more.
fn take_found(files: &mut Files, request: &PlannedRequest, there: &Described, writes: &mut Vec<Write>) {
    let ino = Ino(request.file);
    forget_others(files, request, writes);
    let (key, etag) = (request.key.clone(), there.etag.clone());
    files.table.edit(ino, |file| match &mut file.object {
        Some(object) if object.key != request.key => {
            file.dirty.leftovers.retain(|left| left.key != key);
            let (since, write_id) = (file.dirty.changed, write_id_of(there).to_owned());
            file.dirty.leftovers.push(UpstreamLeftover { key, etag, since, write_id, modified: 0 });
        }
        object => {
            let number = object.as_ref().map_or(0, |object| object.number);
            let (write_id, size) = (write_id_of(there).to_owned(), there.size);
            let (content, attributes) = state_in(&write_id);
            let found = UpstreamObject { key, etag, write_id, size, number, content, attributes, modified: 0 };
            writes.push(Write::Put { key: key::upstream_object(ino), value: found.encode() });
            *object = Some(found);
        }
    });
}

/// Files that were removed or moved away, and whose object under the key the found one has replaced.
fn forget_others(files: &mut Files, request: &PlannedRequest, writes: &mut Vec<Write>) {
    for ino in files.table.with_key(&request.key).into_iter().filter(|ino| ino.0 != request.file) {
        files.table.edit(ino, |file| {
            let left = file.dirty.leftovers.len();
            file.dirty.leftovers.retain(|left| left.key != request.key);
            let is_gone = file.dirty.name.is_none();
            let old = file.object.take_if(|object| is_gone && object.key == request.key);
            if old.is_some() || left != file.dirty.leftovers.len() {
                writes.push(dirty_write(ino, file));
            }
            writes.extend(old.iter().flat_map(|old| object_gone(ino, old)));
        });
        files.table.remove_nothing(ino);
    }
}

/// Drafts the object of a file as the planner left it; `sent`: if it was made now.
fn set_object(file: &mut File, ino: Ino, one: &plan::Dirty, sent: Option<&Sent>, writes: &mut Vec<Write>) {
    let old = file.object.take();
    let Some(base) = &one.base else {
        writes.extend(old.iter().flat_map(|old| object_gone(ino, old)));
        return;
    };
    let write_id = sent.and_then(|sent| sent.write_id.clone()).or_else(|| Some(old.as_ref()?.write_id.clone()));
    let size = sent.and_then(|sent| sent.size).or_else(|| Some(old.as_ref()?.size));
    let object = UpstreamObject {
        key: base.key.clone(),
        etag: base.etag.clone(),
        write_id: write_id.unwrap_or_default(),
        size: size.unwrap_or_default(),
        number: old.as_ref().map_or(0, |old| old.number),
        content: base.content,
        attributes: base.attributes,
        // The answer to a write does not tell it.
        modified: if sent.is_some() { 0 } else { old.as_ref().map_or(0, |old| old.modified) },
    };
    if old.as_ref() != Some(&object) {
        writes.push(Write::Put { key: key::upstream_object(ino), value: object.encode() });
    }
    file.object = Some(object);
}
