//! Removals of objects: many in one request.
//!
//! Invariants: X1 a removal that may have been made already, by an earlier process or by a request whose answer was lost, is not
//!                made again before the object is known to be the one that was meant. Somebody may have moved the same bytes under
//!                the key meanwhile, and they have the same ETag. The same holds when the object under the new key is gone: the
//!                one who took it may have put its bytes back.
//!             X2 such a removal of what a rename has left goes only while the file is under its new key.
//!             X3 where the store ignores the condition, a listing or a HEAD has just shown the object that is meant.
//! Not here:   when a removal is due (plan), what was changed by others (conflict).

use std::collections::{HashMap, HashSet};

use margay_client::ClientError;
use margay_client::upstream::{Described, StateOf, Upstream, goes_together};
use margay_rows::Ino;
use margay_rows::record::{UpstreamLeftover, UpstreamObject};
use tokio::task::JoinSet;

use super::request::{Sent, etag_of};
use super::{Sender, listed};
use crate::attributes::{write_id_of, written_ms};
use crate::plan::PlannedRequest;
use crate::tracked::File;

/// What is known of a file of which a removal may have been made already.
struct Doubt {
    own: Option<UpstreamObject>,
    left: Option<UpstreamLeftover>,
    /// Begins the ids of all its writes.
    file_id: String,
    has_name: bool,
}

/// What a key has of which an object is to be removed.
enum Meant {
    Remains,
    IsGone,
    IsAnother,
}

impl Sender {
    /// Asks for each key first, if the store would remove whatever is there, or if it may have been done.
    pub(super) async fn remove(&self, requests: &[PlannedRequest]) {
        let mut left = Vec::with_capacity(requests.len());
        for (request, meant) in self.are_meant(requests).await {
            match meant {
                Ok(Meant::Remains) => left.push(request),
                // Somebody may put something there before a request would arrive.
                Ok(Meant::IsGone) => self.finished(&request, &Sent::default()),
                Ok(Meant::IsAnother) => self.changed_there(&request).await,
                Err(error) => self.postponed(&request, &error.to_string(), false),
            }
        }
        if !left.is_empty() {
            self.remove_now(&left).await;
        }
    }

    /// In one request, but for keys that it cannot name. Each request has an outcome of its own (X1).
    async fn remove_now(&self, requests: &[PlannedRequest]) {
        let (together, mut alone): (Vec<_>, Vec<_>) = requests.iter().partition(|one| goes_together(&one.key));
        let states: Vec<_> = together.iter().map(|request| state_of(request)).collect();
        let sent = if states.is_empty() { Ok(Vec::new()) } else { self.upstream.delete_objects_once(&states).await };
        match sent {
            Ok(kept) => {
                let kept: HashMap<&str, &str> = kept.iter().map(|(key, code)| (key.as_str(), code.as_str())).collect();
                for request in together {
                    self.removed(request, kept.get(request.key.as_str()).copied()).await;
                }
            }
            // Nothing of it was done, and one key may be the reason.
            Err(error) if error.code() == Some("MalformedXML") => alone.extend(together),
            Err(error) => together.iter().for_each(|request| self.not_removed(request, &error)),
        }
        for request in alone {
            match self.upstream.delete_object_once(state_of(request)).await {
                Ok(code) => self.removed(request, code.as_deref()).await,
                Err(error) => self.not_removed(request, &error),
            }
        }
    }

    /// The store has answered; with a code if the object is still there.
    async fn removed(&self, request: &PlannedRequest, code: Option<&str>) {
        match code {
            None | Some("NoSuchKey") => self.finished(request, &Sent::default()),
            Some("PreconditionFailed") => self.changed_there(request).await,
            Some(code) => self.postponed(request, code, code == "AccessDenied"),
        }
    }

    fn not_removed(&self, request: &PlannedRequest, error: &ClientError) {
        let may_be_done = error.may_be_done();
        let mark = |file: &mut File| file.removal_may_be_done |= may_be_done;
        self.tracked.files.lock().table.edit(Ino(request.file), mark);
        self.postponed(request, &error.to_string(), false);
    }

    /// Whether each key has the object that is to be removed, as far as that is not left to the store.
    async fn are_meant(&self, requests: &[PlannedRequest]) -> Vec<(PlannedRequest, Result<Meant, ClientError>)> {
        let (mut asked, mut all) = (JoinSet::new(), Vec::with_capacity(requests.len()));
        let doubted: Vec<_> = requests.iter().map(|request| (request, self.doubt(request))).collect();
        let unsure = doubted.iter().filter(|(request, doubt)| doubt.is_none() && !self.is_left_to_the_store(request));
        let unsure: Vec<_> = unsure.map(|(request, _)| state_of(request)).collect();
        // What it does not show is asked for, and so is everything if it fails.
        let seen = if unsure.len() < listed::WORTH {
            HashSet::new()
        } else {
            listed::seen(&self.upstream, unsure).await.unwrap_or_default()
        };
        for (request, doubt) in doubted {
            if doubt.is_none() && (self.is_left_to_the_store(request) || seen.contains(&request.key)) {
                all.push((request.clone(), Ok(Meant::Remains)));
                continue;
            }
            let (upstream, request) = (self.upstream.clone(), request.clone());
            asked.spawn(async move {
                let meant = meant(&upstream, &request, doubt.as_ref()).await;
                (request, meant)
            });
        }
        all.extend(asked.join_all().await);
        all
    }

    fn doubt(&self, request: &PlannedRequest) -> Option<Doubt> {
        let files = self.tracked.files.lock();
        // Nobody else puts anything under a temporary key.
        if files.paths.is_temporary(&request.key) {
            return None;
        }
        let file = files.table.get(Ino(request.file)).filter(|file| file.removal_may_be_done)?;
        let (own, has_name) = (file.object.clone(), file.dirty.name.is_some());
        let left = file.dirty.leftovers.iter().find(|left| left.key == request.key).cloned();
        Some(Doubt { own, left, file_id: self.file_id(Ino(request.file)), has_name })
    }
}

fn state_of(request: &PlannedRequest) -> StateOf<'_> {
    StateOf { key: &request.key, etag: etag_of(request) }
}

async fn meant(upstream: &Upstream, request: &PlannedRequest, doubt: Option<&Doubt>) -> Result<Meant, ClientError> {
    let Some(there) = upstream.describe(&request.key).await? else { return Ok(Meant::IsGone) };
    if there.etag != etag_of(request) {
        return Ok(Meant::IsAnother);
    }
    let is_meant = match doubt {
        Some(doubt) => is_meant(upstream, (request, &there), doubt).await?,
        None => true,
    };
    Ok(if is_meant { Meant::Remains } else { Meant::IsAnother })
}

/// Of an object with the ETag of the one that is to be removed.
async fn is_meant(
    upstream: &Upstream,
    (request, there): (&PlannedRequest, &Described),
    doubt: &Doubt,
) -> Result<bool, ClientError> {
    let (write_id, own) = (write_id_of(there), doubt.own.as_ref());
    if write_id.starts_with(&doubt.file_id) && own.is_none_or(|own| write_id != own.write_id) {
        // An older write of the file itself.
        return Ok(true);
    }
    let written_ms = written_ms(&there.headers);
    if let Some(own) = own.filter(|own| own.key == request.key) {
        return Ok(is_same_object((&own.write_id, own.modified), write_id, written_ms));
    }
    if let Some(left) = &doubt.left
        && !is_same_object((&left.write_id, left.modified), write_id, written_ms)
    {
        return Ok(false);
    }
    let Some(own) = own.filter(|_| doubt.has_name) else { return Ok(true) };
    let moved = upstream.describe(&own.key).await?;
    Ok(moved.is_some_and(|moved| moved.etag == own.etag))
}

impl Sender {
    /// Whether an object with the ETag that the rows know under the key is the one that they know.
    pub(super) fn is_known(&self, key: &str, there: &Described) -> bool {
        let files = self.tracked.files.lock();
        let (written_by, written_ms) = (write_id_of(there), written_ms(&there.headers));
        files.table.with_key(key).into_iter().filter_map(|ino| files.table.get(ino)).all(|file| {
            let own = file.object.iter().map(|own| (&own.key, &own.etag, &own.write_id, own.modified));
            let left = file.dirty.leftovers.iter().map(|left| (&left.key, &left.etag, &left.write_id, left.modified));
            let mut same = own.chain(left).filter(|(of, etag, ..)| *of == key && **etag == there.etag);
            same.all(|(.., id, modified)| is_same_object((id, modified), written_by, written_ms))
        })
    }
}

/// Whether an object with the ETag that the rows know is the object that they know. HEAD tells whole seconds.
fn is_same_object((known_id, known_ms): (&str, u64), write_id: &str, written_ms: u64) -> bool {
    let is_known_time = write_id.is_empty() && known_ms != 0 && written_ms != 0;
    known_id == write_id && (!is_known_time || known_ms / 1000 == written_ms / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_bytes_written_again_are_another_object() {
        assert!(is_same_object(("0-5-1", 0), "0-5-1", 7000));
        assert!(!is_same_object(("0-5-1", 0), "1-9-2", 7000) && !is_same_object(("", 7123), "1-9-2", 7000));
        assert!(is_same_object(("", 7123), "", 7000) && !is_same_object(("", 7123), "", 8000));
        assert!(is_same_object(("", 0), "", 8000) && is_same_object(("", 7123), "", 0), "nobody knows");
    }
}
