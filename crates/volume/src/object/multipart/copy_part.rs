//! UploadPartCopy: a part that shares a slice of an object's data.
//!
//! Why:        a slice of an extent is an extent, so no data is moved; inline bodies and slices of very many extents
//!             are copied.
//! Invariants: P1 the source's entry is asserted. The ETag of a slice is derived from the source's ETag and the range,
//!                because the bytes are not read.

use std::ops::Range;

use margay_rows::kinds::Document;
use margay_rows::record::data::PART_EXTENTS_MAX;
use margay_rows::record::{Data, FileEntry, PartRecord};
use margay_segment::Extent;
use md5::{Digest, Md5};

use super::put_part::part_info;
use crate::api::{ETag, Error, Headers, ObjectName, PartInfo, ReadCondition};
use crate::draft::{Draft, Owning, Seen, distinct_runs};
use crate::driver::{Decided, Purpose, TRIES_MAX, View};
use crate::error::Refused;
use crate::object::multipart::put_part::{PartName, check_part};
use crate::open::Volume;
use crate::upload::Staged;
use crate::upload::place::NewRuns;

/// Result of an attempt that did not fail.
enum Try {
    Shared(PartInfo),
    /// The bytes must be copied: the slice, and the digest of its ETag.
    Copy(Range<u64>, [u8; 16]),
}

impl View<'_> {
    /// As that of the volume, with the rows of the request.
    #[allow(clippy::too_many_arguments, reason = "they are what S3 names a part and its source by")]
    pub async fn copy_part(
        self,
        bucket: &str,
        key: &str,
        upload: &str,
        number: u16,
        source: ObjectName<'_>,
        range: Option<Range<u64>>,
        source_condition: &ReadCondition,
    ) -> Result<PartInfo, Error> {
        let (name, rows) = (PartName { bucket, key, upload, number }, self.take_for_change(bucket));
        self.volume.copy_part_from(rows, name, source, range.as_ref(), source_condition).await
    }
}

impl Volume {
    /// `source` is a bucket, a key and optionally a version; `range` is `first..end` in its bytes. `NotShareable` if
    /// one of both is encrypted.
    #[allow(clippy::too_many_arguments, reason = "they are what S3 names a part and its source by")]
    pub async fn copy_part(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        number: u16,
        source: ObjectName<'_>,
        range: Option<Range<u64>>,
        source_condition: &ReadCondition,
    ) -> Result<PartInfo, Error> {
        let rows = self.look(bucket, Purpose::CopyPart { key, upload, number, source }).await?;
        self.view(&rows).copy_part(bucket, key, upload, number, source, range, source_condition).await
    }

    /// The first attempt uses these rows.
    async fn copy_part_from(
        &self,
        mut rows: Seen,
        name: PartName<'_>,
        source: ObjectName<'_>,
        range: Option<&Range<u64>>,
        source_condition: &ReadCondition,
    ) -> Result<PartInfo, Error> {
        self.check_room()?;
        for _ in 0..TRIES_MAX {
            let tried = |seen: &mut Seen| self.try_copy_part(name, source, range, source_condition, seen);
            let (slice, digest) = match self.decide(std::mem::take(&mut rows), tried).await {
                Ok((Try::Shared(info), seq)) => return self.answer(Ok((info, seq))).await,
                Ok((Try::Copy(slice, digest), _)) => (slice, digest),
                Err(error) => return self.answer(Err(error)).await,
            };
            if let Some(staged) = self.stage_slice(source, slice, digest, source_condition).await? {
                let mut rows = Seen::default();
                let PartName { bucket, key, upload, number } = name;
                self.look_ahead(bucket, Purpose::PutPart { key, upload, number }, &mut rows).await?;
                return self.put_staged_part(rows, name, digest, Headers::new(), staged).await;
            }
        }
        Err(Error::Busy)
    }

    fn try_copy_part(
        &self,
        name: PartName<'_>,
        source: ObjectName<'_>,
        range: Option<&Range<u64>>,
        condition: &ReadCondition,
        seen: &mut Seen,
    ) -> Result<Decided<Try>, Refused> {
        let upload = self.find_upload(name.bucket, name.key, name.upload, seen)?;
        let found = self.find(source.0, source.1, source.2, seen)?;
        condition.check_source(found.file.etag, found.file.modified)?;
        if found.file.is_encrypted() || upload.record.documents.contains_key(&Document::Encryption) {
            return Err(Error::NotShareable.into());
        }
        let range = checked_range(range, found.file.size)?;
        check_part(name.number, range.end - range.start)?;
        let digest = slice_digest(found.file.etag, &range, found.file.size);
        let Some(extents) = self.extents_of(&found.file, seen)?.map(|extents| slice(&extents, &range)) else {
            return Ok(Decided::Nothing(Try::Copy(range, digest)));
        };
        self.check_shareable(Some(&extents))?;
        if extents.len() > PART_EXTENTS_MAX {
            return Ok(Decided::Nothing(Try::Copy(range, digest)));
        }
        let mut draft = Draft::default();
        let ino = self.new_ino()?;
        found.assert_in(&mut draft);
        let named = NewRuns::stored(distinct_runs(&extents), Owning::OneMore);
        let (size, modified, headers) = (range.end - range.start, self.now(), Headers::new());
        let part = PartRecord { ino, size, modified, digest, data: Data::Extents(extents), headers };
        self.draft_part(&mut draft, &upload, name.number, &part, named, seen)?;
        self.finish(draft, Try::Shared(part_info(&part, name.number)))
    }

    /// `None` if the source was replaced since the slice was chosen, so that the digest would belong to other bytes.
    async fn stage_slice(
        &self,
        source: ObjectName<'_>,
        slice: Range<u64>,
        digest: [u8; 16],
        condition: &ReadCondition,
    ) -> Result<Option<Staged>, Error> {
        let check = |file: &FileEntry| condition.check_source(file.etag, file.modified);
        let mut seen = Seen::default();
        self.look_ahead(source.0, Purpose::GetObject(source.1, source.2), &mut seen).await?;
        let reader = self.read_now(&mut seen, |seen| self.open_now(source, seen, check)).await?;
        let (etag, size) = (reader.info.etag, reader.info.size);
        if slice.end > size || slice_digest(etag, &slice, size) != digest {
            return Ok(None);
        }
        let mut upload = self.stage(margay_rows::Ino(0), slice.end - slice.start, None)?;
        let mut offset = slice.start;
        while offset < slice.end {
            let bytes = reader.read(offset, slice.end - offset).await?;
            offset += bytes.len() as u64;
            upload.write(bytes).await?;
        }
        upload.finish().await.map(Some)
    }
}

fn checked_range(range: Option<&Range<u64>>, size: u64) -> Result<Range<u64>, Error> {
    match range {
        None => Ok(0..size),
        Some(range) if range.start < range.end && range.end <= size => Ok(range.clone()),
        Some(_) => Err(Error::InvalidRange),
    }
}

fn slice_digest(etag: ETag, range: &Range<u64>, size: u64) -> [u8; 16] {
    if *range == (0..size) && etag.parts == 0 {
        return etag.digest;
    }
    Md5::digest(format!("{etag} {}-{}", range.start, range.end)).into()
}

/// The slice of the extents with these bytes.
fn slice(extents: &[Extent], range: &Range<u64>) -> Vec<Extent> {
    let mut slices = Vec::new();
    let mut offset = 0;
    for extent in extents {
        let (start, end) = (range.start.max(offset), range.end.min(offset + extent.len));
        if start < end {
            slices.push(Extent { run: extent.run, skip: extent.skip + (start - offset), len: end - start });
        }
        offset += extent.len;
    }
    debug_assert_eq!(slices.iter().map(|extent| extent.len).sum::<u64>(), range.end - range.start);
    slices
}
