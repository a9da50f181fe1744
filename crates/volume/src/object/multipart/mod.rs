//! Multipart uploads: parts are stored separately and become one object at the end.
//!
//! Why:        parts have rows of their own, invisible to listings; completing moves references, not bytes.
//! Invariants: M1 a change of parts asserts the upload's row, so nothing is added to an upload that has ended.
//!             M2 uploads to one key are independent: each has its own id and number.
//! Not here:   headers and checksums of a part (the S3 door).

mod complete;
mod copy_part;
mod create;
mod list;
mod put_part;

use margay_meta::RowVersion;
use margay_rows::key;
use margay_rows::record::UploadRecord;

use crate::api::{Error, UploadInfo};
use crate::draft::Seen;
use crate::open::Volume;

/// An upload, as read.
#[derive(Clone, Debug)]
pub(crate) struct FoundUpload {
    pub(crate) key: Vec<u8>,
    pub(crate) version: RowVersion,
    pub(crate) record: UploadRecord,
}

impl Volume {
    pub(crate) fn find_upload(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        seen: &mut Seen,
    ) -> Result<FoundUpload, Error> {
        let row_key = key::upload(self.walk(bucket, "", seen)?.path.bucket.root, key, upload);
        if row_key.len() > margay_meta::KEY_BYTES_MAX {
            return Err(Error::NoSuchUpload);
        }
        let row = self.get(&row_key, seen)?.ok_or(Error::NoSuchUpload)?;
        let record = UploadRecord::decode(&row.value)?;
        self.entry_hints.note_upload(&row_key, record.ino);
        Ok(FoundUpload { key: row_key, version: row.version, record })
    }
}

impl FoundUpload {
    fn info(&self, key: &str, upload: &str) -> UploadInfo {
        UploadInfo {
            key: key.to_owned(),
            upload: upload.to_owned(),
            initiated: self.record.initiated,
            headers: self.record.headers.clone(),
            documents: self.record.documents.clone(),
        }
    }
}
