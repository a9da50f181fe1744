//! fsck: checks that all rows agree with each other and with the segment files.
//!
//! Why:        operations maintain counters and mirrors (live bytes, usage, directory records, back rows); this
//!             recomputes them from the entries and inode records, which are taken as true.
//! Invariants: K1 only reads, unless told to repair; repairs change counters (including link counts) and unreferenced
//!                rows, never an entry. K2 `check` reads a snapshot, so operations may continue; `fsck` expects none.
//!                K3 the engine's own storage is checked first: if not all rows are readable, nothing else is decided.
//! Not here:   checksums of data (scrub in segment), of rows (the engine).

mod backs;
mod check;
mod gather;
mod lost;
mod segments;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_meta::Cursor;
use margay_segment::SegmentId;

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;
use crate::open::Volume;
use crate::rests::Rests;
use crate::sessions::Lease;
use crate::upgrade;

/// Repairs in one batch.
const REPAIRS_PER_BATCH: usize = 4096;
/// A verified page counts as this many rows read between pauses.
const ROWS_OF_PAGE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct FsckOptions {
    /// Correct counters and remove unreferenced rows.
    pub repair: bool,
    /// Findings that are listed; further ones are only counted.
    pub shown_max: usize,
}

impl Default for FsckOptions {
    fn default() -> FsckOptions {
        FsckOptions { repair: false, shown_max: 100 }
    }
}

/// The kind of a finding, and of its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Live bytes or usage differ from the sum over the entries. Repaired.
    Counter,
    /// A row without an owner. Repaired by removing it.
    Leftover,
    /// A directory's record is missing or disagrees with its entry. Repaired from the entry.
    DirectoryRecord,
    /// A directory is not below any bucket, or an implicit one is empty.
    Directory,
    /// A file's extents do not cover it.
    Extents,
    /// A hard-linked file has a wrong link count. Repaired.
    Links,
    /// A name leads to a file that has no record: the file is lost.
    LostFile,
    /// Versions of a key are out of order, or the newest one is neither current nor a delete marker.
    Versions,
    /// A file refers to data in a segment that is missing or too short: that data is lost.
    MissingData,
    /// A segment in quarantine is referenced. Repaired by taking it back.
    Quarantine,
    /// Back rows differ from the rows that refer to runs. The repair rebuilds all of them.
    Back,
    /// A number in use could be assigned again by the counter. Repaired.
    Numbers,
    /// A setting or document that its bucket or object lists is missing.
    MissingRow,
    /// A row does not decode.
    Damaged,
    /// Rows cannot be read because their storage is damaged. Nothing else was checked, and nothing repaired.
    Unreadable,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub kind: FindingKind,
    /// Description and location, for people.
    pub what: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    pub buckets: u64,
    pub directories: u64,
    /// Including versions.
    pub files: u64,
    /// Versions that are not current, and delete markers.
    pub versions: u64,
    /// Bytes of all files.
    pub bytes: u64,
    pub uploads: u64,
    pub parts: u64,
    /// Deleted files and uploads that are not drained yet; opening the volume drains them.
    pub orphans: u64,
    /// Runs with more than one owner.
    pub shared_runs: u64,
    /// Bytes of runs that files and parts refer to.
    pub live_bytes: u64,
    /// Bytes of all segment files.
    pub segment_bytes: u64,
    /// Referenced segments whose store cannot be reached; they were not checked.
    pub unreachable_segments: u64,
    /// Copies at this store of segments of others which no row names; where servers share the volume, their sweep removes these.
    pub unnamed_copies: u64,
    /// The numbers of those stores.
    pub unreachable_stores: BTreeSet<u16>,
    pub findings: BTreeMap<FindingKind, u64>,
    /// The first findings.
    pub shown: Vec<Finding>,
    /// Rows corrected or removed.
    pub repaired: u64,
}

impl FsckReport {
    pub fn clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// One row to correct.
#[derive(Clone, Debug)]
pub(crate) enum Repair {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Add(Vec<u8>, i64),
    TakeBack(SegmentId),
    /// Rebuilds back rows, locations and counters of segments.
    Rebuild,
}

/// Findings and repairs as they come up.
#[derive(Debug)]
pub(crate) struct Findings {
    report: FsckReport,
    repairs: Vec<Repair>,
    shown_max: usize,
    /// Rows read so far, for progress.
    rows: Arc<AtomicU64>,
    /// Pauses, beside a running server.
    rests: Option<Rests>,
}

impl Findings {
    fn count_row(&mut self) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        if let Some(rests) = &mut self.rests {
            rests.row();
        }
    }

    fn note(&mut self, kind: FindingKind, what: impl FnOnce() -> String) {
        *self.report.findings.entry(kind).or_default() += 1;
        if self.report.shown.len() < self.shown_max {
            self.report.shown.push(Finding { kind, what: what() });
        }
    }
}

impl Volume {
    /// Checks the whole volume; blocks until every row was read.
    pub fn fsck(&self, options: FsckOptions) -> Result<FsckReport, Error> {
        self.fsck_counting(options, &Arc::default())
    }

    /// As `fsck`; counts the rows read so far in `rows`.
    pub fn fsck_counting(&self, options: FsckOptions, rows: &Arc<AtomicU64>) -> Result<FsckReport, Error> {
        if let Some(unreadable) = self.unreadable(options.shown_max, None)? {
            return Ok(unreadable);
        }
        if options.repair {
            // An operator asks for it, whoever has the lease.
            self.drain_orphans(&Lease::alone())?;
        }
        let mut findings = self.find_all(options.shown_max, rows, None)?;
        if options.repair {
            let _alone = self.upkeep.lock();
            let repairs = std::mem::take(&mut findings.repairs);
            findings.report.repaired = repairs.len() as u64;
            self.apply(&repairs)?;
        }
        Ok(findings.report)
    }

    /// Checks the rows of one moment while operations continue; blocks until every row was read, pausing half of the
    /// time. Repairs nothing, except that it takes a referenced segment back from quarantine. Counts rows in `rows`.
    pub fn check(&self, shown_max: usize, rows: &Arc<AtomicU64>) -> Result<FsckReport, Error> {
        // No segment is removed meanwhile, so everything that the rows of this moment refer to still exists.
        let _alone = self.upkeep.lock();
        if let Some(unreadable) = self.unreadable(shown_max, Some(Rests::new(&self.env.clock)))? {
            return Ok(unreadable);
        }
        let _reads = self.stores.readers.hold();
        let frozen = self.frozen()?;
        let findings = frozen.find_all(shown_max, rows, Some(Rests::new(&self.env.clock)))?;
        self.take_back_named(&findings.repairs)?;
        Ok(findings.report)
    }

    /// Errors in the storage of rows, if any.
    fn unreadable(&self, shown_max: usize, mut rests: Option<Rests>) -> Result<Option<FsckReport>, Error> {
        let stored = self.engine.check_storage(shown_max, &mut |_| {
            if let Some(rests) = &mut rests {
                (0..ROWS_OF_PAGE).for_each(|_| rests.row());
            }
            ControlFlow::Continue(())
        })?;
        if stored.damaged == 0 {
            return Ok(None);
        }
        let shown = stored.shown.into_iter().map(|what| Finding { kind: FindingKind::Unreadable, what }).collect();
        let findings = BTreeMap::from([(FindingKind::Unreadable, stored.damaged)]);
        Ok(Some(FsckReport { findings, shown, ..FsckReport::default() }))
    }

    fn find_all(&self, shown_max: usize, rows: &Arc<AtomicU64>, rests: Option<Rests>) -> Result<Findings, Error> {
        let (report, rows) = (FsckReport::default(), Arc::clone(rows));
        let mut findings = Findings { report, repairs: Vec::new(), shown_max, rows, rests };
        let rows = gather::gather(self, &mut findings)?;
        check::check(self, &rows, &mut findings)?;
        versions::check(self, &rows, &mut findings)?;
        Ok(findings)
    }

    fn take_back_named(&self, repairs: &[Repair]) -> Result<(), Error> {
        for repair in repairs {
            if let Repair::TakeBack(segment) = repair {
                self.store.take_back(*segment)?;
            }
        }
        Ok(())
    }

    fn apply(&self, repairs: &[Repair]) -> Result<(), Error> {
        self.take_back_named(repairs)?;
        let mut last = Cursor::default();
        for some in repairs.chunks(REPAIRS_PER_BATCH) {
            last = self.retry(|_| -> Result<Cursor, Refused> {
                let mut draft = Draft::default();
                for repair in some {
                    match repair.clone() {
                        Repair::Put(key, value) => {
                            draft.put(key, value);
                        }
                        Repair::Delete(key) => draft.delete(key),
                        Repair::Add(key, delta) => draft.add(key, delta),
                        Repair::TakeBack(_) | Repair::Rebuild => {}
                    }
                }
                Ok(self.commit(draft)?.cursor)
            })?;
        }
        if repairs.iter().any(|repair| matches!(repair, Repair::Rebuild)) {
            // Last, because it depends on the results of the other repairs.
            return upgrade::rebuild(&*self.engine);
        }
        Ok(self.engine.wait_durable(last)?)
    }
}
