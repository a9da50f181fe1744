//! Finds the owners of the runs of some segments by their back rows.
//!
//! Why:        it reads as many rows as these segments have owners of runs, regardless of the size of the volume.
//! Invariants: G1 the result is a hint, which may change right after it was read. Moving a run reads the rows again and
//!                asserts them (rewrite); removing bytes also needs a walk over all rows (walk).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use margay_rows::Ino;
use margay_rows::key::{self, Table};
use margay_rows::record::BackRow;
use margay_rows::record::back::decode_location;
use margay_segment::format::RunPlace;
use margay_segment::{Run, SegmentId};

use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;
use crate::rests::NamedBytes;

/// A copy's frame has the number of its first owner.
const OWNER_BYTES: usize = size_of::<u64>();
/// Runs with more owners are not moved.
pub(super) const OWNERS_MAX: usize = 256;

/// A row that refers to a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Naming {
    /// An entry, an inode record or a version row.
    Entry {
        key: Vec<u8>,
    },
    /// Extent rows of the file with this entry, inode record or version row.
    Rows {
        entry: Vec<u8>,
    },
    Part {
        key: Vec<u8>,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) run: Run,
    pub(super) owners: Vec<(Ino, Naming)>,
    /// Some owner has no row of its own (it is an orphan), or a back row does not decode: the run is not moved.
    pub(super) orphaned: bool,
}

pub(super) type NamedRuns = BTreeMap<(SegmentId, u64), Named>;

impl Volume {
    pub(super) fn named_runs(&self, segments: &BTreeSet<SegmentId>) -> Result<NamedRuns, Error> {
        let mut runs = NamedRuns::new();
        let mut in_rows = Vec::new();
        for segment in segments {
            self.scan(&key::backs_of_segment(*segment), &mut Seen::default(), |row| {
                let (segment, offset, owner) = key::parse_back(row.key)?;
                let back = BackRow::decode(row.value);
                let run = back.as_ref().map(|back| back.run(segment, offset));
                let run = run.unwrap_or(Run { segment, offset, len: 0, crc: 0 });
                let new = || Named { run, owners: Vec::new(), orphaned: false };
                let named = runs.entry((segment, offset)).or_insert_with(new);
                match back.map(|back| back.row) {
                    _ if named.owners.len() > OWNERS_MAX => {}
                    Ok(Some(key)) => match Table::of(&key) {
                        Some(Table::Entry | Table::Inode | Table::Version) => {
                            named.owners.push((owner, Naming::Entry { key }));
                        }
                        Some(Table::Part) => named.owners.push((owner, Naming::Part { key })),
                        _ => named.orphaned = true,
                    },
                    Ok(None) => in_rows.push((segment, offset, owner)),
                    Err(_) => named.orphaned = true,
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.add_extent_rows(&mut runs, &in_rows)?;
        Ok(runs)
    }

    /// Adds owners whose extent rows refer to runs.
    fn add_extent_rows(&self, runs: &mut NamedRuns, in_rows: &[(SegmentId, u64, Ino)]) -> Result<(), Error> {
        let mut files: BTreeMap<Ino, Option<Vec<u8>>> = BTreeMap::new();
        for (segment, offset, owner) in in_rows {
            let entry = match files.get(owner) {
                Some(known) => known.clone(),
                None => {
                    let found = self.engine.get(&key::location(*owner))?.value;
                    let entry = found.map(|row| decode_location(&row.value).map(<[u8]>::to_vec)).transpose()?;
                    files.insert(*owner, entry.clone());
                    entry
                }
            };
            let named = runs.get_mut(&(*segment, *offset)).expect("its back row was read");
            match entry {
                Some(entry) => named.owners.push((*owner, Naming::Rows { entry })),
                None => named.orphaned = true,
            }
        }
        Ok(())
    }

    /// Reads the back rows of a segment.
    pub(super) fn named_bytes(&self, segment: SegmentId) -> Result<NamedBytes, Error> {
        let (mut bytes, mut last) = (NamedBytes::default(), None);
        self.scan(&key::backs_of_segment(segment), &mut Seen::default(), |row| {
            let (_, offset, _) = key::parse_back(row.key)?;
            if last.replace(offset) != Some(offset) {
                let run = BackRow::decode(row.value)?.run_len;
                bytes.payload = bytes.payload.saturating_add(run);
                bytes.in_pack =
                    bytes.in_pack.saturating_add(RunPlace::bytes_in_pack(OWNER_BYTES, run).unwrap_or(u64::MAX));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(bytes)
    }
}
