//! Facts of a bucket that the mount needs for each change; the commit asserts them.
//!
//! Why:        a change of a file depends on the bucket's versioning, and the mount addresses files by number, not by
//!             bucket.
//! Invariants: S1 every commit that used a cached state asserts the bucket's row. A stale state can only conflict, and
//!                is dropped before the retry.
//! Not here:   the cache (bucket_facts), loading a state (versions), paths of S3 (paths), which assert the same row.

use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::object_lock::DefaultRetention;

use crate::api::Versioning;
use crate::draft::Draft;
use crate::versioned_key::VersionedKey;

#[derive(Debug)]
pub(crate) struct BucketState {
    pub(crate) row_key: Vec<u8>,
    pub(crate) version: RowVersion,
    pub(crate) root: Ino,
    pub(crate) versioning: Versioning,
    pub(crate) object_lock: bool,
    pub(crate) retention: Option<DefaultRetention>,
    /// New objects are encrypted by default.
    pub(crate) encrypts: bool,
}

impl BucketState {
    pub(crate) fn keeps(&self) -> bool {
        self.versioning != Versioning::Never
    }

    pub(crate) fn assert_in(&self, draft: &mut Draft) {
        draft.assert_version(self.row_key.clone(), self.version);
    }

    pub(crate) fn object<'k>(&self, key: &'k str) -> VersionedKey<'k> {
        VersionedKey { root: self.root, key, versioning: self.versioning }
    }
}
