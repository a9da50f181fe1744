//! The bucket has something else under a key than what was sent there last.
//!
//! Why:        somebody else changed the object, or an answer of ours was lost.
//! Invariants: C1 no content is lost: the object stays under its name, and what is here gets another name beside it. A file that
//!                was only renamed here, or got other attributes, and whose bytes are gone there, has what is there (follow).
//!             C2 an object with the write id of this request, or of one whose outcome is not in the rows, is its own.
//!             C3 a key counts as gone only when the store says so of the key (`NoSuchKey`).
//! Not here:   clocks: they decide nothing.

use margay_client::ClientError;
use margay_client::upstream::{Described, Wanted};
use margay_env::Timestamp;
use margay_rows::Ino;
use margay_volume::WriteCondition;

use super::Sender;
use super::kept::draft_gone;
use super::marker::is_marker;
use super::request::{Sent, Unsent};
use super::write_id::state_in;
use crate::attributes::write_id_of;
use crate::list::parse_etag;
use crate::plan::{Action, PlannedRequest, Required};
use crate::runtime::alone;
use crate::tracked::{File, MARKER, commit, content_of, dirty_write, object_gone};

impl Sender {
    /// A condition of a write did not hold, or the source of a copy is gone; `is_lost`: the bytes of the file are known to be.
    /// The request is in progress until this returns.
    pub(super) async fn conflict(&self, request: &PlannedRequest, is_lost: bool) {
        let decided = match is_lost {
            true => self.follow(request, None).map(|_| true),
            false => self.check_source(request).await,
        };
        match decided {
            Ok(true) => self.ended(request),
            Ok(false) => self.check_target(request).await,
            Err(unsent) => self.undecided(request, &unsent),
        }
    }

    /// It is decided later. The request may have arrived twice, and the second time its own object was in the way.
    fn undecided(&self, request: &PlannedRequest, why: &Unsent) {
        let may_be_there = |file: &mut File| file.dirty.sent = Some(request.key.clone());
        self.tracked.files.lock().table.edit(Ino(request.file), may_be_there);
        self.postponed(request, &why.to_string(), false);
    }

    /// The object is an older state of the file: who waits for a change that it has not, waits on.
    fn still_lacks(&self, request: &PlannedRequest) {
        self.tracked.files.lock().table.edit(Ino(request.file), |file| {
            file.since_sent = Some(file.kept.first().map_or(file.dirty.since, |kept| kept.since));
        });
    }

    /// Whatever is under the key, this file has not made it.
    fn is_not_own(&self, request: &PlannedRequest) {
        self.tracked.files.lock().table.edit(Ino(request.file), |file| file.sending = None);
    }

    /// True if the source of a copy was removed or replaced, and what follows is done.
    async fn check_source(&self, request: &PlannedRequest) -> Result<bool, Unsent> {
        let (Action::Copy { from, etag } | Action::SetAside { from, etag }) = &request.action else { return Ok(false) };
        let there = self.upstream.describe(from).await?;
        if there.as_ref().is_some_and(|there| there.etag == *etag) {
            return Ok(false);
        }
        if let Some(there) = there.as_ref().filter(|there| self.is_unknown_own(request, there)) {
            let of_source = PlannedRequest { key: from.clone(), ..request.clone() };
            let gone = self.note_found(&mut self.tracked.files.lock(), &of_source, Some(there));
            self.drop_bytes(&gone);
            return Ok(true);
        }
        if there.is_none() {
            self.check_gone(from).await?;
        }
        if *from != request.key && self.was_made(request).await? {
            return Ok(false);
        }
        if self.is_far(request.file)? {
            let follows = self.follow(request, Some((from, there.as_ref())))?;
            if let Some(there) = there.as_ref().filter(|_| !follows) {
                self.show(from, there);
            }
            return Ok(true);
        }
        if *from == request.key && there.is_some() {
            return Ok(false);
        }
        // The bytes are here, so they are sent.
        self.forget_objects(&PlannedRequest { key: from.clone(), replaces: None, ..request.clone() });
        if let Some(there) = &there {
            self.show(from, there);
        }
        Ok(true)
    }

    /// Whether a copy was made whose answer was lost: then it does not matter what became of its source since.
    async fn was_made(&self, request: &PlannedRequest) -> Result<bool, Unsent> {
        let there = self.upstream.describe(&request.key).await?;
        Ok(there.is_some_and(|there| self.is_of_request(request, &there) || self.is_unknown_own(request, &there)))
    }

    async fn check_target(&self, request: &PlannedRequest) {
        let now = || Unsent::Local("the bucket has what the request required: it is sent again".to_owned());
        let decided = match self.upstream.describe(&request.key).await {
            Ok(Some(there)) if self.is_required(request, &there) => Err(now()),
            Ok(None) if request.required == Required::Absent => Err(now()),
            Ok(Some(there)) => match self.own_state(request, &there) {
                Some((content, attributes)) => {
                    if let Err(unsent) = self.adopt(request, &there).await {
                        return self.undecided(request, &unsent);
                    }
                    if (content, attributes) != (request.content, request.attributes) {
                        self.still_lacks(request);
                    }
                    let own = PlannedRequest { content, attributes, ..request.clone() };
                    let write_id = Some(write_id_of(&there).to_owned());
                    let (etag, size) = (there.etag, Some(there.size));
                    return self.finished(&own, &Sent { etag, size, write_id, ..Sent::default() });
                }
                None => {
                    self.is_not_own(request);
                    self.forget_kept_of(request.file);
                    self.forget_objects(request);
                    let is_aside = self.step_aside(request, &there).await;
                    // What was synced is kept by its change of the name.
                    self.forget_kept_of(request.file);
                    is_aside
                }
            },
            // Removed there, changed here: it is made again.
            Ok(None) => self.check_gone(&request.key).await.map(|()| self.forget_objects(request)),
            Err(error) => Err(error.into()),
        };
        match decided {
            Ok(()) => self.ended(request),
            Err(unsent) => self.undecided(request, &unsent),
        }
    }

    /// Not if somebody has put the same bytes there again: in between there was something else, perhaps this request's own object.
    pub(super) fn is_required(&self, request: &PlannedRequest, there: &Described) -> bool {
        matches!(&request.required, Required::Etag(etag) if *etag == there.etag) && self.is_known(&request.key, there)
    }

    /// A HEAD says nothing else of a bucket that is gone, or of a gateway that is misled.
    pub(super) async fn check_gone(&self, key: &str) -> Result<(), Unsent> {
        match self.upstream.get(key, 0..1, Wanted::Any).await {
            Err(ClientError::Refused(refusal)) if refusal.code == "NoSuchKey" => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Unsent::Local(format!("{key} comes and goes"))),
        }
    }

    /// The content and attributes that the object has of this file; 0 for what is not known. `None`: it is somebody else's.
    fn own_state(&self, request: &PlannedRequest, there: &Described) -> Option<(u64, u64)> {
        if self.is_of_request(request, there) {
            return Some((request.content, request.attributes));
        }
        if is_marker(request) {
            // Two made the same directory, or an earlier state of ours is there.
            return Some((MARKER, 0));
        }
        if self.is_unknown_own(request, there) {
            return Some(state_in(write_id_of(there)));
        }
        (content_of(&parse_etag(&there.etag), there.size) == request.content).then_some((request.content, 0))
    }

    /// A temporary key is of one copy.
    fn is_of_request(&self, request: &PlannedRequest, there: &Described) -> bool {
        matches!(request.action, Action::SetAside { .. }) || write_id_of(there) == self.write_id(request)
    }

    /// Whether the object is of a write of the file whose outcome is not in the rows. One with the write id that they have was
    /// changed since by somebody who kept its metadata.
    pub(super) fn is_unknown_own(&self, request: &PlannedRequest, there: &Described) -> bool {
        let id = write_id_of(there);
        let files = self.tracked.files.lock();
        let known = files.table.get(Ino(request.file)).and_then(|file| file.object.as_ref());
        id.starts_with(&self.file_id(Ino(request.file))) && known.is_none_or(|known| known.write_id != id)
    }

    /// It is not in progress any more, and may be planned again.
    pub(super) fn ended(&self, request: &PlannedRequest) {
        let ino = Ino(request.file);
        let mut files = self.tracked.files.lock();
        let gone = files.table.edit(ino, |file| {
            (file.in_progress, file.since_sent, file.sending) = (false, None, None);
            file.is_nothing().then(|| dirty_write(ino, file))
        });
        if let Some(row) = gone.flatten() {
            files.table.remove(ino);
            if let Err(error) = commit(&*self.tracked.below, vec![row]) {
                tracing::error!(%error, "the row of a file that is gone stays");
            }
        }
        drop(files);
        self.tracked.settled.notify([ino]);
        self.tracked.wake.notify_one();
    }

    /// What the rows say of the key is no longer so. What was kept of a file whose bytes its object had cannot be sent.
    pub(super) fn forget_objects(&self, request: &PlannedRequest) {
        let mut files = self.tracked.files.lock();
        let (mut writes, mut gone) = (Vec::new(), Vec::new());
        let other = request.replaces.filter(|other| *other != request.file);
        for ino in [Some(request.file), other].into_iter().flatten().map(Ino) {
            files.table.edit(ino, |file| {
                if let Some(object) = file.object.take_if(|object| object.key == request.key) {
                    writes.extend(object_gone(ino, &object));
                    file.removal_may_be_done = true;
                    gone.extend(draft_gone(ino, &file.drop_without_bytes(), &mut writes));
                }
                file.dirty.leftovers.retain(|left| left.key != request.key);
                writes.push(dirty_write(ino, file));
            });
            files.table.remove_nothing(ino);
        }
        if let Err(error) = commit(&*self.tracked.below, writes) {
            tracing::error!(%error, "a conflict could not be noted");
        }
        drop(files);
        self.drop_bytes(&gone);
    }

    /// Enters an object of somebody else, if its name is free.
    fn show(&self, object_key: &str, there: &Described) {
        if let Err(error) = self.listing.enter_key(object_key, there) {
            tracing::warn!(error, key = object_key, "what is in the bucket is not shown here");
        }
    }

    /// What is here gets another name; what is there comes in under the name. A file that has another name by now is sent under
    /// that one.
    async fn step_aside(&self, request: &PlannedRequest, there: &Described) -> Result<(), Unsent> {
        let local = self.tracked.files.lock().paths.local(&request.key).to_owned();
        if self.entry_of(request.file)?.is_none_or(|(now, _)| now != local) {
            self.show(&request.key, there);
            return Ok(());
        }
        for number in 1..100u32 {
            let aside = format!("{local}{}", self.mark(number));
            match alone(self.volume.rename(&self.bucket, &local, &aside, &WriteCondition::Absent)).await {
                Ok(_) => {
                    tracing::warn!(key = request.key, kept_as = aside, "changed here and in the bucket: both are kept");
                    self.conflicts.lock().push(aside);
                    self.show(&request.key, there);
                    return Ok(());
                }
                Err(margay_volume::Error::PreconditionFailed) => {}
                Err(margay_volume::Error::NoSuchKey) => return Ok(()),
                Err(error) => return Err(Unsent::Local(error.to_string())),
            }
        }
        Err(Unsent::Local("no name is free for what is here".to_owned()))
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
        if let Some(there) = there.as_ref().filter(|there| self.is_unknown_own(request, there)) {
            return self.removes_instead(request, &there.etag);
        }
        if let Some(there) = &there {
            tracing::warn!(key = request.key, "removed here, changed in the bucket: what is there stays");
            self.show(&request.key, there);
        }
        self.finished(request, &Sent::default());
    }

    /// The object is of this file, from a write whose answer was lost: it is removed under its ETag of now.
    fn removes_instead(&self, request: &PlannedRequest, etag: &str) {
        self.tracked.files.lock().table.edit(Ino(request.file), |file| {
            let left = file.dirty.leftovers.iter_mut().filter(|left| left.key == request.key);
            left.for_each(|left| etag.clone_into(&mut left.etag));
            if let Some(object) = file.object.as_mut().filter(|object| object.key == request.key) {
                etag.clone_into(&mut object.etag);
            }
        });
        self.tracked.wake.notify_one();
    }
}

/// `20261122T101500Z`.
fn utc(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(at.0.into()).unwrap_or_default();
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}
