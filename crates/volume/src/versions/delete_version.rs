//! DELETE of one version: it is removed permanently, and the newest remaining version becomes current.
//!
//! Invariants: D1 after removing the current version, the newest row becomes the entry if it is a file; after removing
//!                a delete marker that was newest, too, and the key exists again, with the directories on its way.
//!                Asserted: no row is newer.
//! Locking:    the directory's latch, as DELETE.
//! Not here:   DELETE without a version (delete_object).

use margay_rows::event::EventKind;
use margay_rows::key::{self, Counted};
use margay_rows::record::VersionRow;

use super::rows::FoundVersion;
use crate::api::{DeleteRequest, Deleted, ETag, Error, VersionId};
use crate::draft::{Draft, Seen};
use crate::driver::Decided;
use crate::entry::{Current, Walk};
use crate::error::Refused;
use crate::event::Told;
use crate::open::Volume;

impl Volume {
    pub(crate) fn try_delete_version(
        &self,
        walk: &Walk<'_>,
        (request, id): (&DeleteRequest<'_>, VersionId),
        seen: &mut Seen,
    ) -> Result<Decided<Deleted>, Refused> {
        let current = self.current(walk, request.key, seen)?;
        let key = current.object;
        let version = key.keeps().then_some(id);
        let mut draft = Draft::default();
        walk.path.assert_in(&mut draft);
        if current.id(walk) == Some(id) {
            request.condition.check(current.etag(walk))?;
            if let Some(located) = &current.file {
                self.check_unlocked(&located.file, request.bypass_governance, seen)?;
            }
            self.draft_current_gone(&mut draft, walk, &current, seen)?;
            self.draft_version_event(&mut draft, walk, (request.key, version))?;
            return self.finish(draft, Deleted { removed: true, version, marker: false });
        }
        let found = if key.keeps() { self.version_row(&key, id, seen)? } else { None };
        let Some(found) = found else {
            request.condition.check(None)?;
            return Ok(Decided::Nothing(Deleted { removed: false, version, marker: false }));
        };
        current.assert_in(&mut draft, walk);
        key.draft_row_gone(&mut draft, &found);
        let marker = match &found.row {
            VersionRow::File(file) => {
                request.condition.check(Some(file.etag))?;
                self.check_unlocked(file, request.bypass_governance, seen)?;
                self.draft_end_of_version(&mut draft, &key, file, seen)?;
                false
            }
            VersionRow::Marker(_) => {
                request.condition.check(None)?;
                if current.file.is_none() {
                    self.draft_marker_gone(&mut draft, walk, &current, &found, seen)?;
                }
                true
            }
        };
        self.draft_version_event(&mut draft, walk, (request.key, version))?;
        self.finish(draft, Deleted { removed: true, version, marker })
    }

    /// Drafts the event that a version, perhaps a delete marker, was deleted.
    fn draft_version_event(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        (key, version): (&str, Option<VersionId>),
    ) -> Result<(), Error> {
        let told = Told { kind: EventKind::Delete, key, size: 0, etag: ETag::default(), version };
        self.draft_event(draft, &walk.path, &told)
    }

    /// Drafts the removal of the current version; the newest row replaces it, or the key has no object.
    fn draft_current_gone(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        current: &Current<'_>,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let key = current.object;
        if let Some(located) = &current.file {
            draft.add(key::usage(key.root, Counted::Objects), -1);
            draft.add(key::usage(key.root, Counted::Bytes), -(located.file.size as i64));
            self.drop_name(draft, located, seen)?;
        }
        let next = if key.keeps() { self.newest_row(&key, seen)? } else { None };
        if key.keeps() {
            key.assert_newest(draft, next.as_ref().map_or(0, |next| next.sequence + 1));
        }
        match next {
            Some(next) if current.file.is_some() && matches!(next.row, VersionRow::File(_)) => {
                self.draft_promoted(draft, walk, current, next)
            }
            next => {
                if let Some(marker) = next {
                    draft.assert_exists(marker.row_key);
                }
                self.draft_entry_gone(draft, walk, current, seen)
            }
        }
    }

    /// Drafts the consequences of removing a delete marker from a key without a current object.
    fn draft_marker_gone(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        current: &Current<'_>,
        gone: &FoundVersion,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let key = &current.object;
        if let Some(newest) = self.newest_row(key, seen)?.filter(|newest| newest.sequence != gone.sequence) {
            draft.assert_exists(newest.row_key);
            return Ok(());
        }
        key.assert_newest(draft, gone.sequence + 1);
        match self.newest_below(key, gone.sequence, seen)? {
            Some(next) if matches!(next.row, VersionRow::File(_)) => self.draft_promoted(draft, walk, current, next),
            Some(marker) => {
                draft.assert_exists(marker.row_key);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Drafts that a version row becomes the key's entry, with the directories on its way.
    fn draft_promoted(
        &self,
        draft: &mut Draft,
        walk: &Walk<'_>,
        current: &Current<'_>,
        next: FoundVersion,
    ) -> Result<(), Error> {
        let key = &current.object;
        key.draft_row_gone(draft, &next);
        let Some(file) = next.row.file() else { return Ok(()) };
        let directory = self.make_directories(walk, draft)?;
        draft.max(key::times(directory), self.now().0.max(0) as u64);
        draft.add(key::usage(key.root, Counted::Objects), 1);
        let entry = key::entry(directory, current.name.as_bytes());
        draft.relocate_file(&file, &entry);
        draft.put(entry, file.encode().value);
        Ok(())
    }
}
