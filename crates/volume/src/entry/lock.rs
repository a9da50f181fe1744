//! Object lock: whether a version may be removed or changed.
//!
//! Why:        a locked record is as safe as the weakest door, so both doors ask here.
//! Invariants: O1 a version under a legal hold or an active retention is neither removed nor changed; a new version or
//!                a delete marker above it leaves it unchanged. Governance mode yields to callers who may bypass it.
//!             O2 locks are documents of the version's inode, so asserting its row asserts them.
//!             O3 a bucket with object lock has versioning enabled, permanently.
//!             O4 the mount never bypasses a lock: a locked current version is read-only there.
//! Not here:   changing locks (change_locks), a bucket's default (bucket_object_lock), lock values (margay-rows), who
//!             may bypass (the S3 door).

use std::time::Duration;

use margay_env::Timestamp;
use margay_rows::key;
use margay_rows::kinds::{Document, Documents};
use margay_rows::object_lock::{Retention, RetentionMode, legal_hold_is_on};
use margay_rows::record::FileEntry;

use crate::api::Error;
use crate::cache::BucketState;
use crate::draft::{Draft, Seen};
use crate::open::Volume;

impl Volume {
    /// Sets the trusted time at a moment of the monotonic clock: from now on locks end by it.
    pub fn set_lock_time(&self, believed: Timestamp, monotonic: Duration) {
        self.lock_time.set(believed, monotonic);
    }

    /// Refuses to remove or change a locked version.
    pub(crate) fn check_unlocked(
        &self,
        file: &FileEntry,
        bypass_governance: bool,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let kinds = file.documents;
        if !kinds.contains(Document::Retention) && !kinds.contains(Document::LegalHold) {
            return Ok(());
        }
        let documents = self.documents_of(file, seen)?;
        if self.is_locked(&documents, bypass_governance)? { Err(Error::Locked) } else { Ok(()) }
    }

    pub(crate) fn is_file_locked(&self, file: &FileEntry) -> Result<bool, Error> {
        match self.check_unlocked(file, false, &mut Seen::default()) {
            Ok(()) => Ok(false),
            Err(Error::Locked) => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn is_locked(&self, documents: &Documents, bypass_governance: bool) -> Result<bool, Error> {
        if documents.get(&Document::LegalHold).is_some_and(|hold| legal_hold_is_on(hold)) {
            return Ok(true);
        }
        let Some(retention) = documents.get(&Document::Retention) else { return Ok(false) };
        let Retention { mode, until } = Retention::decode(retention)?;
        Ok(until > self.lock_time.now(&*self.env.clock) && !(bypass_governance && mode == RetentionMode::Governance))
    }

    /// Drafts the default retention of a new version without one of its own. Refuses locks in a bucket without object
    /// lock.
    pub(crate) fn draft_locks(
        &self,
        draft: &mut Draft,
        bucket: &BucketState,
        file: &mut FileEntry,
    ) -> Result<(), Error> {
        let own = file.documents.contains(Document::Retention);
        if !bucket.object_lock && (own || file.documents.contains(Document::LegalHold)) {
            return Err(Error::NoObjectLock);
        }
        if own
            && let Some(document) = draft.value(&key::document(file.ino, Document::Retention))
            && Retention::decode(document)?.until <= self.now()
        {
            return Err(Error::RetentionOver);
        }
        if let Some(default) = bucket.retention.filter(|_| bucket.object_lock && !own) {
            file.documents.insert(Document::Retention);
            draft.put(
                key::document(file.ino, Document::Retention),
                default.from(self.lock_time.from(&*self.env.clock)).encode().to_vec(),
            );
        }
        Ok(())
    }

    /// Drafts that a file becomes another version, which does not inherit the locks of the last one.
    pub(crate) fn draft_locks_left(&self, draft: &mut Draft, file: &mut FileEntry) {
        for kind in [Document::Retention, Document::LegalHold] {
            if file.documents.contains(kind) {
                file.documents.remove(kind);
                draft.delete(key::document(file.ino, kind));
            }
        }
    }
}
