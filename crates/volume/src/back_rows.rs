//! Who names which runs: the back rows that a draft writes.
//!
//! Why:        a copy moves no data, it becomes one more owner of runs; reclaim asks a segment for its owners. A back row per
//!             run and owner answers both, and no owner needs to know of another.
//! Layout:     docs/format/keys.md, "Owners of runs".
//! Invariants: H1 a row that names a run, and the back row of the run and that row's owner, come and go in one batch.
//!             H2 a back row says where its owner's row is: whoever moves that row puts the back rows anew.
//!             H3 who becomes an owner asserts the row of another one, or brings bytes that nobody named yet. So a run that
//!                nobody names stays dead.
//!             H4 the counters of a segment follow its back rows; they only choose what reclaim looks at.
//! Not here:   a payload, whose back row the engine completes (draft); rows that are rebuilt (upgrade).

use margay_rows::Ino;
use margay_rows::key::{self, Live, Table};
use margay_rows::record::back::encode_location;
use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{BackRow, Damaged, Data, FileEntry, PartRecord, file_of_row};
use margay_segment::{Extent, Run};

use crate::draft::Draft;

/// Whether a run had an owner before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owning {
    First,
    OneMore,
}

/// The row that names the runs of a file or part with this data, whose own row is this; `None`: its extent rows.
pub(crate) fn naming_row<'a>(data: &Data, row: &'a [u8]) -> Option<&'a [u8]> {
    (*data != Data::Rows).then_some(row)
}

impl Draft {
    /// Drafts that `owner` names these runs, and did not before; `row` is that of [`naming_row`].
    pub(crate) fn own_runs(&mut self, owner: Ino, row: Option<&[u8]>, runs: &[Run], owning: Owning) {
        for run in runs {
            self.put(key::back(run.segment, run.offset, owner), BackRow::encode(run, row));
            let side = if owning == Owning::First { Live::Gained } else { Live::Shared };
            self.add(key::live(run.segment, side), run.len as i64);
        }
    }

    /// Drafts that these runs have one owner in the place of another.
    pub(crate) fn hand_over_runs(&mut self, from: Ino, (to, row): (Ino, Option<&[u8]>), runs: &[Run]) {
        for run in runs {
            self.delete(key::back(run.segment, run.offset, from));
        }
        self.relocate_runs(to, row, runs);
    }

    /// Drafts that `owner` names these runs no more.
    pub(crate) fn disown_runs(&mut self, owner: Ino, runs: &[Run]) {
        for run in runs {
            self.delete(key::back(run.segment, run.offset, owner));
            self.add(key::live(run.segment, Live::Lost), run.len as i64);
        }
    }

    /// Drafts that another row of the same owner names these runs.
    pub(crate) fn relocate_runs(&mut self, owner: Ino, row: Option<&[u8]>, runs: &[Run]) {
        for run in runs {
            self.put(key::back(run.segment, run.offset, owner), BackRow::encode(run, row));
        }
    }

    /// Drafts that a file with extent rows is in this row.
    pub(crate) fn locate_extent_rows(&mut self, owner: Ino, row: &[u8]) {
        self.put(key::location(owner), encode_location(row));
    }

    /// Drafts that a file, with the data that it has, is in this row from now on. A few rows, however large the file is.
    pub(crate) fn relocate_file(&mut self, file: &FileEntry, row: &[u8]) {
        match &file.data {
            Data::Inline(_) => {}
            Data::Extents(extents) => self.relocate_runs(file.ino, Some(row), &distinct_runs(extents)),
            Data::Rows => self.locate_extent_rows(file.ino, row),
        }
    }
}

/// The back rows, and the location, that follow from a row; none from a row that names no run.
pub(crate) fn backs_of_row(key: &[u8], value: &[u8], mut show: impl FnMut(Vec<u8>, Vec<u8>)) -> Result<(), Damaged> {
    let mut show_all = |owner: Ino, row: Option<&[u8]>, extents: &[Extent]| {
        for run in distinct_runs(extents) {
            show(key::back(run.segment, run.offset, owner), BackRow::encode(&run, row));
        }
    };
    match Table::of(key) {
        Some(Table::Entry | Table::Inode | Table::Version) => {
            let Some(file) = file_of_row(value)? else { return Ok(()) };
            match &file.data {
                Data::Inline(_) => {}
                Data::Extents(extents) => show_all(file.ino, Some(key), extents),
                Data::Rows => show(key::location(file.ino), encode_location(key)),
            }
        }
        Some(Table::Part) => {
            let part = PartRecord::decode(value)?;
            show_all(part.ino, Some(key), part.extents()?);
        }
        Some(Table::Extent) => show_all(key::parse_extent(key)?.0, None, &[decode_extent_row(value)?]),
        _ => {}
    }
    Ok(())
}

/// Each run once; a file may name a run in several extents. Holes are no runs.
pub(crate) fn distinct_runs(extents: &[Extent]) -> Vec<Run> {
    let mut runs: Vec<Run> = extents.iter().filter(|extent| !is_hole(extent)).map(|extent| extent.run).collect();
    runs.sort_unstable_by_key(|run| (run.segment, run.offset));
    runs.dedup_by_key(|run| (run.segment, run.offset));
    runs
}
