//! Facts of a bucket that each change needs, of both doors; the commit asserts them.
//!
//! Why:        a change depends on the bucket's versioning, its object lock, its quota; the mount addresses files by
//!             number, not by bucket, and paths of S3 share one state.
//! Invariants: S1 every commit that used a cached state asserts the bucket's row. A stale state can only conflict, and
//!                is dropped before the retry.
//!             S2 a write to an open file, which commits nothing, is measured by the newest cached quota; the publish
//!                asserts the state, and the follower drops one that another process made stale.
//! Not here:   the cache (bucket_facts), loading a state (driver/bucket_state), paths of S3 (path).

use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::object_lock::DefaultRetention;

use crate::api::Versioning;
use crate::cache::Quota;
use crate::draft::Draft;
use crate::versioned_key::VersionedKey;

#[derive(Debug)]
pub(crate) struct BucketState {
    pub(crate) row_key: Vec<u8>,
    pub(crate) version: RowVersion,
    pub(crate) root: Ino,
    pub(crate) versioning: Versioning,
    pub(crate) object_lock: bool,
    /// The default retention of a new version.
    pub(crate) retention: Option<DefaultRetention>,
    pub(crate) quota: Quota,
    /// The bucket has notification rules.
    pub(crate) notifies: bool,
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
