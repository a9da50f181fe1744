//! Which conditions a store honours, found out at each start; and objects that an earlier process has left behind.
//!
//! Why:        a store that ignores a condition answers 200 and overwrites: silence is the trap.
//! Examples:   AWS, margay: all. Garage, LeoFS: none. MinIO: no removal and no copy.
//! Invariants: B1 what is not known to be honoured is not relied on: the key is asked for before the request. Between the two
//!                somebody else may change it; nothing better can be had there. Where nobody else writes (`writers=one`) it is
//!                not asked for.
//!             B2 only temporary keys are written, and removed.
//!             B3 a process that begins while the bucket does not answer sends nothing until it does, and asks it first. Until
//!                then nothing is known to be honoured, and a request without an answer would wait for minutes.
//!             B4 a write that may have been made already, by an earlier process or by a request whose answer was lost, replaces an
//!                object only if that is the one that the rows know, and so does a file that moves onto an object. Somebody may
//!                have moved the old bytes back, or moves them too, and they have the ETag that is required.
//! Not here:   what a condition that does not hold leads to (conflict).

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use margay_client::client::{DELETE_KEYS_MAX, ListQuery, PAGE_KEYS_MAX};
use margay_client::upstream::{Metadata, OpenUpload, Source, StateOf, Upstream};
use margay_client::{ClientError, Condition};
use margay_rows::Ino;

use super::Sender;
use super::request::{Unsent, condition};
use crate::opens::Writers;
use crate::plan::{Action, PlannedRequest, Required};
use crate::tracked::File;

/// An ETag that no object of the probe has.
const WRONG: &str = "\"00000000000000000000000000000000\"";

/// A store that did not answer is asked again after this time.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Conditions of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Honoured {
    /// The store has answered.
    is_known: bool,
    /// A PUT of a key without an object.
    create: bool,
    /// A PUT in place of an object.
    replace: bool,
    copy: bool,
    delete: bool,
    /// It copies objects at all.
    copies: bool,
    /// It copies parts, and checks the state of their source.
    copies_parts: bool,
    /// The completion of an upload.
    complete: bool,
}

/// A byte.
struct One;

impl Source for One {
    async fn read(&self, _range: Range<u64>) -> io::Result<Bytes> {
        Ok(Bytes::from_static(b"1"))
    }
}

impl Honoured {
    pub(super) fn copies(self) -> bool {
        self.copies
    }

    pub(super) fn copies_parts(self) -> bool {
        self.copies_parts
    }

    fn all(self) -> bool {
        self.create && self.replace && self.copy && self.delete && self.complete
    }

    /// By name; `None`: not known yet.
    pub(crate) fn named(self) -> Option<[(&'static str, bool); 4]> {
        let named = [("create", self.create), ("replace", self.replace), ("copy", self.copy), ("remove", self.delete)];
        self.is_known.then_some(named)
    }

    /// Whether the request may rely on its condition.
    pub(super) fn covers(self, request: &PlannedRequest) -> bool {
        match (&request.action, &request.required) {
            // Nobody else writes temporary keys.
            (Action::SetAside { .. }, _) => true,
            (Action::Delete, _) => self.delete,
            (Action::Copy { .. }, _) => self.copy,
            (Action::Put, Required::Absent) => self.create,
            (Action::Put, Required::Etag(_)) => self.replace,
        }
    }
}

/// Whether an answer refuses by the condition.
fn is_refused<T>(answer: Result<T, ClientError>) -> Result<bool, ClientError> {
    match answer {
        Ok(_) => Ok(false),
        Err(error) if error.status() == Some(412) => Ok(true),
        Err(error) => Err(error),
    }
}

impl Sender {
    /// Asks the store, and again later if it does not answer; meanwhile nothing is assumed.
    pub(super) async fn probe(self: &Arc<Self>) {
        if self.probe_once().await {
            return;
        }
        let own = Arc::clone(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(AGAIN_AFTER).await;
                if own.probe_once().await {
                    return;
                }
            }
        });
    }

    /// Whether the store has answered.
    async fn probe_once(&self) -> bool {
        let found = match self.probe_now().await {
            Ok(found) => found,
            Err(error) => {
                if let Some(left_out) = self.tracked.told.is_news(self.clock.monotonic(), "probe", &error.to_string()) {
                    tracing::warn!(%error, left_out, "what the bucket honours is not known yet: each key is asked for before it is changed");
                }
                return false;
            }
        };
        if !found.all() {
            tracing::warn!(
                ?found,
                "this store ignores conditions: a change by somebody else within one round trip of ours can be overwritten"
            );
        }
        *self.honoured.lock() = found;
        if let Err(error) = self.tidy().await {
            tracing::info!(error, "temporary objects of earlier processes stay in the bucket");
        }
        true
    }

    pub(crate) async fn probe_now(&self) -> Result<Honoured, ClientError> {
        let key = format!("{}probe", self.temporary());
        let (none, upstream) = (Metadata::new(), &self.upstream);
        let put =
            |body: &'static [u8], condition| upstream.put_object(&key, Bytes::from_static(body), condition, &none);
        put(b"1", Condition::Always).await?;
        // Whether listings have attributes is seen, unless somebody has listed already.
        if self.listing.pages.tells_metadata().is_none() {
            // Who may not list finds that out later.
            let _ = self.listing.pages.page((&key, ""), None, true).await;
        }
        let create = is_refused(put(b"2", Condition::Absent).await)?;
        let replace = is_refused(put(b"3", Condition::Same(WRONG)).await)?;
        let (mut copies, mut copy, mut copies_parts, mut complete) = (false, false, false, false);
        if let Some(there) = upstream.describe(&key).await? {
            let from = StateOf { key: &key, etag: &there.etag };
            let (copied, parts) = tokio::join!(probe_copy(upstream, from), self.probe_parts(from));
            ((copies, copy), (copies_parts, complete)) = (copied?, parts);
        }
        let kept = upstream.delete_objects(&[StateOf { key: &key, etag: WRONG }]).await?;
        let delete = kept.iter().any(|(_, code)| code == "PreconditionFailed");
        upstream.delete(&key).await?;
        Ok(Honoured { is_known: true, create, replace, copy, delete, copies, copies_parts, complete })
    }

    /// Whether the store copies parts of one state of an object only, and whether it checks the condition of a completion.
    async fn probe_parts(&self, from: StateOf<'_>) -> (bool, bool) {
        let to = format!("{}-parts", from.key);
        let Ok(begun) = self.begin_upload(&to, &Metadata::new(), 1, None).await else { return (false, false) };
        let wrong = self.upstream.copy_part(&begun.upload, 1, StateOf { etag: WRONG, ..from }, None).await;
        let is_checked = is_refused(wrong).unwrap_or(false);
        let copied = if is_checked { self.upstream.copy_part(&begun.upload, 1, from, None).await.ok() } else { None };
        let copies = copied.is_some();
        let part = match copied {
            Some(etag) => Ok(etag),
            None => self.upstream.send_part(&begun.upload, 1, 0..1, &One).await,
        };
        let Ok(etag) = part else {
            self.abandon(begun).await;
            return (copies, false);
        };
        let complete =
            match self.upstream.complete_upload(&begun.upload, &[etag], Condition::Same(WRONG), &Metadata::new()).await
            {
                Ok(_) => {
                    self.upload_ended(&begun);
                    self.remove_temporary(&to).await;
                    return (copies, false);
                }
                // Some say of an object that is missing that it is.
                Err(ClientError::Refused(refusal)) => refusal.status == 412 || refusal.code == "NoSuchKey",
                Err(_) => false,
            };
        self.abandon(begun).await;
        (copies, complete)
    }

    /// Begins the temporary keys of this process.
    pub(super) fn temporary(&self) -> String {
        self.tracked.files.lock().paths.temporary(&self.id, self.process)
    }

    /// Removes temporary objects of earlier processes of this cache that no row names, and aborts their uploads.
    async fn tidy(&self) -> Result<(), String> {
        let current = self.temporary();
        let own = {
            let files = self.tracked.files.lock();
            format!("{}{}-", files.paths.temporary_directory(), self.id)
        };
        let mut token = None;
        loop {
            let query = ListQuery {
                prefix: &own,
                token: token.as_deref(),
                keys_max: PAGE_KEYS_MAX,
                encoded: true,
                ..ListQuery::default()
            };
            let page = self.upstream.list(&query).await.map_err(|error| error.to_string())?;
            let named = self.named_below(&own);
            let is_left = |key: &String| !named.contains(key) && !key.starts_with(&current);
            let left = page.entries.iter().filter(|entry| is_left(&entry.key));
            let left: Vec<_> = left.map(|entry| StateOf { key: &entry.key, etag: &entry.etag }).collect();
            for some in left.chunks(DELETE_KEYS_MAX) {
                self.upstream.delete_objects(some).await.map_err(|error| error.to_string())?;
            }
            match page.next_token.filter(|_| page.truncated) {
                Some(next) => token = Some(next),
                None => return self.abort_old().await,
            }
        }
    }

    /// Keys with this beginning that rows name.
    fn named_below(&self, beginning: &str) -> BTreeSet<String> {
        let files = self.tracked.files.lock();
        files.touched(beginning, files.now())
    }

    /// Whether nobody here asks for the key of a request before it.
    pub(super) fn is_left_to_the_store(&self, request: &PlannedRequest) -> bool {
        self.writers == Writers::One || self.honoured.lock().covers(request)
    }

    /// Whether the key of a request has what the request requires, asked before it where the store does not check that, and where
    /// the request may have been made already (B4).
    pub(super) async fn holds(&self, request: &PlannedRequest) -> Result<bool, ClientError> {
        if self.replaces_again(request) {
            let there = self.upstream.describe(&request.key).await?;
            return Ok(there.is_some_and(|there| self.is_required(request, &there)));
        }
        if self.is_left_to_the_store(request) {
            return Ok(true);
        }
        is_as_required(&self.upstream, request).await
    }

    /// Whether an object is to be replaced by a file of which a write may have been made that the rows do not know, or by a file
    /// that moves onto it (B4). Attributes alone, a copy of an object to itself, change no bytes.
    fn replaces_again(&self, request: &PlannedRequest) -> bool {
        let may_be_made = |file: &File| file.dirty.sent.is_some();
        let moves = matches!(&request.action, Action::Copy { from, .. } if *from != request.key);
        self.writers == Writers::Many
            && matches!(request.required, Required::Etag(_))
            && (moves || self.tracked.files.lock().table.get(Ino(request.file)).is_some_and(may_be_made))
    }

    /// As `holds`, of a request that is made by a copy.
    pub(super) async fn holds_for_copy(&self, request: &PlannedRequest) -> Result<bool, ClientError> {
        if self.writers == Writers::One || self.honoured.lock().copy {
            return Ok(true);
        }
        is_as_required(&self.upstream, request).await
    }

    /// Completes the upload of a request at its own key, as `holds` asks.
    pub(super) async fn complete(
        &self,
        upload: &OpenUpload,
        etags: &[String],
        request: &PlannedRequest,
        metadata: &Metadata,
    ) -> Result<String, Unsent> {
        let Honoured { is_known, complete, .. } = *self.honoured.lock();
        let is_asked = !complete && self.writers == Writers::Many;
        if is_asked && !is_as_required(&self.upstream, request).await? {
            return Err(Unsent::Overtaken);
        }
        if complete || !is_known {
            match self.upstream.complete_upload(upload, etags, condition(request), metadata).await {
                // It knows no condition there.
                Err(error) if !complete && error.status() == Some(501) => {}
                completed => return Ok(completed?),
            }
        }
        Ok(self.upstream.complete_upload(upload, etags, Condition::Always, metadata).await?)
    }
}

/// Whether the store copies an object, and checks the state of the target.
async fn probe_copy(upstream: &Upstream, from: StateOf<'_>) -> Result<(bool, bool), ClientError> {
    let to = format!("{}-copy", from.key);
    let copies = upstream.copy_object(from, &to, Condition::Always, None).await.is_ok();
    let mut is_checked = false;
    // A store that cannot copy will say so again.
    if copies {
        is_checked = is_refused(upstream.copy_object(from, &to, Condition::Absent, None).await).unwrap_or(false);
    }
    upstream.delete(&to).await?;
    Ok((copies, is_checked))
}

async fn is_as_required(upstream: &Upstream, request: &PlannedRequest) -> Result<bool, ClientError> {
    let there = upstream.describe(&request.key).await?;
    Ok(match &request.required {
        Required::Absent => there.is_none(),
        Required::Etag(etag) => there.is_some_and(|there| there.etag == *etag),
    })
}
