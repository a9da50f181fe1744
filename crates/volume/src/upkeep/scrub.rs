//! Scrub: reads all rows and all live data, and verifies every checksum.
//!
//! Why:        bytes that nobody reads decay unnoticed; a scrub finds the damage while another copy may still exist.
//! Invariants: S1 only reads. A row that changed since it was read is skipped: its old data may be gone without damage.
//!             S2 data is verified once its row is durable: before, a payload may not be in the log yet.
//! Not here:   consistency of rows (fsck), when and how fast (the caller's visitor).

use std::collections::HashSet;
use std::ops::ControlFlow;

use margay_meta::RowVersion;
use margay_rows::record::data::{decode_extent_row, is_hole};
use margay_rows::record::{Data, DirectoryRecord, PartRecord, file_of_row};
use margay_rows::{Ino, key};
use margay_segment::{Extent, InQuarantine, SegmentError, SegmentId};

use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;

/// Rows read at a time; their data is read after the scan has ended.
const PAGE_ROWS: usize = 512;
/// Maximum number of parents followed for a name; deeper paths are shown from the middle.
const DEPTH_SHOWN_MAX: usize = 1024;

/// Verified runs that are remembered, about 32 bytes each; then the set is cleared, and a run with distant references
/// may be read and counted again.
const VERIFIED_RUNS_MAX: usize = 1 << 20;

/// Parent of the root directories of buckets.
const ABOVE_BUCKETS: Ino = Ino(0);

/// Data that fails verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedData {
    /// `bucket/key`, or another description.
    pub what: String,
    pub error: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Bytes of stored rows verified.
    pub row_bytes: u64,
    /// Rows that refer to data.
    pub rows: u64,
    /// Bytes of verified runs, each once, however many rows refer to it (but see `VERIFIED_RUNS_MAX`).
    pub bytes: u64,
    pub damaged: u64,
    /// The first of them.
    pub shown: Vec<DamagedData>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Table {
    Entries,
    Inodes,
    Versions,
    Extents,
    Parts,
}

/// A row that refers to data.
struct Named {
    key: Vec<u8>,
    version: RowVersion,
    extents: Vec<Extent>,
}

impl Volume {
    /// Verifies everything; blocks for as long as it takes. After each run `pace` receives the progress, and may wait,
    /// or break to end early.
    pub fn scrub(
        &self,
        shown_max: usize,
        mut pace: impl FnMut(&ScrubReport) -> ControlFlow<()>,
    ) -> Result<ScrubReport, Error> {
        let mut report = ScrubReport::default();
        if self.verify_rows(shown_max, &mut report, &mut pace)?.is_break() {
            return Ok(report);
        }
        let mut verified = HashSet::new();
        for (table, range) in [
            (Table::Entries, key::all_entries()),
            (Table::Inodes, key::all_inodes()),
            (Table::Versions, key::all_versions()),
            (Table::Extents, key::all_extents()),
            (Table::Parts, key::all_parts()),
        ] {
            let mut from = range.0;
            loop {
                let (page, next) = match self.named_page(table, (from, range.1.clone())) {
                    // Already reported, with the keys that it hides. The rest of this table is not read.
                    Err(Error::Corrupt(_)) if report.damaged > 0 => break,
                    page => page?,
                };
                for named in &page {
                    report.rows += 1;
                    if self.verify_row((table, named), &mut verified, shown_max, &mut report, &mut pace)?.is_break() {
                        return Ok(report);
                    }
                }
                match next {
                    Some(next) => from = next,
                    None => break,
                }
            }
        }
        Ok(report)
    }

    /// Verifies the engine's own storage on the disk.
    fn verify_rows(
        &self,
        shown_max: usize,
        report: &mut ScrubReport,
        pace: &mut impl FnMut(&ScrubReport) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let mut flow = ControlFlow::Continue(());
        let checked = self.engine.check_storage(shown_max, &mut |checked| {
            report.row_bytes = checked.bytes;
            flow = pace(report);
            flow
        })?;
        report.damaged += checked.damaged;
        let what = || "stored rows".to_owned();
        report.shown.extend(checked.shown.into_iter().map(|error| DamagedData { what: what(), error }));
        Ok(flow)
    }

    /// Up to [`PAGE_ROWS`] rows, and where the next page begins. Undecodable rows are left to fsck.
    fn named_page(&self, table: Table, range: key::Range) -> Result<(Vec<Named>, Option<Vec<u8>>), Error> {
        let mut page = Vec::new();
        let mut next = None;
        let mut rows = 0;
        let mut seen = Seen::default();
        self.scan(&range, &mut seen, |row| {
            rows += 1;
            let extents = extents_of(table, row.value);
            if !extents.is_empty() {
                page.push(Named { key: row.key.to_vec(), version: row.version, extents });
            }
            if rows < PAGE_ROWS {
                return Ok(ControlFlow::Continue(()));
            }
            next = Some(key::after(row.key.to_vec()));
            Ok(ControlFlow::Break(()))
        })?;
        self.engine.wait_durable(seen.cursor)?;
        Ok((page, next))
    }

    fn verify_row(
        &self,
        (table, named): (Table, &Named),
        verified: &mut HashSet<(SegmentId, u64)>,
        shown_max: usize,
        report: &mut ScrubReport,
        pace: &mut impl FnMut(&ScrubReport) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        for extent in &named.extents {
            let place = (extent.run.segment, extent.run.offset);
            // Another process scrubs its own store.
            let is_elsewhere = self.stores.has_others() && !self.stores.is_own(extent.run.segment);
            if is_elsewhere || verified.contains(&place) {
                continue;
            }
            // What went into quarantine since the page was read stays there, unless the row still names it.
            let found =
                self.store.pin(extent.run.segment, InQuarantine::Leave).and_then(|_pin| self.store.verify(extent));
            let changed =
                found.is_err() && self.engine.get(&named.key)?.value.is_none_or(|row| row.version != named.version);
            if changed {
                return Ok(ControlFlow::Continue(()));
            }
            let found = if let Err(SegmentError::Missing(_)) = found { self.store.verify(extent) } else { found };
            match found {
                Ok(()) => {
                    report.bytes += extent.run.len;
                    if verified.len() == VERIFIED_RUNS_MAX {
                        verified.clear();
                    }
                    verified.insert(place);
                }
                Err(error @ (SegmentError::Corrupt { .. } | SegmentError::Missing(_) | SegmentError::Io(_))) => {
                    report.damaged += 1;
                    if report.shown.len() < shown_max {
                        let what = self.name_of(table, &named.key)?;
                        report.shown.push(DamagedData { what, error: error.to_string() });
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if pace(report).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A name for people of what a row describes.
    pub(crate) fn name_of(&self, table: Table, row: &[u8]) -> Result<String, Error> {
        Ok(match table {
            Table::Entries => match key::parse_entry(row) {
                Ok((directory, name)) => self.path_of(directory, name)?,
                Err(_) => "an entry whose name does not decode".to_owned(),
            },
            Table::Inodes => match key::parse_ino(row) {
                Ok((ino, _)) => format!("file {} with several names", ino.0),
                Err(_) => "an inode record whose number does not decode".to_owned(),
            },
            Table::Versions => match key::parse_version(row) {
                Ok((root, name, sequence)) => format!("{}, version {sequence:016x}", self.path_of(root, &name)?),
                Err(_) => "a version that does not decode".to_owned(),
            },
            Table::Extents => match key::parse_extent(row) {
                Ok((ino, offset)) => format!("file {} from byte {offset} on", ino.0),
                Err(_) => "an extent row that does not decode".to_owned(),
            },
            Table::Parts => match key::parse_part(row) {
                Ok((upload, number)) => format!("part {number} of unfinished upload {}", upload.0),
                Err(_) => "a part that does not decode".to_owned(),
            },
        })
    }

    /// `bucket/key`, as far as the directory records tell.
    fn path_of(&self, directory: Ino, name: &str) -> Result<String, Error> {
        let mut names = vec![name.to_owned()];
        let mut at = directory;
        for _ in 0..DEPTH_SHOWN_MAX {
            let record = self.engine.get(&key::directory(at))?.value;
            let Some(record) = record.and_then(|row| DirectoryRecord::decode(&row.value).ok()) else { break };
            if record.parent == ABOVE_BUCKETS {
                names.push(format!("{}/", record.sort_name));
                names.reverse();
                return Ok(names.concat());
            }
            at = record.parent;
            names.push(record.sort_name);
        }
        names.reverse();
        Ok(format!("directory {}, {}", at.0, names.concat()))
    }
}

fn extents_of(table: Table, value: &[u8]) -> Vec<Extent> {
    let data = match table {
        Table::Entries | Table::Inodes | Table::Versions => file_of_row(value).ok().flatten().map(|file| file.data),
        Table::Parts => PartRecord::decode(value).ok().map(|part| part.data),
        Table::Extents => decode_extent_row(value).ok().map(|extent| Data::Extents(vec![extent])),
    };
    match data {
        Some(Data::Extents(extents)) => extents.into_iter().filter(|extent| !is_hole(extent)).collect(),
        _ => Vec::new(),
    }
}
