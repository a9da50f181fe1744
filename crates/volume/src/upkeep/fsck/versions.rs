//! Versions against what is current: invariants Y1 to Y3 of `versions`.
//!
//! Why: a key without an object whose newest row is not a delete marker would be invisible to both doors.

use std::ops::ControlFlow;

use margay_rows::record::VersionRow;
use margay_rows::record::version::decode_sequence;
use margay_rows::{Ino, key};

use super::gather::Rows;
use super::{FindingKind, Findings, Repair};
use crate::api::Error;
use crate::cache::split;
use crate::draft::Seen;
use crate::entry::Located;
use crate::open::Volume;

/// The newest row of a key.
struct Newest {
    root: Ino,
    key: String,
    sequence: u64,
    is_marker: bool,
}

pub(super) fn check(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let mut newest: Vec<Newest> = Vec::new();
    let mut nulls = std::collections::BTreeMap::new();
    volume.scan(&key::all_versions(), &mut Seen::default(), |row| {
        let (Ok((root, key, sequence)), Ok(version)) = (key::parse_version(row.key), VersionRow::decode(row.value))
        else {
            return Ok(ControlFlow::Continue(()));
        };
        if version.is_null() && nulls.insert(key::null_version(root, &key), sequence).is_some() {
            findings.note(FindingKind::Versions, || format!("{key:?} has version null twice"));
        }
        if newest.last().is_none_or(|last| (last.root, last.key.as_str()) != (root, key.as_str())) {
            newest.push(Newest { root, key, sequence, is_marker: matches!(version, VersionRow::Marker(_)) });
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for newest in &newest {
        let Some(bucket) = rows.roots.get(&newest.root) else { continue };
        let current = current_of(volume, bucket, &newest.key)?;
        let wrong = match &current {
            None => !newest.is_marker,
            Some(current) => {
                let version = current.file.version;
                version.sequence <= newest.sequence
                    || version.is_null && nulls.contains_key(&key::null_version(newest.root, &newest.key))
            }
        };
        if wrong {
            let what = || format!("{bucket}/{} and its newest version {:016x} disagree", newest.key, newest.sequence);
            findings.note(FindingKind::Versions, what);
        }
    }
    check_null_rows(volume, nulls, findings)
}

fn current_of(volume: &Volume, bucket: &str, key: &str) -> Result<Option<Located>, Error> {
    let (directories, name) = split(key);
    let walk = volume.walk(bucket, directories, &mut Seen::default())?;
    if !walk.complete() {
        return Ok(None);
    }
    volume.file_at(walk.path.directory(), name.as_bytes(), &mut Seen::default())
}

/// `nulls`: the expected target of each null version row.
fn check_null_rows(
    volume: &Volume,
    mut nulls: std::collections::BTreeMap<Vec<u8>, u64>,
    findings: &mut Findings,
) -> Result<(), Error> {
    volume.scan(&key::all_null_versions(), &mut Seen::default(), |row| {
        findings.count_row();
        match (decode_sequence(row.value), nulls.remove(row.key)) {
            (Ok(stored), Some(right)) if stored == right => {}
            (_, Some(right)) => {
                findings.note(FindingKind::Versions, || format!("row {:02x?} leads elsewhere", row.key));
                findings.repairs.push(Repair::Put(row.key.to_vec(), right.to_be_bytes().to_vec()));
            }
            (_, None) => {
                findings.note(FindingKind::Leftover, || format!("null version of nothing: {:02x?}", row.key));
                findings.repairs.push(Repair::Delete(row.key.to_vec()));
            }
        }
        Ok(ControlFlow::Continue(()))
    })?;
    for (row, right) in nulls {
        findings.note(FindingKind::Versions, || format!("row {row:02x?} is missing"));
        findings.repairs.push(Repair::Put(row, right.to_be_bytes().to_vec()));
    }
    Ok(())
}
