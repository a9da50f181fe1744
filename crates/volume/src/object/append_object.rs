//! Append: replaces an object by one with the same bytes and more after them.
//!
//! Why:        a growing log must not be sent again; existing data stays in place, and the new entry refers to it.
//! Invariants: A1 the old entry is asserted, so the bytes are appended to the content that the client knew.
//!             A2 the new object has an inode of its own, as after a PUT: an open old file keeps its content.
//!             A3 each append is a part of the object, so that a stream of an encrypted object is a part too.
//!             A4 buckets with versioning (so also object lock) are refused, because the old content would have to
//!                stay.
//! Not here:   the bytes (upload), owners of runs (back_rows).

use bytes::Bytes;
use margay_rows::event::EventKind;
use margay_rows::key;
use margay_rows::kinds::Document;
use margay_rows::record::data::OBJECT_EXTENTS_MAX;
use margay_rows::record::data::{EXTENT_ROW_EXTENT_AT, extent_starts};
use margay_rows::record::multipart::encode_part_sizes;
use margay_rows::record::{Data, FileEntry};
use margay_segment::{Extent, Run, SegmentId, add_checksums};
use md5::{Digest, Md5};

use crate::api::{AppendOutcome, AppendRequest, ETag, Error, OBJECT_BYTES_MAX, ObjectInfo, PART_NUMBER_MAX};
use crate::cache::split;
use crate::draft::{Draft, Owning, Seen, distinct_runs, naming_row};
use crate::driver::Decided;
use crate::entry::{Current, Located, Walk, check_key, documents};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;
use crate::upload::{Body, Staged, place};

/// Stored checksums of the whole object, which an append invalidates.
const CHECKSUM_HEADERS: &str = "x-amz-checksum-";

/// The extents of the new object, and the payload that travels with the commit.
struct Grown {
    extents: Vec<Extent>,
    /// The runs of the staged body.
    runs: Vec<Run>,
    payload: Option<Payload>,
}

struct Payload {
    /// Followed by its checksums, if it needs any.
    bytes: Bytes,
    len: u64,
    extent: usize,
}

impl Volume {
    /// `NoSuchKey` when the object does not exist; `Busy` when it is no longer the one whose data key encrypted the
    /// staged bytes.
    pub async fn append_object(&self, request: AppendRequest<'_>, staged: Staged) -> Result<AppendOutcome, Error> {
        check_key(request.key)?;
        self.check_room()?;
        let done = self
            .change(request.bucket, split(request.key), |walk, seen| self.try_append(walk, &request, &staged, seen));
        self.answer(done.await).await
    }

    fn try_append(
        &self,
        walk: &Walk<'_>,
        request: &AppendRequest<'_>,
        staged: &Staged,
        seen: &mut Seen,
    ) -> Result<Decided<AppendOutcome>, Refused> {
        let current = self.current(walk, request.key, seen)?;
        if current.object.keeps() {
            return Err(Error::KeepsVersions.into());
        }
        request.condition.check(current.etag(walk))?;
        let located = current.file.as_ref().ok_or(Error::NoSuchKey)?;
        let old = &located.file;
        if old.size != request.offset {
            return Err(Error::WrongOffset(old.size).into());
        }
        let info = self.info(located, seen)?;
        if info.documents.get(&Document::Encryption) != request.encryption.as_ref() {
            // Replaced since the bytes were encrypted with its data key, or left unencrypted.
            return Err(Error::Busy.into());
        }
        assert_eq!(staged.encrypted, old.is_encrypted(), "what is added is encrypted as the object is");
        let sizes = grown_sizes(&info, staged.len)?;
        let etag = grown_etag(old.etag, request.etag, sizes.len());

        let mut draft = Draft::default();
        let ino = self.new_ino()?;
        let kept = self.extents_of(old, seen)?;
        let grown = grow(old, kept.clone(), &staged.body)?;
        let data = place::place_extents(&mut draft, ino, grown.extents.clone());
        let ObjectInfo { mut headers, mut documents, .. } = info;
        headers.retain(|name, _| !name.starts_with(CHECKSUM_HEADERS));
        documents.remove(&Document::Upload);
        let mut file = FileEntry::new(ino, old.size + staged.len, etag, self.now(), data, headers);
        self.check_added(walk, &current, &file, seen)?;
        self.bequeath(&mut draft, &current, &mut file, seen)?;
        documents::draft_new(&mut draft, &mut file, &documents)?;
        let kept = distinct_runs(kept.as_deref().unwrap_or_default());
        let replaced = self.draft_old_rows(&mut draft, located)?;
        let current = Current { file: Some(replaced), ..current };
        let key = self.replace(walk, &current, &mut file, &mut draft, seen)?;
        let row = naming_row(&file.data, &key);
        match is_kept_by_others(located) {
            true => draft.own_runs(ino, row, &kept, Owning::OneMore),
            false => draft.hand_over_runs(old.ino, (ino, row), &kept),
        }
        draft.put(key::part_sizes(ino), encode_part_sizes(&sizes));
        let outcome = AppendOutcome { etag, modified: file.modified, size: file.size };
        let told = Told { kind: EventKind::Put, key: request.key, size: file.size, etag, version: None };
        self.draft_event(&mut draft, &walk.path, &told)?;
        put_grown(&mut draft, key, file, grown)?;
        self.finish(draft, outcome)
    }

    /// Drafts that the new file owns the old one's runs: as a second owner while the old file has other names, else
    /// instead of it. Returns the old file in the form in which it is to be released.
    fn draft_old_rows(&self, draft: &mut Draft, old: &Located) -> Result<Located, Error> {
        if is_kept_by_others(old) {
            return Ok(old.clone());
        }
        if old.file.data == Data::Rows {
            self.delete_rows(draft, &key::extents(old.file.ino))?;
            draft.delete(key::location(old.file.ino));
        }
        // Without data, no run is released with it.
        let file = FileEntry { data: Data::Inline(Vec::new()), ..old.file.clone() };
        Ok(Located { file, ..old.clone() })
    }
}

/// Whether the old file has other names.
fn is_kept_by_others(old: &Located) -> bool {
    old.linked() && old.file.links > 1
}

fn grown_sizes(info: &ObjectInfo, more: u64) -> Result<Vec<u64>, Error> {
    let mut sizes = match info.part_sizes.is_empty() {
        true => vec![info.size],
        false => info.part_sizes.clone(),
    };
    sizes.push(more);
    if info.size + more > OBJECT_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    if sizes.len() > usize::from(PART_NUMBER_MAX) { Err(Error::TooManyParts) } else { Ok(sizes) }
}

/// Derived from both ETags, since the old bytes are not read.
fn grown_etag(old: ETag, more: ETag, parts: usize) -> ETag {
    let digest = Md5::new().chain_update(old.digest).chain_update(more.digest).finalize();
    ETag { digest: digest.into(), parts: parts as u16 }
}

/// The old extents and the new ones; inline bytes are merged with a small body into one run.
fn grow(old: &FileEntry, kept: Option<Vec<Extent>>, body: &Body) -> Result<Grown, Error> {
    let mut extents = kept.unwrap_or_default();
    let mut payload = match &old.data {
        Data::Inline(bytes) => bytes.clone(),
        Data::Extents(_) | Data::Rows => Vec::new(),
    };
    let runs = match body {
        Body::Small(bytes) => {
            payload.extend_from_slice(bytes);
            Vec::new()
        }
        Body::Runs(runs) => runs.clone(),
    };
    let mut placed = None;
    if !payload.is_empty() {
        let len = payload.len() as u64;
        let crc = add_checksums(&mut payload);
        placed = Some(Payload { bytes: payload.into(), len, extent: extents.len() });
        extents.push(Extent::whole(Run { segment: SegmentId(0), offset: 0, len, crc }));
    }
    extents.extend(runs.iter().copied().map(Extent::whole));
    if extents.len() > OBJECT_EXTENTS_MAX { Err(Error::TooLarge) } else { Ok(Grown { extents, runs, payload: placed }) }
}

/// Writes the entry, and tells the engine where to fill in the payload's location.
fn put_grown(draft: &mut Draft, key: Vec<u8>, mut file: FileEntry, grown: Grown) -> Result<(), Error> {
    let ino = file.ino;
    if file.data == Data::Rows {
        draft.locate_extent_rows(ino, &key);
    }
    draft.own_runs(ino, naming_row(&file.data, &key), &grown.runs, Owning::First);
    let put = place::put_entry(draft, key.clone(), &mut file)?;
    let Some(Payload { bytes, len, extent }) = grown.payload else { return Ok(()) };
    let place = match put.first_extent {
        Some(first) => (put.write, first + extent_starts(grown.extents.iter())[extent]),
        None => {
            let offset = grown.extents[..extent].iter().map(|extent| extent.len).sum();
            let write = draft.write_of(&key::extent(ino, offset)).expect("an extent row of the new file is written");
            (write, EXTENT_ROW_EXTENT_AT)
        }
    };
    let run = grown.extents[extent].run;
    assert_eq!(run.len, len, "the extent of the payload is all of it");
    draft.attach_payload(bytes, &run, (ino, naming_row(&file.data, &key)), [place]);
    Ok(())
}
