//! Back rows that a draft writes: which rows refer to which runs.
//!
//! Why:        a copy becomes another owner of runs, and reclaim must find all owners; owners need not know each other.
//! Layout:     docs/format/keys.md, "Owners of runs".
//! Invariants: H1 a reference to a run, and the back row of that run and owner, are added and removed in one batch.
//!             H2 a back row contains the key of its owner's row; whoever moves that row rewrites the back rows.
//!             H3 a new owner asserts the row of an existing one, or has the run pinned and asserts the session (stored_runs);
//!                so a run without owners and pins of live sessions stays dead.
//!             H4 the counters of a segment follow its back rows; they only select segments for reclaim.
//! Not here:   a payload, whose back row the engine completes (draft); rebuilding rows (upgrade).

use margay_rows::Ino;
use margay_rows::key::{self, Live, Table};
use margay_rows::record::back::encode_location;
use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{BackRow, Damaged, Data, FileEntry, PartRecord, file_of_row};
use margay_segment::{Extent, Run, SegmentId};

use crate::draft::Draft;

/// Whether a run already has an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owning {
    First,
    OneMore,
}

/// The key in the back rows of data whose own row is `row`; `None` if its extent rows refer to the runs.
pub(crate) fn naming_row<'a>(data: &Data, row: &'a [u8]) -> Option<&'a [u8]> {
    (*data != Data::Rows).then_some(row)
}

impl Draft {
    /// Drafts that `owner` starts to refer to these runs; `row` is the result of [`naming_row`].
    pub(crate) fn own_runs(&mut self, owner: Ino, row: Option<&[u8]>, runs: &[Run], owning: Owning) {
        for run in runs {
            assert_ne!(run.segment, SegmentId(0), "a run that gets an owner is stored, and no hole");
            self.put(key::back(run.segment, run.offset, owner), BackRow::encode(run, row));
            let side = if owning == Owning::First { Live::Gained } else { Live::Shared };
            self.add(key::live(run.segment, side), run.len as i64);
        }
    }

    /// Drafts that one owner of these runs replaces another.
    pub(crate) fn hand_over_runs(&mut self, from: Ino, (to, row): (Ino, Option<&[u8]>), runs: &[Run]) {
        for run in runs {
            self.delete(key::back(run.segment, run.offset, from));
        }
        self.relocate_runs(to, row, runs);
    }

    /// Drafts that `owner` no longer refers to these runs.
    pub(crate) fn disown_runs(&mut self, owner: Ino, runs: &[Run]) {
        for run in runs {
            assert_ne!(run.segment, SegmentId(0), "a hole has no owner that could leave it");
            self.delete(key::back(run.segment, run.offset, owner));
            self.add(key::live(run.segment, Live::Lost), run.len as i64);
        }
    }

    /// Drafts that another row of the same owner refers to these runs.
    pub(crate) fn relocate_runs(&mut self, owner: Ino, row: Option<&[u8]>, runs: &[Run]) {
        for run in runs {
            self.put(key::back(run.segment, run.offset, owner), BackRow::encode(run, row));
        }
    }

    /// Drafts the location of a file with extent rows.
    pub(crate) fn locate_extent_rows(&mut self, owner: Ino, row: &[u8]) {
        self.put(key::location(owner), encode_location(row));
    }

    /// Drafts the move of a file, with its data, to this row: a few rows, regardless of its size.
    pub(crate) fn relocate_file(&mut self, file: &FileEntry, row: &[u8]) {
        match &file.data {
            Data::Inline(_) => {}
            Data::Extents(extents) => self.relocate_runs(file.ino, Some(row), &distinct_runs(extents)),
            Data::Rows => self.locate_extent_rows(file.ino, row),
        }
    }
}

/// The back rows and the location that a row requires; none if it refers to no run.
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

/// Each run once, also if several extents refer to it. Holes are no runs.
pub(crate) fn distinct_runs(extents: &[Extent]) -> Vec<Run> {
    let mut runs: Vec<Run> = extents.iter().filter(|extent| !is_hole(extent)).map(|extent| extent.run).collect();
    runs.sort_unstable_by_key(|run| (run.segment, run.offset));
    runs.dedup_by_key(|run| (run.segment, run.offset));
    runs
}
