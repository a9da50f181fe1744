//! Lists the parts of an upload, and the uploads of a bucket.
//!
//! Invariants: L1 a page's flag is true if and only if more follow.

use std::ops::ControlFlow;

use margay_rows::key;
use margay_rows::record::{PartRecord, UploadRecord};

use super::put_part::part_info;
use crate::api::{Error, PartInfo, UploadInfo};
use crate::draft::Seen;
use crate::driver::{Purpose, RequestRows, View};
use crate::open::Volume;

impl View<'_> {
    /// All parts of an upload: at most 10,000.
    pub async fn parts(self, bucket: &str, key: &str, upload: &str) -> Result<Vec<PartInfo>, Error> {
        self.read(|volume, seen| {
            let ino = volume.find_upload(bucket, key, upload, seen)?.record.ino;
            volume.parts_in(&key::parts(ino), usize::MAX, seen).map(|(parts, _)| parts)
        })
        .await
    }
}

impl Volume {
    /// Parts with numbers after `after`, and whether more follow.
    pub async fn list_parts(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        after: u16,
        max: usize,
    ) -> Result<(Vec<PartInfo>, bool), Error> {
        let rows = self.look(bucket, Purpose::ListParts { key, upload, after, max }).await?;
        self.view(&rows).read(|volume, seen| volume.list_parts_now((bucket, key, upload), after, max, seen)).await
    }

    fn list_parts_now(
        &self,
        (bucket, key, upload): (&str, &str, &str),
        after: u16,
        max: usize,
        seen: &mut Seen,
    ) -> Result<(Vec<PartInfo>, bool), Error> {
        let ino = self.find_upload(bucket, key, upload, seen)?.record.ino;
        self.parts_in(&(key::after(key::part(ino, after)), key::parts(ino).1), max, seen)
    }

    fn parts_in(&self, range: &key::Range, max: usize, seen: &mut Seen) -> Result<(Vec<PartInfo>, bool), Error> {
        let (mut parts, mut more) = (Vec::new(), false);
        self.scan(range, seen, |row| {
            if parts.len() >= max {
                more = max > 0;
                return Ok(ControlFlow::Break(()));
            }
            parts.push(part_info(&PartRecord::decode(row.value)?, key::parse_part(row.key)?.1));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((parts, more))
    }

    /// In order of key, then upload id; `after` exclusive as (key, upload id), without an id all uploads of the key.
    pub async fn list_multipart(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<(&str, Option<&str>)>,
        max: usize,
    ) -> Result<(Vec<UploadInfo>, bool), Error> {
        let rows = RequestRows::default();
        self.view(&rows).read(|volume, seen| volume.list_multipart_now(bucket, prefix, after, max, seen)).await
    }

    fn list_multipart_now(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<(&str, Option<&str>)>,
        max: usize,
        seen: &mut Seen,
    ) -> Result<(Vec<UploadInfo>, bool), Error> {
        let root = self.bucket_row(bucket, seen)?.0.root;
        let mut range = key::uploads(root, prefix);
        let start = match after {
            None => None,
            Some((key, Some(upload))) => Some(key::after(key::upload(root, key, upload))),
            Some((key, None)) => key::successor(&key::uploads_of_key(root, key)),
        };
        range.0 = start.map_or(range.0.clone(), |start| start.max(range.0));
        let (mut uploads, mut more) = (Vec::new(), false);
        if range.0 < range.1 {
            self.scan(&range, seen, |row| {
                if uploads.len() >= max {
                    more = max > 0;
                    return Ok(ControlFlow::Break(()));
                }
                let (_, key, upload) = key::parse_upload(row.key)?;
                let UploadRecord { initiated, headers, documents, .. } = UploadRecord::decode(row.value)?;
                uploads.push(UploadInfo { key, upload: upload.to_owned(), initiated, headers, documents });
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok((uploads, more))
    }
}
