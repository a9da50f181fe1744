//! Displacement: what happens to the current object when another one, or a delete marker, replaces it.
//!
//! Why:        PUT, copy, complete and DELETE, and close, rename and unlink in the mount, all share this.
//! Invariants: D1 with versioning enabled the current object is kept as a version row, with its number and its rows;
//!                with versioning suspended version `null` is released, wherever it is, because the new one is `null`
//!                too.
//!             D2 a hard-linked file is copied instead of moved: its other names keep it.
//! Not here:   the entry itself, and usage counts (the callers).

use std::ops::ControlFlow;

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::record::{Data, DeleteMarker, FileEntry, Version, VersionRow};

use crate::api::{Error, VersionId, Versioning};
use crate::draft::{Draft, Owning, Seen, distinct_runs, naming_row};
use crate::entry::Located;
use crate::open::Volume;
use crate::upload::place;
use crate::versioned_key::VersionedKey;

impl Volume {
    /// Drafts that the current object of a key is displaced by this version: it is kept, or it is released and its
    /// bytes are subtracted.
    pub(crate) fn draft_displaced(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: Option<&Located>,
        comes: Version,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        if key.keeps() {
            key.assert_newest(draft, comes.sequence);
        }
        let is_null = current.is_some_and(|current| current.file.version.is_null);
        if key.versioning == Versioning::Suspended && !is_null {
            self.draft_end_of_null_row(draft, key, seen)?;
        }
        let Some(current) = current else { return Ok(()) };
        match key.versioning {
            Versioning::Enabled => self.draft_kept(draft, key, current, seen),
            Versioning::Suspended if !is_null => self.draft_kept(draft, key, current, seen),
            Versioning::Suspended | Versioning::Never => {
                draft.add(key::usage(key.root, Counted::Bytes), -(current.file.size as i64));
                self.drop_name(draft, current, seen)
            }
        }
    }

    /// Drafts the removal of version `null`, if it is a row.
    pub(crate) fn draft_end_of_null_row(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let pointer = key::null_version(key.root, key.key);
        let Some(found) = self.version_row(key, VersionId::Null, seen)? else {
            draft.assert_absent(pointer);
            return Ok(());
        };
        // The draft may contain a copy of it.
        let row = draft.value(&found.row_key).map(VersionRow::decode).transpose()?;
        key.draft_row_gone(draft, &found);
        match row.unwrap_or(found.row).file() {
            Some(file) => self.draft_end_of_version(draft, key, &file, seen),
            None => Ok(()),
        }
    }

    /// Drafts the release of a file whose version row or entry the draft removes.
    pub(crate) fn draft_end_of_version(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        file: &FileEntry,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        draft.add(key::usage(key.root, Counted::Bytes), -(file.size as i64));
        self.release_file(draft, file, seen)
    }

    /// Renaming in a versioned bucket: the inode moves to the new key; a copy stays behind as a version under a delete
    /// marker, which this returns.
    pub(crate) fn draft_left(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: &Located,
        seen: &mut Seen,
    ) -> Result<Option<VersionId>, Error> {
        if !key.keeps() {
            return Ok(None);
        }
        // Its other names would be other versions.
        if current.linked() {
            return Err(Error::KeepsVersions);
        }
        let version = self.newest_version(key, Some(current), seen)?;
        key.assert_newest(draft, version.sequence);
        if key.versioning == Versioning::Enabled || !current.file.version.is_null {
            if version.is_null {
                self.draft_end_of_null_row(draft, key, seen)?;
            }
            self.draft_kept_copy(draft, key, current, seen)?;
            draft.add(key::usage(key.root, Counted::Bytes), current.file.size as i64);
        }
        let marker = DeleteMarker { is_null: version.is_null, modified: self.now() };
        key.draft_marker(draft, version.sequence, marker);
        Ok(Some(version.id()))
    }

    /// Drafts that the current object becomes a version row.
    fn draft_kept(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: &Located,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        current.assert_in(draft);
        let file = current.drafted(draft)?.ok_or_else(|| Error::Corrupt("a file is kept that goes".to_owned()))?;
        if current.linked() {
            if file.links > 1 {
                self.draft_kept_copy(draft, key, current, seen)?;
                return self.drop_name(draft, current, seen);
            }
            draft.delete(current.row_key.clone());
        }
        draft.relocate_file(&file, &key.row(file.version.sequence));
        key.draft_row(draft, file.version.sequence, file.version.is_null, file.encode().value);
        Ok(())
    }

    /// Drafts a version row that copies the current object, whose inode continues elsewhere.
    pub(crate) fn draft_kept_copy(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: &Located,
        seen: &mut Seen,
    ) -> Result<(), Error> {
        let ino = self.new_ino()?;
        let extents = self.extents_of(&current.file, seen)?.unwrap_or_default();
        current.assert_in(draft);
        let mut kept = FileEntry { ino, links: 1, ..current.file.clone() };
        let runs = distinct_runs(&extents);
        if kept.data == Data::Rows {
            kept.data = place::place_extents(draft, ino, extents);
        }
        let row = key.row(kept.version.sequence);
        if kept.data == Data::Rows {
            draft.locate_extent_rows(ino, &row);
        }
        draft.own_runs(ino, naming_row(&kept.data, &row), &runs, Owning::OneMore);
        self.draft_rows_of_copy(draft, &current.file, ino)?;
        key.draft_row(draft, kept.version.sequence, kept.version.is_null, kept.encode().value);
        Ok(())
    }

    /// Drafts copies of a file's rows besides the entry, except its extents.
    pub(crate) fn draft_rows_of_copy(&self, draft: &mut Draft, from: &FileEntry, to: Ino) -> Result<(), Error> {
        let mut copy = |range: key::Range| {
            self.scan(&range, &mut Seen::default(), |row| {
                draft.put(key::of_another(row.key, to), row.value.to_vec());
                Ok(ControlFlow::Continue(()))
            })
        };
        if from.header_rows {
            copy(key::headers(from.ino))?;
        }
        if from.xattrs {
            copy(key::xattrs(from.ino))?;
        }
        if !from.documents.is_empty() {
            copy(key::documents(from.ino))?;
        }
        if from.part_rows {
            copy(key::part_rows(from.ino))?;
        }
        Ok(())
    }
}
