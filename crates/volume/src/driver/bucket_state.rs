//! The state of a bucket that changes depend on: by its row, or by the number of its root.

use std::sync::Arc;

use margay_meta::RowVersion;
use margay_rows::kinds::Setting;
use margay_rows::record::{Bucket, DirectoryRecord};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::cache::{BucketState, Quota};
use crate::draft::Seen;
use crate::open::Volume;

impl Volume {
    /// From the cache if possible; its user must assert it.
    pub(crate) fn bucket_state(&self, root: Ino) -> Result<Arc<BucketState>, Error> {
        if let Some(state) = self.bucket_facts.newest(root) {
            return Ok(state);
        }
        let record = self.row(&key::directory(root))?.value.ok_or(Error::NoSuchBucket)?;
        let name = DirectoryRecord::decode(&record.value)?.sort_name;
        let (row, version) = self.bucket_row(&name, &mut Seen::default())?;
        if row.root != root {
            return Err(Error::NoSuchBucket);
        }
        self.state_under(&name, &row, version, &mut Seen::default())
    }

    /// The state under a version of the bucket's row that was read. What it holds besides the row may be newer, so
    /// only what asserts the row may use it.
    pub(crate) fn state_under(
        &self,
        bucket: &str,
        row: &Bucket,
        version: RowVersion,
        seen: &mut Seen,
    ) -> Result<Arc<BucketState>, Error> {
        if let Some(state) = self.bucket_facts.fact(row.root, version) {
            return Ok(state);
        }
        let state = Arc::new(BucketState {
            row_key: key::bucket(bucket),
            version,
            root: row.root,
            versioning: row.versioning,
            object_lock: row.object_lock,
            retention: self.default_retention(row, seen)?,
            quota: self.quota_under(bucket, row, seen)?,
            notifies: row.settings.contains(Setting::Notification),
            encrypts: row.settings.contains(Setting::Encryption),
        });
        self.bucket_facts.keep_fact(row.root, version, Arc::clone(&state), 0);
        Ok(state)
    }

    /// The quota that a bucket's row lists; a damaged one must not make the bucket unreadable.
    fn quota_under(&self, bucket: &str, row: &Bucket, seen: &mut Seen) -> Result<Quota, Error> {
        if !row.settings.contains(Setting::Quota) {
            return Ok(Quota::default());
        }
        let document = self.setting_document(row.root, Setting::Quota, seen)?;
        Ok(Quota::decode(&document).unwrap_or_else(|error| {
            tracing::error!(bucket, %error, "the bucket's quota cannot be read: nothing is refused");
            Quota::default()
        }))
    }
}
