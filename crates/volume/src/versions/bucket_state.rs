//! The versioning state of a bucket, by the number of its root.

use std::sync::Arc;

use margay_rows::kinds::Setting;
use margay_rows::record::{Bucket, DirectoryRecord};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::cache::BucketState;
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
        let retention = self.default_retention(&row, &mut Seen::default())?;
        let encrypts = row.settings.contains(Setting::Encryption);
        let Bucket { versioning, object_lock, .. } = row;
        let row_key = key::bucket(&name);
        let state = Arc::new(BucketState { row_key, version, root, versioning, object_lock, retention, encrypts });
        self.bucket_facts.keep_fact(root, version, Arc::clone(&state), 0);
        Ok(state)
    }
}
