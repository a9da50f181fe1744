//! The headers of objects that were listed.
//!
//! Why:        a page that also says what HEAD says of each object saves its reader a request for each.
//! Invariants: D1 what the scan has of an object is enough for most: no row is read for them.
//!             D2 heads of several objects are read together, in one call of the engine for each level of their paths.
//! Not here:   who may see them, how they are written (the S3 door).

use margay_rows::record::Entry;

use super::get_object::tell_kind;
use crate::api::{Error, Headers, ListedRow, ObjectInfo, ReadCondition};
use crate::driver::View;

impl ListedRow<'_> {
    /// The object's headers. `None`: some of what HEAD says is in rows of its own; see [`View::head_listed`].
    pub fn headers(self) -> Result<Option<Headers>, Error> {
        if self.bytes.is_empty() {
            // An explicit directory without an object of its own.
            return Ok(Some(Headers::new()));
        }
        let Entry::File(mut file) = Entry::decode(self.bytes)? else {
            return Err(Error::Corrupt("a row was listed as an object that is none".to_owned()));
        };
        if file.header_rows || !file.documents.is_empty() {
            return Ok(None);
        }
        let mut headers = std::mem::take(&mut file.headers);
        if let Some(port) = self.file_headers {
            port.tell(&file, &mut headers);
        }
        tell_kind(&file, &mut headers);
        Ok(Some(headers))
    }
}

impl View<'_> {
    /// What HEAD says of these keys, all of one moment; `None` for one without an object.
    pub async fn head_listed(self, bucket: &str, keys: &[&str]) -> Result<Vec<Option<ObjectInfo>>, Error> {
        let condition = ReadCondition::default();
        self.read(|volume, seen| {
            let heads = keys.iter().map(|key| match volume.head_now((bucket, key, None), &condition, seen) {
                Ok(info) => Ok(Some(info)),
                // The rows that are not at hand are fetched for all keys together; then this runs again.
                Err(Error::NoSuchKey | Error::Deleted(_) | Error::DeleteMarker { .. } | Error::Unread) => Ok(None),
                Err(error) => Err(error),
            });
            heads.collect()
        })
        .await
    }
}
