//! One request of the plan.
//!
//! Invariants: R1 what is sent is the state that was planned: another one of the file is left to the next plan.
//! Not here:   what its outcome changes (outcome).

use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderName};
use margay_client::client::DELETE_KEYS_MAX;
use margay_client::upstream::{Metadata, Source, StateOf};
use margay_client::{ClientError, Condition};
use margay_meta::Cursor;
use margay_rows::record::{Data, Entry, FileEntry};
use margay_rows::{Ino, key};
use margay_volume::{ReadCondition, Reader};

use super::Sender;
use super::marker::is_marker;
use crate::attributes;
use crate::bytes::{Objects, number_of};
use crate::plan::{Action, PlannedRequest, Required};
use crate::tracked::{KEPT, State, Tracked, content_of, entry_at, kept_name, time_of};
use crate::xattrs;

/// The object that a request made.
#[derive(Clone, Debug, Default)]
pub(super) struct Sent {
    pub(super) etag: String,
    /// Of the content, if that was sent.
    pub(super) size: Option<u64>,
    /// `None`: the object has that of its source.
    pub(super) write_id: Option<String>,
    /// When the bucket said so, if something was done after that.
    pub(super) answered: Option<Duration>,
}

/// A state of a file, as it is sent.
struct Planned {
    metadata: Metadata,
    size: u64,
    body: Body,
}

enum Body {
    /// That of the file as it is.
    Here(Entry),
    /// Bytes that were kept under this name; `None`: its object has them.
    Kept(Option<String>),
}

/// Why a request was not made, or failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsent {
    /// The file has another state by now.
    #[error("the file has changed")]
    Changed,
    /// Its bytes were in the bucket only, and are not there any more.
    #[error("somebody else removed or replaced the only object with its bytes")]
    Lost,
    /// The key has something else than what the request requires.
    #[error("the bucket has something else under the key")]
    Overtaken,
    #[error("{0}")]
    Local(String),
    #[error(transparent)]
    Bucket(#[from] ClientError),
}

impl Sender {
    /// Makes one request, or several removals in one, and takes the outcome into the rows. They follow from rows up to `rows`.
    pub(super) async fn send(&self, requests: Vec<PlannedRequest>, rows: Cursor) {
        assert!(requests.len() <= DELETE_KEYS_MAX, "one request removes no more");
        // Of both, the old and the new rows (S2).
        if let Err(error) = self.tracked.below.durable(rows).await {
            tracing::error!(%error, "nothing is sent: rows cannot be made durable");
            return requests.iter().for_each(|request| self.postponed(request, &error.to_string(), false));
        }
        let [request] = requests.as_slice() else { return self.remove(&requests).await };
        if request.action != Action::Delete {
            match self.holds(request).await {
                Ok(true) => {}
                Ok(false) => return self.conflict(request, false).await,
                Err(error) => return self.failed(request, error.into()).await,
            }
        }
        let sent = match &request.action {
            Action::Delete => return self.remove(&requests).await,
            Action::Put => self.put(request).await,
            Action::Copy { from, etag } => self.copy(request, StateOf { key: from, etag }).await,
            Action::SetAside { from, etag } => self.set_aside(request, StateOf { key: from, etag }).await,
        };
        match sent {
            Ok(sent) => self.finished(request, &sent),
            Err(unsent) => {
                let unsent = self.why_unread(request, unsent).await;
                self.failed(request, unsent).await;
            }
        }
    }

    /// Bytes that could not be read may be those of an object that somebody else has removed or replaced.
    async fn why_unread(&self, request: &PlannedRequest, unsent: Unsent) -> Unsent {
        if !matches!(unsent, Unsent::Local(_) | Unsent::Bucket(ClientError::Source(_))) {
            return unsent;
        }
        match self.is_replaced_there(request).await {
            Ok(true) => Unsent::Lost,
            // It is tried again.
            Ok(false) | Err(_) => unsent,
        }
    }

    /// Whether an object with bytes of the file is not there any more, or is somebody else's.
    async fn is_replaced_there(&self, request: &PlannedRequest) -> Result<bool, Unsent> {
        let Some((_, entry)) = self.entry_of(request.file)? else { return Ok(false) };
        for number in far_numbers(&entry) {
            let found = self.tracked.find(number).map_err(|error| Unsent::Local(error.to_string()))?;
            let Some(object) = found else { return Ok(true) };
            match self.upstream.describe(&object.key).await? {
                Some(there) if there.etag == object.etag || self.is_unknown_own(request, &there) => {}
                Some(_) => return Ok(true),
                None => return self.check_gone(&object.key).await.map(|()| true),
            }
        }
        Ok(false)
    }

    async fn copy(&self, request: &PlannedRequest, source: StateOf<'_>) -> Result<Sent, Unsent> {
        let planned = self.planned(request)?;
        if planned.size > self.sizes.copy_bytes_max && !self.honoured.lock().copies_parts() {
            return self.put(request).await;
        }
        let mut metadata = planned.metadata;
        self.keep_description(request, source.key, &mut metadata).await?;
        let etag = self.copy_to(source, planned.size, request, &metadata).await?;
        Ok(Sent { etag, write_id: Some(self.write_id(request)), ..Sent::default() })
    }

    /// Copies with the metadata that the object has.
    async fn set_aside(&self, request: &PlannedRequest, source: StateOf<'_>) -> Result<Sent, Unsent> {
        let size = {
            let files = self.tracked.files.lock();
            let object = files.table.get(Ino(request.file)).and_then(|file| file.object.as_ref());
            object.map_or(0, |object| object.size)
        };
        let etag = if size > self.sizes.copy_bytes_max && self.honoured.lock().copies_parts() {
            let there = self.upstream.describe(source.key).await?.ok_or(Unsent::Overtaken)?;
            let is_kept = |name: &HeaderName| *name == CONTENT_TYPE || name.as_str().starts_with("x-amz-meta-");
            let kept = there.headers.iter().filter(|(name, _)| is_kept(name));
            let metadata = kept.map(|(name, value)| (name.clone(), value.clone())).collect();
            self.copy_to(source, size, request, &metadata).await?
        } else {
            self.upstream.copy_object(source, &request.key, condition(request), None).await?
        };
        Ok(Sent { etag, ..Sent::default() })
    }

    async fn put(&self, request: &PlannedRequest) -> Result<Sent, Unsent> {
        let Planned { metadata, body, .. } = self.planned(request)?;
        if is_marker(request) {
            let etag = self.upstream.put_object(&request.key, Bytes::new(), condition(request), &metadata).await?;
            return Ok(Sent { etag, size: Some(0), write_id: Some(self.write_id(request)), ..Sent::default() });
        }
        let (bucket, local) = match body {
            Body::Here(entry) if self.has_lost_bytes(&entry)? => return Err(Unsent::Lost),
            Body::Here(_) => (self.bucket.as_str(), self.tracked.files.lock().paths.local(&request.key).to_owned()),
            Body::Kept(Some(name)) => (KEPT, name),
            // Its object was to have them, and has not.
            Body::Kept(None) => {
                self.forget_kept_of(request.file);
                return Err(Unsent::Changed);
            }
        };
        let reader = self.volume.get_object(bucket, &local, &ReadCondition::default()).await;
        let reader = reader.map_err(|error| match error {
            margay_volume::Error::NoSuchKey => Unsent::Changed,
            error => Unsent::Local(error.to_string()),
        })?;
        let (size, etag) = (reader.info().size, reader.info().etag);
        if content_of(&etag, size) != request.content {
            return Err(Unsent::Changed);
        }
        if size > self.sizes.one_put_bytes_max {
            let source = FileSource { reader, tracked: Arc::clone(&self.tracked) };
            return self.put_parts(request, source, &metadata).await;
        }
        if let Some(begun) = self.uploads.take(Ino(request.file)).await {
            self.abandon(begun).await;
        }
        let body = read_whole(&reader, 0..size);
        let put = self.upstream.put_object_of(&request.key, size, body, condition(request), &metadata);
        let etag = put.await.map_err(|error| match error {
            ClientError::Source(error) => Unsent::Local(error.to_string()),
            error => error.into(),
        })?;
        Ok(Sent { etag, size: Some(size), write_id: Some(self.write_id(request)), ..Sent::default() })
    }

    /// The entry of a file as the volume has it now; `None` if it has no name.
    pub(super) fn entry_of(&self, file: u64) -> Result<Option<(String, Entry)>, Unsent> {
        let local = |error: margay_meta::EngineError| Unsent::Local(error.to_string());
        let mut files = self.tracked.files.lock();
        let Some((directory, name)) = files.table.get(Ino(file)).and_then(|file| file.dirty.name.clone()) else {
            return Ok(None);
        };
        let below = &*self.tracked.below;
        let Some(key) = files.paths.key(below, (directory, &name)).map_err(local)? else { return Ok(None) };
        let entry = entry_at(below, &key::entry(directory, name.as_bytes())).map_err(local)?;
        Ok(entry.map(|entry| (files.paths.local(&key).to_owned(), entry)))
    }

    /// Whether bytes of the file are in the bucket only.
    pub(super) fn is_far(&self, file: u64) -> Result<bool, Unsent> {
        Ok(self.entry_of(file)?.is_some_and(|(_, entry)| far_numbers(&entry).next().is_some()))
    }

    fn has_lost_bytes(&self, entry: &Entry) -> Result<bool, Unsent> {
        for number in far_numbers(entry) {
            if self.tracked.find(number).map_err(|error| Unsent::Local(error.to_string()))?.is_none() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The entry of the planned state, if it is still the file's.
    fn planned_entry(&self, request: &PlannedRequest) -> Result<(Entry, State), Unsent> {
        let state = self.tracked.files.lock().table.get(Ino(request.file)).and_then(|file| file.state);
        let is_same = |state: &State| (state.content, state.attributes) == (request.content, request.attributes);
        let state = state.filter(is_same).ok_or(Unsent::Changed)?;
        let (_, entry) = self.entry_of(request.file)?.ok_or(Unsent::Changed)?;
        let now = match &entry {
            Entry::File(file) => State::of_file(file),
            Entry::Directory(entry) => State::of_directory(entry),
            Entry::Link(_) => return Err(Unsent::Changed),
        };
        if now == state { Ok((entry, state)) } else { Err(Unsent::Changed) }
    }

    /// What a request of this state sends.
    fn planned(&self, request: &PlannedRequest) -> Result<Planned, Unsent> {
        if let Some(kept) = self.kept_of(request) {
            let name = kept.has_bytes.then(|| kept_name(Ino(request.file), &kept));
            let metadata = self.metadata_of_kept(request, &kept)?;
            return Ok(Planned { metadata, size: kept.size, body: Body::Kept(name) });
        }
        let (entry, state) = self.planned_entry(request)?;
        Ok(Planned { metadata: self.metadata(request, &entry)?, size: state.size, body: Body::Here(entry) })
    }

    /// What is newer than the planned state makes the file dirty again.
    fn metadata(&self, request: &PlannedRequest, entry: &Entry) -> Result<Metadata, Unsent> {
        let (id, below) = (self.write_id(request), &*self.tracked.below);
        let local = |error: margay_meta::EngineError| Unsent::Local(error.to_string());
        Ok(match xattrs::whole(below, None, entry).map_err(local)? {
            (Entry::File(file), xattrs) => attributes::of_file(&file, &xattrs, &id),
            (Entry::Directory(entry), xattrs) => {
                attributes::of_directory(&entry, time_of(below, entry.ino).map_err(local)?, &xattrs, &id)
            }
            (Entry::Link(_), _) => unreachable!("no bucket has a hard link (planned_entry)"),
        })
    }
}

/// Numbers of bytes in the bucket that the file has. One with extents in rows was written here, and so brought here before.
pub(super) fn far_numbers(entry: &Entry) -> impl Iterator<Item = u64> {
    let extents = match entry {
        Entry::File(FileEntry { data: Data::Extents(extents), .. }) => extents.as_slice(),
        _ => &[],
    };
    extents.iter().filter_map(|extent| number_of(extent.run.segment))
}

pub(super) fn etag_of(request: &PlannedRequest) -> &str {
    match &request.required {
        Required::Etag(etag) => etag,
        Required::Absent => unreachable!("a removal names what it removes"),
    }
}

pub(super) fn condition(request: &PlannedRequest) -> Condition<'_> {
    match &request.required {
        Required::Absent => Condition::Absent,
        Required::Etag(etag) => Condition::Same(etag),
    }
}

/// A file's content, which does not change while it is open.
pub(super) struct FileSource {
    pub(super) reader: Reader,
    tracked: Arc<Tracked>,
}

impl Source for FileSource {
    fn read(&self, range: Range<u64>) -> impl Future<Output = io::Result<Bytes>> + Send {
        // A part is asked for when one before it was answered.
        self.tracked.answered();
        read_whole(&self.reader, range)
    }
}

async fn read_whole(reader: &Reader, range: Range<u64>) -> io::Result<Bytes> {
    let mut body = BytesMut::with_capacity((range.end - range.start) as usize);
    let mut offset = range.start;
    while offset < range.end {
        let bytes = reader.read(offset, range.end - offset).await.map_err(io::Error::other)?;
        if bytes.is_empty() {
            break;
        }
        offset += bytes.len() as u64;
        if offset == range.end && body.is_empty() {
            return Ok(bytes);
        }
        body.extend_from_slice(&bytes);
    }
    Ok(body.freeze())
}
