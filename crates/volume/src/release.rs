//! Letting go of a file's, part's or directory's rows in the batch that removes its name.
//!
//! Why:        a run is live as long as one owner names it; share rows say who else does.
//! Invariants: R1 a file without the shared flag is the only owner of its runs: taking a share sets the flag, so
//!                the version of its entry, which the batch asserts, proves it.
//!             R2 an owner that is not the last asserts that another one is there; the last asserts that nobody
//!                else is. So of two owners that go at once one conflicts, and no run is counted out twice.
//!             R3 more rows than `RELEASE_ROWS_MAX` become an orphan, drained in later batches.
//! Not here:   removing segment files (reclaim), draining (orphan).

use std::ops::ControlFlow;

use margay_rows::Ino;
use margay_rows::key::{self, Live};
use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{Data, DirectoryEntry, FileEntry, Orphan};
use margay_segment::{Extent, Run};

use crate::api::Error;
use crate::documents;
use crate::draft::Draft;
use crate::open::Volume;
use crate::seen::Seen;

/// Most extent rows that go in the batch that removes the file.
pub(crate) const RELEASE_ROWS_MAX: usize = 8192;

impl Volume {
    /// Drafts the end of a file whose entry the draft removes or replaces, and whose version it asserts.
    pub(crate) fn release_file(&self, draft: &mut Draft, file: &FileEntry) -> Result<(), Error> {
        if file.header_rows {
            self.delete_rows(draft, &key::headers(file.ino))?;
        }
        if file.xattrs {
            self.delete_rows(draft, &key::xattrs(file.ino))?;
        }
        documents::draft_removed(draft, file);
        if file.etag.parts > 0 {
            self.delete_rows(draft, &key::part_rows(file.ino))?;
        }
        match &file.data {
            Data::Inline(_) => Ok(()),
            Data::Extents(extents) => self.release_runs(draft, file.ino, file.shared, extents),
            Data::Rows => {
                let rows = self.extent_rows(file.ino, 0, RELEASE_ROWS_MAX + 1, &mut Seen::default())?;
                if rows.len() > RELEASE_ROWS_MAX {
                    draft.put(key::orphan(file.ino), Orphan::File { shared: file.shared }.encode());
                    return Ok(());
                }
                rows.iter().for_each(|(offset, _)| draft.delete(key::extent(file.ino, *offset)));
                let extents: Vec<Extent> = rows.into_iter().map(|(_, extent)| extent).collect();
                self.release_runs(draft, file.ino, file.shared, &extents)
            }
        }
    }

    /// Drafts the end of a directory whose entry the draft removes or replaces, and whose version and emptiness it
    /// asserts.
    pub(crate) fn release_directory(&self, draft: &mut Draft, directory: &DirectoryEntry) -> Result<(), Error> {
        draft.delete(key::directory(directory.ino));
        draft.delete(key::times(directory.ino));
        draft.delete(key::subdirectories(directory.ino));
        if directory.xattrs { self.delete_rows(draft, &key::xattrs(directory.ino)) } else { Ok(()) }
    }

    /// Drafts that `owner` names these extents' runs no more.
    pub(crate) fn release_runs(
        &self,
        draft: &mut Draft,
        owner: Ino,
        shared: bool,
        extents: &[Extent],
    ) -> Result<(), Error> {
        for run in distinct_runs(extents) {
            if !shared || self.is_last_owner(draft, owner, &run)? {
                draft.add(key::live(run.segment, Live::Lost), run.len as i64);
            }
        }
        Ok(())
    }

    fn is_last_owner(&self, draft: &mut Draft, owner: Ino, run: &Run) -> Result<bool, Error> {
        let mine = key::share(run.segment, run.offset, owner);
        let range = key::shares(run.segment, run.offset);
        let (mut other, mut going) = (None, Vec::new());
        self.scan(&range, &mut Seen::default(), |row| {
            // Owners that this same batch removes do not keep the run alive.
            if row.key == mine || draft.deletes(row.key) {
                going.push(row.key.to_vec());
                return Ok(ControlFlow::Continue(()));
            }
            other.get_or_insert_with(|| row.key.to_vec());
            Ok(if going.contains(&mine) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        // Owners that this same batch lists are not there yet.
        let joins = draft.shares_put(&range).any(|key| *key != mine);
        let (last, listed) = (other.is_none() && !joins, going.contains(&mine) || draft.value(&mine).is_some());
        if !last && !listed {
            return Err(Error::Corrupt(format!("share rows of {:?} at {} lack an owner", run.segment, run.offset)));
        }
        match other {
            Some(other) => draft.assert_exists(other),
            None if joins => {}
            None => draft.assert_only(&range, going),
        }
        if listed {
            draft.delete(mine);
        }
        Ok(last)
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
        self.scan(range, &mut Seen::default(), |row| {
            draft.delete(row.key.to_vec());
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// Each run once; a file may name a run in several extents. Holes are no runs.
pub(crate) fn distinct_runs(extents: &[Extent]) -> Vec<Run> {
    let mut runs: Vec<Run> = extents.iter().filter(|extent| !is_hole(extent)).map(|extent| extent.run).collect();
    runs.sort_unstable_by_key(|run| (run.segment, run.offset));
    runs.dedup_by_key(|run| (run.segment, run.offset));
    runs
}
