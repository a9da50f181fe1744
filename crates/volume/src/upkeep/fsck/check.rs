//! Compares the gathered rows: counters, mirrors, owners, segment files.
//!
//! Invariants: K1 entries are taken as true, and everything else is compared with them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use margay_meta::RowRef;
use margay_rows::Ino;
use margay_rows::key::{self, Counted, Live};
use margay_rows::kinds::Setting;
use margay_rows::numbered::{Numbered, SetOf};
use margay_rows::record::{Damaged, DirectoryRecord};
use margay_segment::SegmentId;

use super::backs::{self, FoundBacks};
use super::gather::Rows;
use super::{FindingKind, Findings, Repair, segments};
use crate::api::Error;
use crate::cache::inos;
use crate::draft::Seen;
use crate::driver::counters::decode_counter;
use crate::open::Volume;

pub(super) fn check(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    check_directories(volume, rows, findings)?;
    check_usage(volume, rows, findings)?;
    check_subdirectories(volume, rows, findings)?;
    let backs = backs::check(volume, rows, findings)?;
    check_live(volume, rows, &backs, findings)?;
    check_leftovers(volume, rows, findings)?;
    check_kinds(volume, ("setting", &key::all_settings()), &rows.settings, setting_of, findings)?;
    check_kinds(volume, ("document", &key::all_documents()), &rows.documents, key::parse_document, findings)?;
    check_numbers(volume, rows, findings)
}

pub(super) fn visit(volume: &Volume, range: &key::Range, mut read: impl FnMut(RowRef<'_>)) -> Result<(), Error> {
    volume.scan(range, &mut Seen::default(), |row| {
        read(row);
        Ok(ControlFlow::Continue(()))
    })
}

/// The root above a directory; `None` if there is none or the way is a cycle.
fn root_of(rows: &Rows, mut directory: Ino) -> Option<Ino> {
    for _ in 0..=rows.directories.len() {
        if rows.roots.contains_key(&directory) {
            return Some(directory);
        }
        directory = rows.directories.get(&directory)?.0;
    }
    None
}

fn check_directories(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let mut records: HashMap<Ino, Option<DirectoryRecord>> = HashMap::new();
    visit(volume, &key::directories(), |row| {
        if let Ok((ino, _)) = key::parse_ino(row.key) {
            records.insert(ino, DirectoryRecord::decode(row.value).ok());
        }
    })?;
    let roots = rows.roots.iter().map(|(ino, name)| (*ino, (Ino(0), name.as_str())));
    let below = rows.directories.iter().map(|(ino, (parent, name, _))| (*ino, (*parent, name.as_str())));
    for (ino, (parent, name)) in roots.chain(below) {
        let right = DirectoryRecord { parent, sort_name: name.to_owned() };
        if records.remove(&ino).flatten().as_ref() != Some(&right) {
            findings.note(FindingKind::DirectoryRecord, || format!("directory {} is {name:?} in {}", ino.0, parent.0));
            findings.repairs.push(Repair::Put(key::directory(ino), right.encode()));
        }
    }
    for ino in records.into_keys() {
        findings.note(FindingKind::Leftover, || format!("record of directory {}", ino.0));
        findings.repairs.push(Repair::Delete(key::directory(ino)));
    }
    for (ino, (_, name, entry)) in &rows.directories {
        if !entry.explicit && !rows.sums.contains_key(ino) {
            findings.note(FindingKind::Directory, || format!("implicit directory {name:?} ({}) is empty", ino.0));
        }
    }
    for ino in rows.sums.keys() {
        if root_of(rows, *ino).is_none() {
            findings.note(FindingKind::Directory, || format!("directory {} is in no bucket", ino.0));
        }
    }
    Ok(())
}

fn check_usage(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let mut right: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for (directory, (objects, bytes)) in &rows.sums {
        if let Some(root) = root_of(rows, *directory) {
            *right.entry(key::usage(root, Counted::Objects)).or_default() += objects;
            *right.entry(key::usage(root, Counted::Bytes)).or_default() += bytes;
        }
    }
    for (root, (count, bytes)) in rows.versions.iter().filter(|(root, _)| rows.roots.contains_key(root)) {
        right.insert(key::usage(*root, Counted::Versions), *count);
        *right.entry(key::usage(*root, Counted::Bytes)).or_default() += bytes;
    }
    let is_root = |ino: &Ino| rows.roots.contains_key(ino);
    check_counters(volume, ("usage", &key::all_usage(), &right), &is_root, findings)
}

fn check_subdirectories(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let mut right: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    for (parent, ..) in rows.directories.values().filter(|(parent, ..)| rows.is_directory(parent)) {
        *right.entry(key::subdirectories(*parent)).or_default() += 1;
    }
    let is_directory = |ino: &Ino| rows.is_directory(ino);
    check_counters(volume, ("subdirectories", &key::all_subdirectories(), &right), &is_directory, findings)
}

/// Compares the counters of a table with their expected values; `belongs` tells which numbers may have one.
fn check_counters(
    volume: &Volume,
    (what, table, right): (&str, &key::Range, &BTreeMap<Vec<u8>, i64>),
    belongs: &dyn Fn(&Ino) -> bool,
    findings: &mut Findings,
) -> Result<(), Error> {
    let mut stored = BTreeMap::new();
    visit(volume, table, |row| {
        if key::parse_ino(row.key).is_ok_and(|(ino, _)| belongs(&ino)) {
            stored.insert(row.key.to_vec(), decode_counter(row.value).unwrap_or(0));
        } else {
            findings.note(FindingKind::Leftover, || format!("{what} of nothing: {:02x?}", row.key));
            findings.repairs.push(Repair::Delete(row.key.to_vec()));
        }
    })?;
    let keys: BTreeSet<&Vec<u8>> = right.keys().chain(stored.keys()).collect();
    for key in keys {
        let (right, stored) = (right.get(key).unwrap_or(&0), stored.get(key).unwrap_or(&0));
        if right != stored {
            findings.note(FindingKind::Counter, || format!("{what} {key:02x?} is {stored}, should be {right}"));
            findings.repairs.push(Repair::Add(key.clone(), right - stored));
        }
    }
    Ok(())
}

fn check_live(
    volume: &Volume,
    rows: &Rows,
    backs: &BTreeMap<SegmentId, FoundBacks>,
    findings: &mut Findings,
) -> Result<(), Error> {
    // Bytes counted per owner, and the bytes that certainly have a reference.
    let mut stored: BTreeMap<SegmentId, (i64, i64)> = BTreeMap::new();
    visit(volume, &key::all_live(), |row| {
        if let (Ok((segment, side)), Ok(count)) = (key::parse_live(row.key), decode_counter(row.value)) {
            let (owned, least) = stored.entry(segment).or_default();
            let (more, surely) = match side {
                Live::Gained => (count, count),
                Live::Lost => (-count, -count),
                Live::Shared => (count, 0),
            };
            (*owned, *least) = (*owned + more, *least + surely);
        } else {
            findings.note(FindingKind::Damaged, || format!("live counter {:02x?}", row.key));
        }
    })?;
    let segments: BTreeSet<&SegmentId> = rows.live.keys().chain(stored.keys()).collect();
    for segment in segments {
        let right = *rows.live.get(segment).unwrap_or(&0);
        let (owned, least) = *stored.get(segment).unwrap_or(&(0, 0));
        let mut gained = right - owned;
        // Unless its back rows are wrong.
        let named = backs.get(segment).map_or(i64::MAX, FoundBacks::named);
        if right != owned {
            findings.note(FindingKind::Counter, || format!("{segment:?}: {owned} bytes owned, should be {right}"));
        } else if least > named {
            findings.note(FindingKind::Counter, || format!("{segment:?}: {least} bytes are not all of {named}"));
            gained = named - least;
            findings.repairs.push(Repair::Add(key::live(*segment, Live::Shared), -gained));
        }
        if gained != 0 {
            findings.repairs.push(Repair::Add(key::live(*segment, Live::Gained), gained));
        }
    }
    segments::check(volume, rows, findings)
}

fn check_leftovers(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let is_directory = |ino: &Ino| rows.is_directory(ino);
    type Belongs<'a> = &'a dyn Fn(&Ino) -> bool;
    let tables: [(&str, key::Range, Belongs<'_>); 4] = [
        ("headers", key::all_headers(), &|ino| rows.with_headers.contains(ino)),
        ("an extended attribute", key::all_xattrs(), &|ino| rows.with_xattrs.contains(ino)),
        ("part sizes", key::all_part_sizes(), &|ino| rows.with_part_sizes.contains(ino)),
        ("times", key::all_times(), &is_directory),
    ];
    for (what, range, belongs) in tables {
        visit(volume, &range, |row| {
            if !key::parse_ino(row.key).is_ok_and(|(ino, _)| belongs(&ino)) {
                findings.note(FindingKind::Leftover, || format!("{what} of nothing: {:02x?}", row.key));
                findings.repairs.push(Repair::Delete(row.key.to_vec()));
            }
        })?;
    }
    Ok(())
}

fn setting_of(key: &[u8]) -> Result<(Ino, Setting), Damaged> {
    key::parse_setting(key).map(|(root, setting, _)| (root, setting))
}

/// Compares rows of numbered kinds with the sets that list them.
fn check_kinds<T: Numbered + std::fmt::Debug>(
    volume: &Volume,
    (what, table): (&str, &key::Range),
    right: &HashMap<Ino, SetOf<T>>,
    parse: impl Fn(&[u8]) -> Result<(Ino, T), Damaged>,
    findings: &mut Findings,
) -> Result<(), Error> {
    let mut missing = right.clone();
    visit(volume, table, |row| match parse(row.key) {
        Ok((ino, kind)) if right.get(&ino).is_some_and(|kinds| kinds.contains(kind)) => {
            missing.entry(ino).or_default().remove(kind);
        }
        _ => {
            findings.note(FindingKind::Leftover, || format!("{what} of nothing: {:02x?}", row.key));
            findings.repairs.push(Repair::Delete(row.key.to_vec()));
        }
    })?;
    for (ino, kinds) in missing {
        for kind in kinds.iter() {
            findings.note(FindingKind::MissingRow, || format!("{what} {kind:?} of {}", ino.0));
        }
    }
    Ok(())
}

fn check_numbers(volume: &Volume, rows: &Rows, findings: &mut Findings) -> Result<(), Error> {
    let row = volume.engine.get(&key::inos())?.value;
    let next = row.map_or(Ok(1), |row| inos::decode(&row.value)).unwrap_or(0);
    if next <= rows.largest.0 {
        findings.note(FindingKind::Numbers, || format!("{} is in use, the counter is at {next}", rows.largest.0));
        let right = (rows.largest.0 + 1).to_be_bytes().to_vec();
        findings.repairs.push(Repair::Put(key::inos(), right));
    }
    Ok(())
}
