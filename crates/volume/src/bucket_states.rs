//! What the mount must know of a bucket for each change: kept in memory, asserted by the commit.
//!
//! Why:        a change of a file is one thing in a bucket that keeps versions and another in one that does not, and the
//!             mount goes by numbers, not by buckets.
//! Invariants: every commit that used a kept state asserts the bucket's row; a stale one can only conflict, and is
//!             forgotten before the next try.
//! Locking:    a leaf lock, for one step.
//! Not here:   reading one (versions), the paths of S3 (paths), which assert the same row.

use std::collections::HashMap;
use std::sync::Arc;

use margay_meta::Seq;
use margay_rows::Ino;
use margay_rows::object_lock::DefaultRetention;
use parking_lot::RwLock;

use crate::api::Versioning;
use crate::draft::Draft;
use crate::versioned_key::VersionedKey;

/// Buckets kept; when there are more, all are forgotten.
const BUCKETS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct BucketState {
    pub(crate) row_key: Vec<u8>,
    pub(crate) version: Seq,
    pub(crate) root: Ino,
    pub(crate) versioning: Versioning,
    pub(crate) object_lock: bool,
    pub(crate) retention: Option<DefaultRetention>,
    /// New objects are encrypted unless their request says otherwise.
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
