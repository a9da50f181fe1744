//! Finds the files that lost data, by bucket and key.
//!
//! Why:        "segment 7 is missing" does not help; a named object can be restored from another copy.
//! Invariants: L1 only reads, and only when data is missing: three passes over the rows that can refer to a run.
//! Not here:   damaged bytes in existing segments (scrub).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{Data, Entry, PartRecord, file_of_row};
use margay_rows::{Ino, key};
use margay_segment::{Extent, SegmentId};

use super::{FindingKind, Findings};
use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;
use crate::upkeep::scrub::Table;

/// Segments that rows refer to and that are missing (0) or end at this byte.
pub(super) type Missing = BTreeMap<SegmentId, u64>;

/// The data that a file lost.
#[derive(Clone, Debug, Default)]
struct Lost {
    bytes: u64,
    segments: BTreeSet<SegmentId>,
}

impl Lost {
    fn add(&mut self, missing: &Missing, extents: &[Extent]) {
        for extent in extents.iter().filter(|extent| !is_hole(extent)) {
            let end = extent.run.offset.saturating_add(extent.run.len);
            if missing.get(&extent.run.segment).is_some_and(|len| end > *len) {
                self.bytes = self.bytes.saturating_add(extent.len);
                self.segments.insert(extent.run.segment);
            }
        }
    }

    fn of(missing: &Missing, extents: &[Extent]) -> Option<Lost> {
        let mut lost = Lost::default();
        lost.add(missing, extents);
        (!lost.segments.is_empty()).then_some(lost)
    }
}

pub(super) fn name(volume: &Volume, missing: &Missing, findings: &mut Findings) -> Result<(), Error> {
    let mut in_rows: HashMap<Ino, Lost> = HashMap::new();
    let mut seen = Seen::default();
    volume.scan(&key::all_extents(), &mut seen, |row| {
        if let (Ok((ino, _)), Ok(extent)) = (key::parse_extent(row.key), decode_extent_row(row.value))
            && Lost::of(missing, &[extent]).is_some()
        {
            in_rows.entry(ino).or_default().add(missing, &[extent]);
        }
        Ok(ControlFlow::Continue(()))
    })?;
    let mut linked: HashMap<Ino, Lost> = HashMap::new();
    for (table, range) in [
        (Table::Inodes, key::all_inodes()),
        (Table::Entries, key::all_entries()),
        (Table::Versions, key::all_versions()),
    ] {
        let mut named = Vec::new();
        volume.scan(&range, &mut seen, |row| {
            if let (Table::Entries, Ok(Entry::Link(ino))) = (table, Entry::decode(row.value))
                && let Some(lost) = linked.get(&ino)
            {
                named.push((row.key.to_vec(), lost.clone()));
            }
            let Ok(Some(file)) = file_of_row(row.value) else { return Ok(ControlFlow::Continue(())) };
            let lost = match &file.data {
                Data::Inline(_) => None,
                Data::Extents(extents) => Lost::of(missing, extents),
                Data::Rows => in_rows.get(&file.ino).cloned(),
            };
            match (lost, table) {
                (Some(lost), Table::Inodes) => drop(linked.insert(file.ino, lost)),
                (Some(lost), _) => named.push((row.key.to_vec(), lost)),
                (None, _) => {}
            }
            Ok(ControlFlow::Continue(()))
        })?;
        tell(volume, table, &named, findings)?;
    }
    let mut parts = Vec::new();
    volume.scan(&key::all_parts(), &mut seen, |row| {
        if let Ok(part) = PartRecord::decode(row.value)
            && let Ok(extents) = part.extents()
            && let Some(lost) = Lost::of(missing, extents)
        {
            parts.push((row.key.to_vec(), lost));
        }
        Ok(ControlFlow::Continue(()))
    })?;
    tell(volume, Table::Parts, &parts, findings)
}

fn tell(volume: &Volume, table: Table, named: &[(Vec<u8>, Lost)], findings: &mut Findings) -> Result<(), Error> {
    for (row, lost) in named {
        let name = volume.name_of(table, row)?;
        let segments: Vec<String> = lost.segments.iter().map(|segment| format!("{segment:?}")).collect();
        findings.note(FindingKind::MissingData, || {
            format!("{name}: {} bytes are lost: they were in {}", lost.bytes, segments.join(", "))
        });
    }
    Ok(())
}
