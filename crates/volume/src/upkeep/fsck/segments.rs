//! Compares the segment files of all reachable stores with the rows of segments.
//!
//! Why:        reclaim finds files without references; only this check finds rows or references without a file.
//! Invariants: V1 the content of an unreachable store is not reported as lost.
//! Not here:   which objects lost data (lost), the bytes in the files (scrub).

use std::collections::{BTreeMap, BTreeSet};

use margay_rows::key;
use margay_rows::record::{SegmentRecord, StoreRecord};
use margay_segment::{SegmentError, SegmentId, Segments, StoreNumber};

use super::check::visit;
use super::gather::Rows;
use super::{FindingKind, Findings, Repair, lost};
use crate::api::Error;
use crate::open::Volume;

/// The segments that exist.
#[derive(Debug, Default)]
struct Files {
    lens: BTreeMap<SegmentId, u64>,
    held: BTreeSet<SegmentId>,
    /// Stores whose content is unknown.
    unreachable: BTreeSet<StoreNumber>,
}

impl Files {
    fn add(&mut self, store: &dyn Segments) {
        self.lens.extend(store.list().into_iter().map(|segment| (segment.id, segment.len)));
        self.held.extend(store.quarantined().into_iter().map(|held| held.id));
    }
}

pub(super) fn check(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let mut files = Files::default();
    files.add(&*volume.store);
    findings.report.segment_bytes = files.lens.values().sum();
    check_rows(volume, (rows, &files), findings)?;
    add_others(volume, &mut files, findings)?;
    let mut missing = lost::Missing::new();
    for (segment, end) in &rows.ends {
        match files.lens.get(segment) {
            Some(len) if len >= end => {}
            None if files.held.contains(segment) => {
                findings.note(FindingKind::Quarantine, || format!("{segment:?} is in quarantine, and rows name it"));
                findings.repairs.push(Repair::TakeBack(*segment));
            }
            None if files.unreachable.contains(&segment.made_by()) => {
                findings.report.unreachable_segments += 1;
                findings.report.unreachable_stores.insert(segment.made_by().0);
            }
            found if !volume.stores.is_own(*segment) => match volume.store.state(*segment) {
                Ok(state) if state.len >= *end => {}
                Err(SegmentError::Unreachable(_, store)) => {
                    findings.report.unreachable_segments += 1;
                    findings.report.unreachable_stores.insert(store.0);
                }
                _ => drop(missing.insert(*segment, found.copied().unwrap_or(0))),
            },
            found => drop(missing.insert(*segment, found.copied().unwrap_or(0))),
        }
    }
    if missing.is_empty() { Ok(()) } else { lost::name(volume, &missing, findings) }
}

/// Checks the rows of segments that this store should hold; `files` are its own.
fn check_rows(volume: &Volume, (rows, files): (&Rows, &Files), findings: &mut Findings) -> Result<(), Error> {
    let own = volume.stores.number;
    let mut here = BTreeSet::new();
    visit(volume, &key::all_segments(), |row| {
        let (Ok(id), Ok(record)) = (key::parse_segment(row.key), SegmentRecord::decode(row.value)) else {
            return findings.note(FindingKind::Damaged, || format!("row of a segment {:02x?}", row.key));
        };
        let is_here = record.stores.contains(&own);
        // A row whose file is gone is no finding: what it lost is named object by object, and reclaim removes a row that
        // nothing needs.
        here.extend(is_here.then_some(id));
    })?;
    let strange = |id: &&SegmentId| !volume.stores.is_own(**id) && !here.contains(*id) && !rows.ends.contains_key(*id);
    for id in files.lens.keys().filter(strange) {
        if volume.stores.has_others() {
            findings.report.unnamed_copies += 1;
            continue;
        }
        findings.note(FindingKind::Leftover, || {
            format!("segment {id:?} was made by store {}, and no row says that this one holds it", id.made_by().0)
        });
    }
    Ok(())
}

fn add_others(volume: &Volume, files: &mut Files, findings: &mut Findings) -> Result<(), Error> {
    let mut numbers = BTreeSet::new();
    visit(volume, &key::all_stores(), |row| match (key::parse_store(row.key), StoreRecord::decode(row.value)) {
        (Ok(number), Ok(_)) => drop(numbers.insert(number)),
        _ => findings.note(FindingKind::Damaged, || format!("row of a store {:02x?}", row.key)),
    })?;
    numbers.remove(&volume.stores.number);
    for number in numbers {
        match volume.stores.store(number) {
            Some(store) => files.add(&*store),
            None if volume.stores.has_others() => drop(files.unreachable.insert(number)),
            // The store is gone for good: data that only it held is lost.
            None => {}
        }
    }
    Ok(())
}
