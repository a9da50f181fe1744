//! Reading a bucket's row and the documents of its settings.
//!
//! Why:        every operation starts with these reads; modules that change them build on this one.
//! Not here:   changes (bucket, bucket_settings, bucket_object_lock), the cache (bucket_facts).

use std::ops::ControlFlow;

use bytes::Bytes;
use margay_meta::RowVersion;
use margay_rows::kinds::Setting;
use margay_rows::object_lock::DefaultRetention;
use margay_rows::record::Bucket;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;

impl Volume {
    pub(crate) fn bucket_row(&self, bucket: &str, seen: &mut Seen) -> Result<(Bucket, RowVersion), Error> {
        let row = self.get(&key::bucket(bucket), seen)?.ok_or(Error::NoSuchBucket)?;
        Ok((Bucket::decode(&row.value)?, row.version))
    }

    /// The document of a setting that the bucket's row lists.
    pub(crate) fn setting_document(&self, root: Ino, setting: Setting, seen: &mut Seen) -> Result<Bytes, Error> {
        let mut document = Vec::new();
        self.scan(&key::setting(root, setting), seen, |row| {
            document.extend_from_slice(row.value);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(document.into())
    }

    /// The default retention that a bucket's row lists; it changes with the row.
    pub(crate) fn default_retention(&self, row: &Bucket, seen: &mut Seen) -> Result<Option<DefaultRetention>, Error> {
        if !row.object_lock || !row.settings.contains(Setting::ObjectLock) {
            return Ok(None);
        }
        let document = self.setting_document(row.root, Setting::ObjectLock, seen)?;
        Ok(DefaultRetention::decode(&document)?)
    }
}
