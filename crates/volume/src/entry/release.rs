//! Releases a file's, part's or directory's rows in the batch that removes its name.
//!
//! Why:        a run is live while it has an owner, so a removed owner deletes its own back rows and ignores other
//!             owners.
//! Invariants: R1 the batch asserts the row that referred to the runs, so exactly its references are removed.
//!             R2 more rows than `RELEASE_ROWS_MAX` become an orphan, drained in later batches.
//! Not here:   removing segment files (reclaim), draining (orphan).

use std::ops::ControlFlow;

use margay_rows::Ino;
use margay_rows::key;
use margay_rows::record::data::{OBJECT_EXTENTS_MAX, decode_extent_row};
use margay_rows::record::{Data, DirectoryEntry, FileEntry, Orphan};
use margay_segment::Extent;

use crate::api::Error;
use crate::draft::{Draft, Seen, distinct_runs};
use crate::entry::documents;
use crate::open::Volume;

/// Maximum number of extent rows removed in the batch that removes the file.
pub(crate) const RELEASE_ROWS_MAX: usize = 8192;

impl Volume {
    /// Drafts the release of a file; the draft removes or replaces its entry and asserts the entry's version.
    pub(crate) fn release_file(&self, draft: &mut Draft, file: &FileEntry, seen: &mut Seen) -> Result<(), Error> {
        if file.header_rows {
            self.delete_seen_rows(draft, &key::headers(file.ino), seen)?;
        }
        if file.xattrs {
            self.delete_seen_rows(draft, &key::xattrs(file.ino), seen)?;
        }
        documents::draft_removed(draft, file);
        if file.part_rows {
            self.delete_seen_rows(draft, &key::part_rows(file.ino), seen)?;
        }
        match &file.data {
            Data::Inline(_) => Ok(()),
            Data::Extents(extents) => {
                draft.disown_runs(file.ino, &distinct_runs(extents));
                Ok(())
            }
            Data::Rows => {
                let rows = self.extent_rows(file.ino, 0, RELEASE_ROWS_MAX + 1, seen)?;
                draft.delete(key::location(file.ino));
                if rows.len() > RELEASE_ROWS_MAX {
                    draft.put(key::orphan(file.ino), Orphan::File.encode());
                    return Ok(());
                }
                rows.iter().for_each(|(offset, _)| draft.delete(key::extent(file.ino, *offset)));
                let extents: Vec<Extent> = rows.into_iter().map(|(_, extent)| extent).collect();
                draft.disown_runs(file.ino, &distinct_runs(&extents));
                Ok(())
            }
        }
    }

    /// Drafts the release of a directory; the draft removes or replaces its entry, and asserts the entry's version and
    /// that the directory is empty.
    pub(crate) fn release_directory(&self, draft: &mut Draft, directory: &DirectoryEntry) -> Result<(), Error> {
        draft.delete(key::directory(directory.ino));
        draft.delete(key::times(directory.ino));
        draft.delete(key::subdirectories(directory.ino));
        if directory.xattrs { self.delete_rows(draft, &key::xattrs(directory.ino)) } else { Ok(()) }
    }

    /// All extents of a file, in order; `None` when its bytes are inline.
    pub(crate) fn extents_of(&self, file: &FileEntry, seen: &mut Seen) -> Result<Option<Vec<Extent>>, Error> {
        match &file.data {
            Data::Inline(_) => Ok(None),
            Data::Extents(extents) => Ok(Some(extents.clone())),
            Data::Rows => {
                let rows = self.extent_rows(file.ino, 0, OBJECT_EXTENTS_MAX + 1, seen)?;
                Ok(Some(rows.into_iter().map(|(_, extent)| extent).collect()))
            }
        }
    }

    /// Extent rows of a file from `offset` on, at most `limit`.
    pub(crate) fn extent_rows(
        &self,
        ino: Ino,
        offset: u64,
        limit: usize,
        seen: &mut Seen,
    ) -> Result<Vec<(u64, Extent)>, Error> {
        let mut rows = Vec::new();
        let range = (key::extent(ino, offset), key::extents(ino).1);
        self.scan(&range, seen, |row| {
            rows.push((key::parse_extent(row.key)?.1, decode_extent_row(row.value)?));
            Ok(if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(rows)
    }

    /// Drafts the removal of a small range.
    pub(crate) fn delete_rows(&self, draft: &mut Draft, range: &key::Range) -> Result<(), Error> {
        self.delete_seen_rows(draft, range, &mut Seen::default())
    }

    /// As `delete_rows`; the rows may have been prefetched.
    pub(crate) fn delete_seen_rows(&self, draft: &mut Draft, range: &key::Range, seen: &mut Seen) -> Result<(), Error> {
        self.scan(range, seen, |row| {
            draft.delete(row.key.to_vec());
            Ok(ControlFlow::Continue(()))
        })
    }
}
