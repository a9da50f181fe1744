//! Cache of bucket facts that the mount needs for each change; the commit asserts them.
//!
//! Why:        a change of a file depends on the bucket's versioning, and the mount addresses files by number, not by
//!             bucket.
//! Invariants: S1 every commit that used a cached state asserts the bucket's row. A stale state can only conflict, and
//!                is dropped before the retry.
//! Locking:    a leaf lock, held for one operation.
//! Not here:   loading a state (versions), paths of S3 (paths), which assert the same row.

use std::collections::HashMap;
use std::sync::Arc;

use margay_meta::RowVersion;
use margay_rows::Ino;
use margay_rows::object_lock::DefaultRetention;
use parking_lot::RwLock;

use crate::api::Versioning;
use crate::draft::Draft;
use crate::versioned_key::VersionedKey;

/// Capacity; when exceeded, the cache is cleared.
const BUCKETS_MAX: usize = 1024;

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

#[derive(Debug, Default)]
pub(crate) struct BucketStates {
    states: RwLock<HashMap<Ino, Arc<BucketState>>>,
}

impl BucketStates {
    pub(crate) fn get(&self, root: Ino) -> Option<Arc<BucketState>> {
        self.states.read().get(&root).cloned()
    }

    pub(crate) fn keep(&self, state: BucketState) -> Arc<BucketState> {
        let state = Arc::new(state);
        let mut states = self.states.write();
        if states.len() >= BUCKETS_MAX {
            states.clear();
        }
        states.insert(state.root, Arc::clone(&state));
        state
    }

    pub(crate) fn forget_all(&self) {
        self.states.write().clear();
    }

    pub(crate) fn forget(&self, root: Ino) {
        self.states.write().remove(&root);
    }
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
