//! Expires a version or a delete marker that is due by its bucket's lifecycle.
//!
//! Invariants: E1 only what was evaluated is removed: a noncurrent version that became current again stays, and so does
//!                one whose id another took (`null`), and a delete marker with a version below it.
//! Locking:    the directory's latch, as DELETE.
//! Not here:   when something is due (margay-jobs), expiry of a current object (delete_object).

use margay_env::Timestamp;
use margay_rows::event::EventKind;
use margay_rows::key;
use margay_rows::record::VersionRow;

use super::rows::FoundVersion;
use crate::api::{ETag, Error, VersionId};
use crate::cache::split;
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::entry::{Current, Walk};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;
use crate::sessions::Lease;

/// What the lifecycle evaluated as due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueVersion {
    /// A noncurrent version or delete marker.
    Replaced,
    /// A delete marker that is the only version of its key.
    LoneMarker,
}

impl Volume {
    /// Expires a version with this modification time, if it still is what was evaluated; `Ok(false)` if not. `Locked`
    /// if a lock protects it.
    pub async fn expire_version(
        &self,
        bucket: &str,
        (key, id, modified): (&str, VersionId, Timestamp),
        due: DueVersion,
        lease: &Lease,
    ) -> Result<bool, Error> {
        let done = self.change(bucket, split(key), |walk, seen| {
            let _turn = self.turn_in(walk.path.directory());
            self.try_expire_version(walk, (key, id, modified), (due, lease), seen)
        });
        self.answer(done.await).await
    }

    fn try_expire_version(
        &self,
        walk: &Walk<'_>,
        (name, id, modified): (&str, VersionId, Timestamp),
        (due, lease): (DueVersion, &Lease),
        seen: &mut Seen,
    ) -> Result<Decided<bool>, Refused> {
        let current = self.current(walk, name, seen)?;
        let key = &current.object;
        // The current version is not a row.
        let found = if key.keeps() { self.version_row(key, id, seen)? } else { None };
        let Some(found) = found.filter(|found| found.row.modified() == modified) else {
            return Ok(Decided::Nothing(false));
        };
        let mut draft = Draft::default();
        lease.assert_in(&mut draft);
        walk.path.assert_in(&mut draft);
        current.assert_in(&mut draft, walk);
        if !self.draft_as_judged(&mut draft, (walk, &current), &found, due, seen)? {
            return Ok(Decided::Nothing(false));
        }
        key.draft_row_gone(&mut draft, &found);
        if let VersionRow::File(file) = &found.row {
            self.check_unlocked(file, false, seen)?;
            self.draft_end_of_version(&mut draft, key, file, seen)?;
        }
        let told = Told { kind: EventKind::Expired, key: name, size: 0, etag: ETag::default(), version: Some(id) };
        self.draft_event(&mut draft, &walk.path, &told)?;
        self.finish(draft, true)
    }

    /// Drafts the assertion that a version is what was evaluated; false if it is not.
    fn draft_as_judged(
        &self,
        draft: &mut Draft,
        (walk, current): (&Walk<'_>, &Current<'_>),
        found: &FoundVersion,
        due: DueVersion,
        seen: &mut Seen,
    ) -> Result<bool, Error> {
        let key = &current.object;
        let newest = self.newest_row(key, seen)?;
        let is_newest = newest.as_ref().is_some_and(|newest| newest.sequence == found.sequence);
        let is_replaced = current.file.is_some() || !is_newest;
        match due {
            DueVersion::Replaced if current.file.is_some() => Ok(true),
            DueVersion::Replaced => {
                // The delete marker above it must stay, or it would become current.
                if let Some(newest) = newest {
                    draft.assert_exists(newest.row_key);
                }
                Ok(is_replaced)
            }
            DueVersion::LoneMarker => {
                let below = self.newest_below(key, found.sequence, seen)?;
                key.assert_newest(draft, found.sequence + 1);
                draft.assert_empty(key::versions_below(key.root, key.key, found.sequence), key.guard());
                let is_marker = matches!(found.row, VersionRow::Marker(_));
                Ok(is_marker && !is_replaced && below.is_none() && !current.explicit(walk))
            }
        }
    }
}
