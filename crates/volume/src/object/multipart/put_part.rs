//! Stores a part, replacing an earlier part with the same number.
//!
//! Invariants: P1 the upload's row and the old part's row are asserted.  P2 a part's bytes are never inline.

use bytes::Bytes;
use margay_rows::Ino;
use margay_rows::key;
use margay_rows::kinds::Document;
use margay_rows::record::PartRecord;
use margay_rows::record::data::PART_EXTENTS_MAX;

use crate::api::{ETag, Error, Headers, PART_BYTES_MAX, PART_NUMBER_MAX, PartInfo};
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, Purpose, View};
use crate::entry::release_part;
use crate::error::Refused;
use crate::object::multipart::FoundUpload;
use crate::open::Volume;
use crate::upload::place::{self, NewRuns, Placed};
use crate::upload::{Body, Staged};

/// Identifies a part: bucket, key, upload id, number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartName<'a> {
    pub(crate) bucket: &'a str,
    pub(crate) key: &'a str,
    pub(crate) upload: &'a str,
    pub(crate) number: u16,
}

impl View<'_> {
    #[allow(clippy::too_many_arguments, reason = "they are what S3 names a part by")]
    pub async fn put_part(
        self,
        bucket: &str,
        key: &str,
        upload: &str,
        number: u16,
        etag: ETag,
        headers: Headers,
        staged: Staged,
    ) -> Result<PartInfo, Error> {
        let (name, rows) = (PartName { bucket, key, upload, number }, self.take_for_change(bucket));
        self.volume.put_staged_part(rows, name, etag.digest, headers, staged).await
    }
}

impl Volume {
    #[allow(clippy::too_many_arguments, reason = "they are what S3 names a part by")]
    pub async fn put_part(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        number: u16,
        etag: ETag,
        headers: Headers,
        staged: Staged,
    ) -> Result<PartInfo, Error> {
        let rows = self.look(bucket, Purpose::PutPart { key, upload, number }).await?;
        self.view(&rows).put_part(bucket, key, upload, number, etag, headers, staged).await
    }

    /// The first attempt uses these rows.
    pub(crate) async fn put_staged_part(
        &self,
        rows: Seen,
        name: PartName<'_>,
        digest: [u8; 16],
        headers: Headers,
        staged: Staged,
    ) -> Result<PartInfo, Error> {
        check_part(name.number, staged.len)?;
        self.check_room()?;
        if matches!(&staged.body, Body::Runs(runs) if runs.len() > PART_EXTENTS_MAX) {
            return Err(Error::TooLarge);
        }
        let staged = self.without_inline(staged).await?;
        let done = self.decide(rows, |seen| self.try_put_part(name, digest, &headers, &staged, seen));
        self.answer(done.await).await
    }

    /// Stores a small body in a run if the engine cannot take it as payload.
    async fn without_inline(&self, staged: Staged) -> Result<Staged, Error> {
        match &staged.body {
            Body::Small(bytes) if bytes.len() > self.engine.payload_bytes_max() => {
                let mut upload = self.stage_in_runs(Ino(0), bytes.len() as u64);
                upload.write(Bytes::clone(bytes)).await?;
                let mut stored = upload.finish().await?;
                (stored.len, stored.encrypted) = (staged.len, staged.encrypted);
                Ok(stored)
            }
            Body::Small(_) | Body::Runs(_) => Ok(staged),
        }
    }

    fn try_put_part(
        &self,
        name: PartName<'_>,
        digest: [u8; 16],
        headers: &Headers,
        staged: &Staged,
        seen: &mut Seen,
    ) -> Result<Decided<PartInfo>, Refused> {
        let found = self.find_upload(name.bucket, name.key, name.upload, seen)?;
        let keyed = found.record.documents.contains_key(&Document::Encryption);
        assert_eq!(staged.encrypted, keyed, "the parts of an upload are encrypted with its key, or plain");
        let mut draft = Draft::default();
        let Placed { data, named } = place::place_part(&staged.body);
        let (ino, modified) = (self.new_ino()?, self.now());
        let headers = headers.clone();
        let part = PartRecord { ino, size: staged.len, modified, digest, data, headers };
        self.draft_part(&mut draft, &found, name.number, &part, named, seen)?;
        self.finish(draft, part_info(&part, name.number))
    }

    /// Drafts a part, and the release of the one that it replaces.
    pub(crate) fn draft_part(
        &self,
        draft: &mut Draft,
        found: &FoundUpload,
        number: u16,
        part: &PartRecord,
        named: NewRuns,
        seen: &mut Seen,
    ) -> Result<(), Refused> {
        let row_key = key::part(found.record.ino, number);
        let old = self.get(&row_key, seen)?;
        draft.assert_version(found.key.clone(), found.version);
        draft.assert_unchanged(row_key.clone(), old.as_ref().map(|row| row.version));
        if let Some(row) = old {
            release_part(draft, &PartRecord::decode(&row.value)?)?;
        }
        let (value, first_extent) = part.encode();
        if value.len() > margay_meta::VALUE_BYTES_MAX {
            return Err(Error::TooLarge.into());
        }
        draft.own_runs(part.ino, Some(&row_key), &named.runs, named.owning);
        let write = draft.put(row_key.clone(), value);
        if let Some(bytes) = named.payload {
            let at = first_extent.expect("a payload has an extent that names it");
            draft.attach_payload(bytes, &part.extents()?[0].run, (part.ino, Some(&row_key)), [(write, at)]);
        }
        Ok(())
    }
}

pub(crate) fn check_part(number: u16, len: u64) -> Result<(), Error> {
    match number {
        1..=PART_NUMBER_MAX if len <= PART_BYTES_MAX => Ok(()),
        1..=PART_NUMBER_MAX => Err(Error::TooLarge),
        _ => Err(Error::InvalidPart(number)),
    }
}

/// A client's view of a part.
pub(crate) fn part_info(part: &PartRecord, number: u16) -> PartInfo {
    PartInfo {
        number,
        etag: ETag { digest: part.digest, parts: 0 },
        size: part.size,
        modified: part.modified,
        headers: part.headers.clone(),
    }
}
