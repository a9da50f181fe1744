//! CompleteMultipartUpload: assembles the chosen parts into one object, in one batch.
//!
//! Why:        the object's extents are those of its parts in order; no data is read or moved.
//! Invariants: C1 the upload's row and each chosen part's row are asserted and removed. Other parts are left to the
//!                upload's orphan, which the same batch writes, unless it asserts that there are none.
//!             C2 the ETag is the MD5 of the parts' MD5s, with their count. The object records the upload: completing
//!                it again with the same parts gives the same answer while the object exists.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use margay_meta::{Guard, RowVersion, VALUE_BYTES_MAX};
use margay_rows::event::EventKind;
use margay_rows::kinds::Document;
use margay_rows::record::data::OBJECT_EXTENTS_MAX;
use margay_rows::record::multipart::{CHECKSUM_PARTS, encode_part_checksums, encode_part_sizes};
use margay_rows::record::{FileEntry, Orphan, PartRecord};
use margay_rows::{Ino, key};
use margay_segment::Extent;
use md5::{Digest, Md5};

use crate::api::{
    ETag, Error, Headers, OBJECT_BYTES_MAX, PART_BYTES_MIN, PART_NUMBER_MAX, PartChoice, PutOutcome, WriteCondition,
};
use crate::cache::split;
use crate::draft::{Draft, Owning, Seen, distinct_runs};
use crate::driver::{Decided, Purpose, View};
use crate::entry::{Located, Walk, documents, release_part};
use crate::error::Refused;
use crate::event::Told;
use crate::object::multipart::FoundUpload;
use crate::open::Volume;
use crate::upload::place::{self, NewRuns};

/// The client's request, and the name of the upload.
#[derive(Clone, Copy)]
struct Wish<'a> {
    bucket: &'a str,
    key: &'a str,
    upload: &'a str,
    parts: &'a [PartChoice],
    extra: &'a Headers,
    condition: &'a WriteCondition,
}

/// The chosen parts in order, as read.
struct Chosen {
    parts: Vec<(u16, RowVersion, PartRecord)>,
    /// The upload had no others.
    are_all: bool,
    size: u64,
    etag: ETag,
}

/// Up to so many parts, asserting that there are no others costs less than draining an orphan.
const PARTS_ASSERTED_MAX: usize = 1000;

impl View<'_> {
    /// As that of the volume, with the rows of the request.
    pub async fn complete_multipart(
        self,
        bucket: &str,
        key: &str,
        upload: &str,
        parts: &[PartChoice],
        extra: Headers,
        condition: &WriteCondition,
    ) -> Result<PutOutcome, Error> {
        let rows = self.take_for_change(bucket);
        let wish = Wish { bucket, key, upload, parts, extra: &extra, condition };
        self.volume.complete_from(rows, wish).await
    }
}

impl Volume {
    /// `extra` are headers computed by the door (checksums of the whole).
    pub async fn complete_multipart(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        parts: &[PartChoice],
        extra: Headers,
        condition: &WriteCondition,
    ) -> Result<PutOutcome, Error> {
        let rows = self.look(bucket, Purpose::CompleteUpload { key, upload }).await?;
        self.view(&rows).complete_multipart(bucket, key, upload, parts, extra, condition).await
    }

    /// The first attempt uses these rows.
    async fn complete_from(&self, rows: Seen, wish: Wish<'_>) -> Result<PutOutcome, Error> {
        let tried = |walk: &Walk<'_>, seen: &mut Seen| self.try_complete(walk, wish, seen);
        match self.change_from(rows, wish.bucket, split(wish.key), tried).await {
            Ok(((outcome, orphan), seq)) => {
                if let Some(orphan) = orphan {
                    self.drain_soon(orphan).await;
                }
                self.answer(Ok((outcome, seq))).await
            }
            Err(error) => self.answer(Err(error)).await,
        }
    }

    fn try_complete(
        &self,
        walk: &Walk<'_>,
        wish: Wish<'_>,
        seen: &mut Seen,
    ) -> Result<Decided<(PutOutcome, Option<Ino>)>, Refused> {
        let found = match self.find_upload(wish.bucket, wish.key, wish.upload, seen) {
            Ok(found) => found,
            Err(Error::NoSuchUpload) => {
                let outcome = self.completed_before(walk, wish, seen)?.ok_or(Error::NoSuchUpload)?;
                return Ok(Decided::Nothing((outcome, None)));
            }
            Err(error) => return Err(error.into()),
        };
        let chosen = self.choose(&found, wish.parts, seen)?;
        let current = self.current(walk, wish.key, seen)?;
        wish.condition.check(current.etag(walk))?;
        let extents = chosen.extents()?;
        let mut headers = found.record.headers.clone();
        headers.extend(wish.extra.clone());
        let mut documents = found.record.documents.clone();
        documents.insert(Document::Upload, wish.upload.to_owned().into());

        let mut draft = Draft::default();
        let ino = self.new_ino()?;
        let runs = distinct_runs(&extents);
        let data = place::place_extents(&mut draft, ino, extents);
        let mut file = FileEntry::new(ino, chosen.size, chosen.etag, self.now(), data, headers);
        self.check_added(walk, &current, &file, seen)?;
        self.bequeath(&mut draft, &current, &mut file, seen)?;
        documents::draft_new(&mut draft, &mut file, &documents)?;
        let key = self.replace(walk, &current, &mut file, &mut draft, seen)?;
        self.take_headers(&mut file);
        let outcome = current.outcome(&file);
        let orphan = self.draft_end_of_upload(&mut draft, &found, &chosen, ino)?;
        let kind = EventKind::CompleteMultipartUpload;
        let told = Told { kind, key: wish.key, size: chosen.size, etag: chosen.etag, version: outcome.version };
        self.draft_event(&mut draft, &walk.path, &told)?;
        // Replaces its parts as the owner.
        let entry_key = key.clone();
        let file = place::put_new_file(&mut draft, key, file, NewRuns::stored(runs, Owning::First))?;
        self.entry_hints.note(&entry_key, &file, false);
        self.finish(draft, (outcome, orphan))
    }

    /// The answer of an earlier completion of this upload, if its object is still at the key and unchanged.
    fn completed_before(&self, walk: &Walk<'_>, wish: Wish<'_>, seen: &mut Seen) -> Result<Option<PutOutcome>, Error> {
        let current = self.current(walk, wish.key, seen)?;
        let Some(Located { file, .. }) = &current.file else { return Ok(None) };
        let upload = self.documents_of(file, seen)?.remove(&Document::Upload);
        let etag = etag_of(wish.parts.iter().map(|part| &part.etag.digest), wish.parts.len());
        let same = upload.is_some_and(|upload| upload == wish.upload) && file.etag == etag;
        Ok(same.then(|| current.outcome(file)))
    }

    /// Checks the client's list against the stored parts.
    fn choose(&self, found: &FoundUpload, wanted: &[PartChoice], seen: &mut Seen) -> Result<Chosen, Error> {
        if wanted.is_empty() || wanted.len() > usize::from(PART_NUMBER_MAX) {
            return Err(Error::InvalidPartOrder);
        }
        if !wanted.is_sorted_by(|left, right| left.number < right.number) {
            return Err(Error::InvalidPartOrder);
        }
        let mut stored = BTreeMap::new();
        self.scan(&key::parts(found.record.ino), seen, |row| {
            stored.insert(key::parse_part(row.key)?.1, (row.version, PartRecord::decode(row.value)?));
            Ok(ControlFlow::Continue(()))
        })?;
        let etag = ETag { digest: [0; 16], parts: 0 };
        let mut chosen = Chosen { parts: Vec::new(), are_all: false, size: 0, etag };
        for (index, PartChoice { number, etag }) in wanted.iter().enumerate() {
            let (version, part) = stored.remove(number).ok_or(Error::InvalidPart(*number))?;
            if *etag != (ETag { digest: part.digest, parts: 0 }) {
                return Err(Error::InvalidPart(*number));
            }
            if index + 1 < wanted.len() && part.size < PART_BYTES_MIN {
                return Err(Error::PartTooSmall(*number));
            }
            chosen.size += part.size;
            chosen.parts.push((*number, version, part));
        }
        if chosen.size > OBJECT_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        chosen.are_all = stored.is_empty();
        chosen.etag = etag_of(wanted.iter().map(|part| &part.etag.digest), wanted.len());
        Ok(chosen)
    }

    /// Returns the number of the orphan that is left to drain, if any.
    fn draft_end_of_upload(
        &self,
        draft: &mut Draft,
        found: &FoundUpload,
        chosen: &Chosen,
        object: Ino,
    ) -> Result<Option<Ino>, Error> {
        let upload = found.record.ino;
        draft.assert_version(found.key.clone(), found.version);
        draft.delete(found.key.clone());
        self.entry_hints.forget_upload(&found.key);
        let orphan = (!chosen.are_all || chosen.parts.len() > PARTS_ASSERTED_MAX).then_some(upload);
        if orphan.is_some() {
            draft.put(key::orphan(upload), Orphan::Parts.encode());
        } else {
            // Whoever adds a part asserts the upload's row (M1).
            let chosen = chosen.parts.iter().map(|(number, ..)| key::part(upload, *number));
            draft.assert_only(&key::parts(upload), chosen, Guard::Written);
        }
        for (number, version, part) in &chosen.parts {
            draft.assert_version(key::part(upload, *number), *version);
            draft.delete(key::part(upload, *number));
            release_part(draft, part)?;
        }
        let sizes: Vec<u64> = chosen.parts.iter().map(|(_, _, part)| part.size).collect();
        draft.put(key::part_sizes(object), encode_part_sizes(&sizes));
        draft_checksums(draft, object, &chosen.parts)?;
        Ok(orphan)
    }
}

/// Stores the parts' checksums, if any part has one.
fn draft_checksums(draft: &mut Draft, object: Ino, parts: &[(u16, RowVersion, PartRecord)]) -> Result<(), Error> {
    if parts.iter().all(|(_, _, part)| part.headers.is_empty()) {
        return Ok(());
    }
    for (piece, parts) in parts.chunks(CHECKSUM_PARTS).enumerate() {
        let value = encode_part_checksums(parts.iter().map(|(_, _, part)| &part.headers));
        if value.len() > VALUE_BYTES_MAX {
            return Err(Error::TooLarge);
        }
        draft.put(key::part_checksums(object, piece as u8), value);
    }
    Ok(())
}

fn etag_of<'a>(parts: impl Iterator<Item = &'a [u8; 16]>, count: usize) -> ETag {
    let mut digests = Md5::new();
    parts.for_each(|part| digests.update(part));
    ETag { digest: digests.finalize().into(), parts: count as u16 }
}

impl Chosen {
    fn extents(&self) -> Result<Vec<Extent>, Error> {
        let mut extents = Vec::new();
        for (_, _, part) in &self.parts {
            extents.extend_from_slice(part.extents()?);
        }
        if extents.len() > OBJECT_EXTENTS_MAX { Err(Error::TooLarge) } else { Ok(extents) }
    }
}
