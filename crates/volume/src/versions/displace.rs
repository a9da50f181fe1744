//! What becomes of the current object when another one, or a delete marker, takes its place.
//!
//! Why:        PUT, copy, complete, DELETE, and in the mount close, rename and unlink all come down to this.
//! Invariants: a bucket that keeps versions keeps the current one as a row, with its number and its rows; a suspended
//!             one lets go of version `null`, wherever that is, because what comes is `null` too.
//!             A file with several names is not moved but copied: its other names keep it.
//! Not here:   the entry itself, and what counts as objects (the callers).

use std::ops::ControlFlow;

use margay_rows::Ino;
use margay_rows::key::{self, Counted};
use margay_rows::record::{Data, DeleteMarker, FileEntry, Version, VersionRow};

use crate::api::{Error, VersionId, Versioning};
use crate::draft::Draft;
use crate::names::Located;
use crate::open::Volume;
use crate::place;
use crate::seen::Seen;
use crate::versioned_key::VersionedKey;

impl Volume {
    /// Drafts that the current object of a key is current no more, as far as versions go: it is kept, or it ends and its
    /// bytes are counted out. What comes is this version.
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
            Versioning::Enabled => self.draft_kept(draft, key, current),
            Versioning::Suspended if !is_null => self.draft_kept(draft, key, current),
            Versioning::Suspended | Versioning::Never => {
                draft.add(key::usage(key.root, Counted::Bytes), -(current.file.size as i64));
                self.drop_name(draft, current)
            }
        }
    }

    /// Drafts that version `null` goes, if it is a row.
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
        // A copy of it may have been drafted.
        let row = draft.value(&found.row_key).map(VersionRow::decode).transpose()?;
        key.draft_row_gone(draft, &found);
        match row.unwrap_or(found.row).file() {
            Some(file) => self.draft_end_of_version(draft, key, &file),
            None => Ok(()),
        }
    }

    /// Drafts the end of a file whose version row or entry the draft removes.
    pub(crate) fn draft_end_of_version(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        file: &FileEntry,
    ) -> Result<(), Error> {
        draft.add(key::usage(key.root, Counted::Bytes), -(file.size as i64));
        self.release_file(draft, file)
    }

    /// Drafts that the current object of a key leaves it under its number, to be current at another one: a copy of it
    /// is kept as far as versions are, below a delete marker, which this gives.
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
            self.draft_kept_copy(draft, key, current)?;
            draft.add(key::usage(key.root, Counted::Bytes), current.file.size as i64);
        }
        let marker = DeleteMarker { is_null: version.is_null, modified: self.now() };
        key.draft_marker(draft, version.sequence, marker);
        Ok(Some(version.id()))
    }

    /// Drafts that the current object becomes a version row.
    fn draft_kept(&self, draft: &mut Draft, key: &VersionedKey<'_>, current: &Located) -> Result<(), Error> {
        current.assert_in(draft);
        let file = current.drafted(draft)?.ok_or_else(|| Error::Corrupt("a file is kept that goes".to_owned()))?;
        if !current.linked() {
            key.draft_row(draft, file.version.sequence, file.version.is_null, file.encode().value);
            return Ok(());
        }
        if file.links > 1 {
            self.draft_kept_copy(draft, key, current)?;
            return self.drop_name(draft, current);
        }
        draft.delete(current.row_key.clone());
        key.draft_row(draft, file.version.sequence, file.version.is_null, file.encode().value);
        Ok(())
    }

    /// Drafts a version row that is a copy of the current object, which lives on under its number elsewhere.
    pub(crate) fn draft_kept_copy(
        &self,
        draft: &mut Draft,
        key: &VersionedKey<'_>,
        current: &Located,
    ) -> Result<(), Error> {
        let ino = self.new_ino()?;
        let extents = self.extents_of(&current.file)?;
        if let Some(extents) = &extents {
            self.share_runs(draft, current, ino, extents)?;
        }
        let mut kept = FileEntry { ino, links: 1, ..current.file.clone() };
        kept.shared = extents.as_ref().is_some_and(|extents| !extents.is_empty());
        if let (Data::Rows, Some(extents)) = (&kept.data, extents) {
            kept.data = place::place_extents(draft, ino, extents);
        }
        self.draft_rows_of_copy(draft, &current.file, ino)?;
        key.draft_row(draft, kept.version.sequence, kept.version.is_null, kept.encode().value);
        Ok(())
    }

    /// Drafts copies of the rows beside a file's entry, but for its extents.
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
        if from.etag.parts > 0 {
            copy(key::part_rows(from.ino))?;
        }
        Ok(())
    }
}
