//! Lets the bytes of a file go that another store has too.
//!
//! Why:        what was written to a far bucket's cache would stay there for ever, and fill its disk.
//! Invariants: V1 the content does not change: the caller knows that the other store has these bytes, of this state of the file.
//!             V2 the batch asserts the row of the file, and removes exactly the references that it had.
//! Locking:    the caller holds the file closed (`hold_closed`): who has it open reads its runs.
//! Not here:   which files, and when (margay-upstream); removing dead segments (reclaim).

use margay_rows::record::{Data, FileEntry};
use margay_rows::{Ino, key};
use margay_segment::{Extent, SegmentId};

use crate::api::Error;
use crate::draft::{Draft, Owning, Seen, distinct_runs};
use crate::entry::RELEASE_ROWS_MAX;
use crate::object::callers_rows::CallersRows;
use crate::object::import::runs_of;
use crate::open::Volume;
use crate::upload::place::{NewRuns, put_new_file};

/// A file under its name.
#[derive(Clone, Copy, Debug)]
pub struct NamedFile<'a> {
    pub directory: Ino,
    pub sort_name: &'a str,
    pub ino: Ino,
}

impl Volume {
    /// Makes a file refer to this segment of another store alone, and writes the caller's rows in the same
    /// batch. `is_there` tells whether the other store has the bytes of this state. Returns the bytes that it had here; 0 if
    /// it has none, or is not such a file now.
    pub fn evict(
        &self,
        named: NamedFile<'_>,
        bytes: SegmentId,
        is_there: impl Fn(&FileEntry) -> bool,
        rows: &CallersRows,
    ) -> Result<u64, Error> {
        assert_ne!(bytes.made_by(), self.stores.number, "the bytes go to another store");
        let mut seen = Seen::default();
        let found = self.file_at(named.directory, named.sort_name.as_bytes(), &mut seen)?;
        let is_evictable = |file: &FileEntry| file.ino == named.ino && !file.is_encrypted() && is_there(file);
        let Some(found) = found.filter(|found| !found.linked() && is_evictable(&found.file)) else { return Ok(0) };
        let Some(extents) = self.extents_of(&found.file, &mut seen)? else { return Ok(0) };
        let old = distinct_runs(&extents);
        let own: u64 = old.iter().filter(|run| self.stores.is_own(run.segment)).map(|run| run.len).sum();
        if own == 0 || extents.len() > RELEASE_ROWS_MAX {
            return Ok(0);
        }
        let mut draft = Draft::default();
        draft.assert_version(found.row_key.clone(), found.version);
        if found.file.data == Data::Rows {
            for (offset, _) in self.extent_rows(named.ino, 0, RELEASE_ROWS_MAX + 1, &mut seen)? {
                draft.delete(key::extent(named.ino, offset));
            }
            draft.delete(key::location(named.ino));
        }
        draft.disown_runs(named.ino, &old);
        let runs = runs_of(bytes, found.file.size);
        let data = Data::Extents(runs.iter().copied().map(Extent::whole).collect());
        let file = FileEntry { data, ..found.file };
        put_new_file(&mut draft, found.row_key, file, NewRuns::stored(runs, Owning::First))?;
        Ok(if self.commit_with(draft, rows)? { own } else { 0 })
    }

    /// Bytes in the own store that files refer to; a run counts for each owner.
    pub fn own_bytes(&self) -> Result<u64, Error> {
        let table = self.live_table()?;
        let own = table.iter().filter(|(segment, _)| self.stores.is_own(**segment));
        Ok(own.map(|(_, bytes)| bytes.live()).sum())
    }
}
