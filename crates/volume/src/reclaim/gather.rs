//! Who names the runs of some segments: one scan over all entries, inode records, versions, extent rows and parts.
//!
//! Why:        no row leads from a run to its owners, which keeps PUT and rename small; a pass that rewrites many
//!             segments shares one scan.
//! Invariants: what is found is a hint: a row that is written or renamed during the scan may be missed, or change right
//!             after it. Whoever moves a run reads the rows again and asserts them (rewrite); whoever removes bytes
//!             rests on a snapshot instead (walk).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use margay_rows::record::data::decode_extent_row;
use margay_rows::record::{Data, PartRecord, file_of_row};
use margay_rows::{Ino, key};
use margay_segment::{Extent, Run, SegmentId};

use crate::api::Error;
use crate::open::Volume;
use crate::seen::Seen;

/// A row that names a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Naming {
    /// An entry, an inode record or a version row.
    Entry {
        key: Vec<u8>,
    },
    /// Extent rows of the file whose entry, inode record or version row this is.
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
    /// Each owner once for each row, or once for all of its extent rows.
    pub(super) owners: Vec<(Ino, Naming)>,
    /// Some owner has no entry: leave the run alone.
    pub(super) orphaned: bool,
}

pub(super) type NamedRuns = BTreeMap<(SegmentId, u64), Named>;

fn note(runs: &mut NamedRuns, victims: &HashSet<SegmentId>, owner: Ino, extents: &[Extent], naming: Option<&Naming>) {
    for run in crate::release::distinct_runs(extents) {
        if !victims.contains(&run.segment) {
            continue;
        }
        let named = runs.entry((run.segment, run.offset));
        let named = named.or_insert_with(|| Named { run, owners: Vec::new(), orphaned: false });
        match naming {
            // A file may name a run in many of its extent rows; they follow each other.
            Some(Naming::Rows { .. }) if named.owners.last().is_some_and(|(last, _)| *last == owner) => {}
            Some(naming) => named.owners.push((owner, naming.clone())),
            None => named.orphaned = true,
        }
    }
}

impl Volume {
    pub(super) fn named_runs(&self, victims: &HashSet<SegmentId>) -> Result<NamedRuns, Error> {
        let mut runs = NamedRuns::new();
        let mut large: HashMap<Ino, Vec<u8>> = HashMap::new();
        let mut seen = Seen::default();
        // Entries first: a file that gets its second name or becomes a version meanwhile is then seen in either place,
        // or in both.
        for files in [key::all_entries(), key::all_inodes(), key::all_versions()] {
            self.scan(&files, &mut seen, |row| {
                if let Some(file) = file_of_row(row.value)? {
                    match &file.data {
                        Data::Inline(_) => {}
                        Data::Extents(extents) => {
                            let naming = Naming::Entry { key: row.key.to_vec() };
                            note(&mut runs, victims, file.ino, extents, Some(&naming));
                        }
                        Data::Rows => drop(large.insert(file.ino, row.key.to_vec())),
                    }
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        self.scan(&key::all_extents(), &mut seen, |row| {
            let (ino, _) = key::parse_extent(row.key)?;
            let extent = decode_extent_row(row.value)?;
            let naming = large.get(&ino).map(|entry| Naming::Rows { entry: entry.clone() });
            note(&mut runs, victims, ino, &[extent], naming.as_ref());
            Ok(ControlFlow::Continue(()))
        })?;
        self.scan(&key::all_parts(), &mut seen, |row| {
            let part = PartRecord::decode(row.value)?;
            let naming = Naming::Part { key: row.key.to_vec() };
            note(&mut runs, victims, part.ino, part.extents()?, Some(&naming));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(runs)
    }
}
