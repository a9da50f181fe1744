//! Reads every row once, and keeps what the checks need.
//!
//! Why:        memory grows with directories, segments, large files and hard-linked files only.
//! Invariants: G1 an undecodable row is reported and skipped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;

use margay_rows::kinds::{DocumentSet, SettingSet};
use margay_rows::record::back::encode_location;
use margay_rows::record::data::{decode_extent_row, hole, is_hole};
use margay_rows::record::event;
use margay_rows::record::{
    BackRow, Bucket, Damaged, Data, DirectoryEntry, Entry, FileEntry, Orphan, PartRecord, UploadRecord, VersionRow,
};
use margay_rows::{Ino, key};
use margay_segment::{Extent, SegmentId};

use super::backs::RowSum;
use super::{FindingKind, Findings};
use crate::api::Error;
use crate::draft::{Seen, distinct_runs};
use crate::entry::stored_len_by_itself;
use crate::open::Volume;
use crate::upkeep::fsck::Repair;

/// A file whose extents are in rows.
#[derive(Debug)]
pub(super) struct Large {
    pub(super) size: u64,
    pub(super) extents: Vec<(u64, Extent)>,
}

/// A file's inode record, and the number of entries found for it.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) file: FileEntry,
    pub(super) names: u32,
}

#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Root directory to bucket.
    pub(super) roots: HashMap<Ino, String>,
    /// Directory to its parent, name and entry.
    pub(super) directories: HashMap<Ino, (Ino, String, DirectoryEntry)>,
    /// Totals of the files directly in a directory: objects, bytes. Contains every directory with an entry.
    pub(super) sums: HashMap<Ino, (i64, i64)>,
    /// Totals of a bucket's version rows, by root: rows, bytes.
    pub(super) versions: HashMap<Ino, (i64, i64)>,
    pub(super) large: BTreeMap<Ino, Large>,
    pub(super) linked: BTreeMap<Ino, Linked>,
    pub(super) with_headers: HashSet<Ino>,
    pub(super) with_xattrs: HashSet<Ino>,
    pub(super) with_part_sizes: HashSet<Ino>,
    /// With the keys of their rows.
    encrypted_parts: Vec<(Vec<u8>, FileEntry)>,
    /// Settings and documents found, by bucket and file.
    pub(super) settings: HashMap<Ino, SettingSet>,
    pub(super) documents: HashMap<Ino, DocumentSet>,
    pub(super) uploads: HashSet<Ino>,
    pub(super) orphans: HashMap<Ino, Orphan>,
    /// The expected back rows by segment, and the expected locations.
    pub(super) backs: BTreeMap<SegmentId, RowSum>,
    pub(super) locations: RowSum,
    /// Referenced bytes by segment, counted per owner.
    pub(super) live: BTreeMap<SegmentId, i64>,
    /// The end of the last referenced run, by segment.
    pub(super) ends: BTreeMap<SegmentId, u64>,
    pub(super) largest: Ino,
}

impl Rows {
    pub(super) fn is_directory(&self, ino: &Ino) -> bool {
        self.roots.contains_key(ino) || self.directories.contains_key(ino)
    }

    fn number(&mut self, ino: Ino) {
        self.largest = self.largest.max(ino);
    }

    /// `row`: the result of [`naming_row`].
    fn own(&mut self, owner: Ino, row: Option<&[u8]>, extents: &[Extent], findings: &mut Findings) {
        if extents.iter().any(|extent| is_hole(extent) && extent.run != hole(extent.run.len).run) {
            findings.note(FindingKind::MissingData, || format!("data of {} was never placed in a segment", owner.0));
        }
        for run in distinct_runs(extents) {
            let back = self.backs.entry(run.segment).or_default();
            back.add(&key::back(run.segment, run.offset, owner), &BackRow::encode(&run, row));
            let end = self.ends.entry(run.segment).or_default();
            *end = run.offset.saturating_add(run.len).max(*end);
            let live = self.live.entry(run.segment).or_default();
            *live = live.saturating_add(run.len as i64);
        }
    }

    /// Each name of a file counts as an object of its size.
    fn name(&mut self, directory: Ino, size: u64) {
        let sum = self.sums.entry(directory).or_default();
        *sum = (sum.0 + 1, sum.1.saturating_add(size as i64));
    }

    /// The data of a file, counted once whatever its names.
    fn file(&mut self, row: &[u8], file: &FileEntry, findings: &mut Findings) {
        self.number(file.ino);
        self.number(Ino(file.version.sequence));
        findings.report.files += 1;
        findings.report.bytes += file.size;
        if file.xattrs {
            self.with_xattrs.insert(file.ino);
        }
        if !file.documents.is_empty() {
            self.documents.insert(file.ino, file.documents);
        }
        if file.header_rows {
            self.with_headers.insert(file.ino);
        }
        if file.part_rows {
            self.with_part_sizes.insert(file.ino);
        }
        match stored_len_by_itself(file) {
            Some(stored_len) => self.data(row, file, stored_len, findings),
            // Depends on its parts, which are not read during the scan of a table.
            None => self.encrypted_parts.push((row.to_vec(), file.clone())),
        }
    }

    /// Checks data with this stored length.
    fn data(&mut self, row: &[u8], file: &FileEntry, stored_len: u64, findings: &mut Findings) {
        if !covered(file, stored_len) {
            findings.note(FindingKind::Extents, || format!("the extents of file {} do not cover it", file.ino.0));
        }
        match &file.data {
            Data::Inline(_) => {}
            Data::Extents(extents) => self.own(file.ino, Some(row), extents, findings),
            Data::Rows => {
                self.locations.add(&key::location(file.ino), &encode_location(row));
                let large = Large { size: stored_len, extents: Vec::new() };
                self.large.insert(file.ino, large);
            }
        }
    }
}

fn covered(file: &FileEntry, stored_len: u64) -> bool {
    match &file.data {
        Data::Inline(bytes) => bytes.len() as u64 == stored_len,
        Data::Extents(extents) => extents.iter().map(|extent| extent.len).sum::<u64>() == stored_len,
        Data::Rows => true,
    }
}

/// Scans a table; `read` returns an error for an undecodable row.
fn table(
    volume: &Volume,
    findings: &mut Findings,
    range: &key::Range,
    mut read: impl FnMut(&[u8], &[u8], &mut Findings) -> Result<(), Damaged>,
) -> Result<(), Error> {
    volume.scan(range, &mut Seen::default(), |row| {
        findings.count_row();
        if let Err(damaged) = read(row.key, row.value, findings) {
            findings.note(FindingKind::Damaged, || format!("row {:02x?}: {damaged}", row.key));
        }
        Ok(ControlFlow::Continue(()))
    })
}

pub(super) fn gather(volume: &Volume, findings: &mut Findings) -> Result<Rows, Error> {
    let mut rows = Rows::default();
    table(volume, findings, &key::orphans(), |row, value, findings| {
        rows.orphans.insert(key::parse_ino(row)?.0, Orphan::decode(value)?);
        findings.report.orphans += 1;
        Ok(())
    })?;
    table(volume, findings, &key::buckets(), |row, value, findings| {
        let bucket = Bucket::decode(value)?;
        rows.number(bucket.root);
        if !bucket.settings.is_empty() {
            rows.settings.insert(bucket.root, bucket.settings);
        }
        rows.roots.insert(bucket.root, key::parse_bucket(row)?.to_owned());
        findings.report.buckets += 1;
        Ok(())
    })?;
    table(volume, findings, &key::all_events(), |row, value, _| {
        key::parse_event(row)?;
        event::decode(value).map(|_| ())
    })?;
    gather_inodes(volume, &mut rows, findings)?;
    gather_entries(volume, &mut rows, findings)?;
    settle_links(&mut rows, findings);
    gather_versions(volume, &mut rows, findings)?;
    settle_encrypted(volume, &mut rows, findings);
    gather_uploads(volume, &mut rows, findings)?;
    gather_extents(volume, &mut rows, findings)?;
    Ok(rows)
}

/// Inode records of hard-linked files, and attributes of roots.
fn gather_inodes(volume: &Volume, rows: &mut Rows, findings: &mut Findings) -> Result<(), Error> {
    table(volume, findings, &key::all_inodes(), |row, value, findings| {
        let (ino, rest) = key::parse_ino(row)?;
        match Entry::decode(value)? {
            Entry::File(file) if rest.is_empty() && file.ino == ino => {
                rows.linked.insert(ino, Linked { file, names: 0 });
            }
            Entry::Directory(root) if rest.is_empty() && root.ino == ino => {
                if !rows.roots.contains_key(&ino) {
                    findings.note(FindingKind::Leftover, || format!("attributes of {}, which is no root", ino.0));
                    findings.repairs.push(Repair::Delete(row.to_vec()));
                } else if root.xattrs {
                    rows.with_xattrs.insert(ino);
                }
            }
            Entry::File(_) | Entry::Directory(_) | Entry::Link(_) => {
                return Err(Damaged("an inode record of another number"));
            }
        }
        Ok(())
    })
}

/// Compares link counts with the names found. Data of a file without names counts as gone.
fn settle_links(rows: &mut Rows, findings: &mut Findings) {
    for (ino, Linked { mut file, names }) in std::mem::take(&mut rows.linked) {
        if names == 0 {
            rows.number(ino);
            findings.note(FindingKind::Leftover, || format!("file {} has no name", ino.0));
            findings.repairs.push(Repair::Delete(key::inode(ino)));
            continue;
        }
        if names != file.links {
            let what = || format!("file {} has {names} names and counts {}", ino.0, file.links);
            findings.note(FindingKind::Links, what);
            file.links = names;
            findings.repairs.push(Repair::Put(key::inode(ino), file.encode().value));
        }
        rows.file(&key::inode(ino), &file, findings);
    }
}

fn settle_encrypted(volume: &Volume, rows: &mut Rows, findings: &mut Findings) {
    for (row, file) in std::mem::take(&mut rows.encrypted_parts) {
        // Undecodable part sizes cover nothing.
        let stored_len = volume.stored_len(&file, &mut Seen::default()).unwrap_or(u64::MAX);
        rows.data(&row, &file, stored_len, findings);
    }
}

fn gather_entries(volume: &Volume, rows: &mut Rows, findings: &mut Findings) -> Result<(), Error> {
    table(volume, findings, &key::all_entries(), |row, value, findings| {
        let (directory, name) = key::parse_entry(row)?;
        let entry = Entry::decode(value)?;
        if name.contains('/') && !matches!(entry, Entry::Directory(_)) {
            findings.note(FindingKind::Directory, || format!("a file in {} has the name {name:?}", directory.0));
        }
        match entry {
            Entry::File(file) => {
                rows.name(directory, file.size);
                rows.file(row, &file, findings);
            }
            Entry::Link(ino) => {
                let linked = rows.linked.get_mut(&ino).map(|linked| {
                    linked.names += 1;
                    linked.file.size
                });
                match linked {
                    Some(size) => rows.name(directory, size),
                    None => {
                        rows.sums.entry(directory).or_default();
                        let what = || format!("{name:?} in directory {} leads to file {}", directory.0, ino.0);
                        findings.note(FindingKind::LostFile, what);
                    }
                }
            }
            Entry::Directory(entry) => {
                findings.report.directories += 1;
                rows.number(entry.ino);
                if entry.xattrs {
                    rows.with_xattrs.insert(entry.ino);
                }
                rows.sums.entry(directory).or_default();
                let twice = rows.directories.insert(entry.ino, (directory, name.to_owned(), entry)).is_some();
                if twice || name.find('/') != Some(name.len() - 1) {
                    findings.note(FindingKind::Directory, || format!("directory {} as {name:?}", entry.ino.0));
                }
            }
        }
        Ok(())
    })
}

fn gather_versions(volume: &Volume, rows: &mut Rows, findings: &mut Findings) -> Result<(), Error> {
    table(volume, findings, &key::all_versions(), |row, value, findings| {
        let (root, name, sequence) = key::parse_version(row)?;
        findings.report.versions += 1;
        rows.number(Ino(sequence));
        if !rows.roots.contains_key(&root) {
            findings.note(FindingKind::Leftover, || format!("version {sequence:016x} of {name:?} is in no bucket"));
        }
        let sum = rows.versions.entry(root).or_default();
        sum.0 += 1;
        if let VersionRow::File(file) = VersionRow::decode(value)? {
            sum.1 = sum.1.saturating_add(file.size as i64);
            if file.version.sequence != sequence {
                findings.note(FindingKind::Versions, || format!("{name:?} has version {sequence:016x} out of place"));
            }
            rows.file(row, &file, findings);
        }
        Ok(())
    })
}

fn gather_uploads(volume: &Volume, rows: &mut Rows, findings: &mut Findings) -> Result<(), Error> {
    table(volume, findings, &key::all_uploads(), |row, value, findings| {
        let upload = UploadRecord::decode(value)?;
        let (root, name, id) = key::parse_upload(row)?;
        rows.number(upload.ino);
        rows.uploads.insert(upload.ino);
        findings.report.uploads += 1;
        if !rows.roots.contains_key(&root) {
            findings.note(FindingKind::Leftover, || format!("upload {id} of {name:?} is in no bucket"));
        }
        Ok(())
    })?;
    table(volume, findings, &key::all_parts(), |row, value, findings| {
        let (upload, number) = key::parse_part(row)?;
        let part = PartRecord::decode(value)?;
        rows.number(part.ino);
        findings.report.parts += 1;
        if !rows.uploads.contains(&upload) && !rows.orphans.contains_key(&upload) {
            findings.note(FindingKind::Leftover, || format!("part {number} of upload {} that is gone", upload.0));
            // Draining releases its data; just removing the row would not.
            findings.repairs.push(Repair::Put(key::orphan(upload), Orphan::Parts.encode()));
        }
        if let Data::Extents(extents) = &part.data {
            rows.own(part.ino, Some(row), extents, findings);
        }
        Ok(())
    })
}

fn gather_extents(volume: &Volume, rows: &mut Rows, findings: &mut Findings) -> Result<(), Error> {
    table(volume, findings, &key::all_extents(), |row, value, findings| {
        let (ino, offset) = key::parse_extent(row)?;
        let extent = decode_extent_row(value)?;
        if let (None, Some(Orphan::File)) = (rows.large.get(&ino), rows.orphans.get(&ino)) {
            let large = Large { size: u64::MAX, extents: Vec::new() };
            rows.large.insert(ino, large);
        }
        match rows.large.get_mut(&ino) {
            Some(large) => large.extents.push((offset, extent)),
            None => {
                findings.note(FindingKind::Leftover, || format!("extent of file {} at {offset}", ino.0));
                findings.repairs.push(Repair::Delete(row.to_vec()));
            }
        }
        Ok(())
    })?;
    for (ino, large) in std::mem::take(&mut rows.large) {
        let extents: Vec<Extent> = large.extents.iter().map(|(_, extent)| *extent).collect();
        rows.own(ino, None, &extents, findings);
        let mut end = 0;
        let gapless = large.extents.iter().all(|(offset, extent)| {
            let follows = *offset == end;
            end += extent.len;
            follows
        });
        if large.size != u64::MAX && (!gapless || end != large.size) {
            findings.note(FindingKind::Extents, || format!("extent rows of file {} do not cover it", ino.0));
        }
    }
    Ok(())
}
