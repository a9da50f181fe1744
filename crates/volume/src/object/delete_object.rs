//! DELETE of an object, and of implicit directories that become empty.
//!
//! Why:        S3 has no directories, so an implicit directory disappears with its last entry.
//! Invariants: D1 DELETE of `a/` is never recursive: a directory with entries stays, but becomes implicit.
//!             D2 in a bucket with versioning the key gets a delete marker, whether or not it had an object.
//! Locking:    the directory's latch, over the reads and the commit: concurrent removals would otherwise each rely on
//!             the entry that the other is about to remove.
//! Not here:   the directories (implicit_directories), the object's data (release), versions, and DELETE of one
//!             (versions).

use margay_env::Timestamp;
use margay_meta::Cursor;
use margay_rows::event::EventKind;
use margay_rows::key::{self, Counted};
use margay_rows::record::{DeleteMarker, Version};

use crate::api::{DeleteRequest, Deleted, ETag, Error, VersionId, Versioning};
use crate::cache::split;
use crate::draft::{Draft, Seen};
use crate::driver::{Decided, Purpose, View};
use crate::entry::{Current, Located, Walk, check_key};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;
use crate::sessions::Lease;
use crate::versioned_key::VersionedKey;

/// Why an object is deleted.
#[derive(Clone, Copy, Debug)]
enum Reason<'a> {
    /// A client requests it, with a condition.
    Asked(&'a DeleteRequest<'a>),
    /// The bucket's lifecycle expires the object with this modification time.
    Due(Timestamp, &'a Lease),
}

impl View<'_> {
    /// Succeeds if there is nothing to delete, but fails with `NoSuchKey` if the condition requires an object.
    pub async fn delete_object(self, bucket: &str, request: &DeleteRequest<'_>) -> Result<Deleted, Error> {
        let rows = self.take_for_change(bucket);
        self.volume.delete_from(rows, bucket, request).await
    }
}

impl Volume {
    /// Succeeds if there is nothing to delete, but fails with `NoSuchKey` if the condition requires an object.
    pub async fn delete_object(&self, bucket: &str, request: &DeleteRequest<'_>) -> Result<Deleted, Error> {
        let rows = self.look(bucket, Purpose::DeleteObject(request.key, request.version)).await?;
        self.view(&rows).delete_object(bucket, request).await
    }

    /// `delete_object`, whose first attempt uses these rows.
    pub(crate) async fn delete_from(
        &self,
        rows: Seen,
        bucket: &str,
        request: &DeleteRequest<'_>,
    ) -> Result<Deleted, Error> {
        let done = self.delete_now(rows, bucket, request).await;
        self.answer(done).await
    }

    /// Expires the current object of a key if it still has this modification time; `Ok(false)` if not. `Locked` if it
    /// would be deleted permanently and a lock protects it.
    pub async fn expire_object(
        &self,
        bucket: &str,
        key: &str,
        modified: Timestamp,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let done = self.change(bucket, split(key), |walk, seen| {
            let _turn = self.turn_in(walk.path.directory());
            self.try_delete(walk, key, Reason::Due(modified, lease), seen)
        });
        self.answer(done.await.map(|(deleted, seq)| (deleted.removed, seq))).await
    }

    pub(crate) async fn delete_now(
        &self,
        rows: Seen,
        bucket: &str,
        request: &DeleteRequest<'_>,
    ) -> Result<(Deleted, Cursor), Error> {
        self.change_from(rows, bucket, split(request.key), |walk, seen| {
            let _turn = self.turn_in(walk.path.directory());
            match request.version {
                Some(version) => self.try_delete_version(walk, (request, version), seen),
                None => self.try_delete(walk, request.key, Reason::Asked(request), seen),
            }
        })
        .await
    }

    fn try_delete(
        &self,
        walk: &Walk<'_>,
        name: &str,
        reason: Reason<'_>,
        seen: &mut Seen,
    ) -> Result<Decided<Deleted>, Refused> {
        let current = self.current(walk, name, seen)?;
        let key = current.object;
        match reason {
            Reason::Asked(request) => request.condition.check(current.etag(walk))?,
            Reason::Due(modified, _) if self.modified_at(&current, walk, seen)? != Some(modified) => {
                return Ok(Decided::Nothing(Deleted::default()));
            }
            Reason::Due(..) => self.check_expiry(&current, seen)?,
        }
        let removed = current.file.is_some() || current.explicit(walk);
        if !removed && !key.keeps() {
            self.check_absent(walk.path.directory())?;
            // Also absent if a directory on the way is, which the walk has recorded.
            return Ok(Decided::Nothing(Deleted::default()));
        }
        let mut draft = Draft::default();
        if let Reason::Due(_, lease) = reason {
            lease.assert_in(&mut draft);
        }
        walk.path.assert_in(&mut draft);
        let version = match key.keeps() {
            true => {
                check_key(name)?;
                self.check_room()?;
                current.assert_in(&mut draft, walk);
                Some(self.draft_delete_marker(&mut draft, &key, current.file.as_ref(), seen)?)
            }
            false => {
                self.draft_displaced(&mut draft, &key, current.file.as_ref(), Version::OLD, seen)?;
                None
            }
        };
        if current.file.is_some() {
            draft.add(key::usage(key.root, Counted::Objects), -1);
        }
        if removed {
            self.draft_entry_gone(&mut draft, walk, &current, seen)?;
        }
        let kind = reason.event(version.is_some());
        self.draft_event(&mut draft, &walk.path, &Told { kind, key: name, size: 0, etag: ETag::default(), version })?;
        self.finish(draft, Deleted { removed, version, marker: version.is_some() })
    }

    /// Modification time of what S3 shows at the key.
    fn modified_at(&self, current: &Current<'_>, walk: &Walk<'_>, seen: &mut Seen) -> Result<Option<Timestamp>, Error> {
        match &current.file {
            Some(old) => Ok(Some(old.file.modified)),
            None if current.explicit(walk) => self.modified(walk.path.directory(), seen).map(Some),
            None => Ok(None),
        }
    }

    /// Refuses to expire a locked object, unless it stays as a version below a delete marker.
    fn check_expiry(&self, current: &Current<'_>, seen: &mut Seen) -> Result<(), Error> {
        match &current.file {
            Some(old) if current.object.versioning != Versioning::Enabled => {
                self.check_unlocked(&old.file, false, seen)
            }
            _ => Ok(()),
        }
    }

    /// Drafts a delete marker as the newest version of a key, and that it displaces the current object.
    pub(crate) fn draft_delete_marker(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: Option<&Located>,
        seen: &mut Seen,
    ) -> Result<VersionId, Error> {
        let version = self.newest_version(key, current, seen)?;
        self.draft_displaced(draft, key, current, version, seen)?;
        let marker = DeleteMarker { is_null: version.is_null, modified: self.now() };
        key.draft_marker(draft, version.sequence, marker);
        Ok(version.id())
    }
}

impl Reason<'_> {
    /// The event; `marked`: a delete marker was created.
    fn event(self, marked: bool) -> EventKind {
        match (self, marked) {
            (Reason::Asked(_), false) => EventKind::Delete,
            (Reason::Asked(_), true) => EventKind::DeleteMarkerCreated,
            (Reason::Due(..), false) => EventKind::Expired,
            (Reason::Due(..), true) => EventKind::ExpiredToMarker,
        }
    }
}
