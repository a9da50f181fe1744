//! Operations that are being written.
use crate::api::*;
use crate::open::Volume;
use crate::upload::Staged;

#[allow(unused_variables, clippy::unused_async, reason = "draft")]
impl Volume {
    pub async fn copy_object(&self, request: CopyRequest<'_>) -> Result<PutOutcome, Error> {
        todo!()
    }
    /// Moves one object, or with a key that ends in `/` a whole directory; O(1).
    pub async fn rename(&self, bucket: &str, from: &str, to: &str, condition: &WriteCondition) -> Result<(), Error> {
        todo!()
    }

    pub async fn create_multipart(&self, bucket: &str, key: &str, headers: Headers) -> Result<UploadInfo, Error> {
        todo!()
    }
    pub async fn head_multipart(&self, bucket: &str, key: &str, upload: &str) -> Result<UploadInfo, Error> {
        todo!()
    }
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
        todo!()
    }
    /// `range` is `first..end` in bytes of the source.
    pub async fn copy_part(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        number: u16,
        source: (&str, &str),
        range: Option<std::ops::Range<u64>>,
        source_condition: &ReadCondition,
    ) -> Result<PartInfo, Error> {
        todo!()
    }
    pub async fn list_parts(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        after: u16,
        max: usize,
    ) -> Result<(Vec<PartInfo>, bool), Error> {
        todo!()
    }
    /// In order of key, then upload id; `after` exclusive as (key, upload id).
    pub async fn list_multipart(
        &self,
        bucket: &str,
        prefix: &str,
        after: Option<(&str, Option<&str>)>,
        max: usize,
    ) -> Result<(Vec<UploadInfo>, bool), Error> {
        todo!()
    }
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
        todo!()
    }
    pub async fn abort_multipart(&self, bucket: &str, key: &str, upload: &str) -> Result<(), Error> {
        todo!()
    }
}
