//! Backups: the rows of one moment (a snapshot) and copies of the segments that they refer to.
//!
//! Layout:     `segments/<id>.<kind>`, shared by all moments, and `moments/<name>/{rows,segments}`;
//!             docs/format/backup.md.
//! Invariants: B1 the rows are one snapshot. Until the copies are complete, nothing is removed from quarantine and no
//!                hole is punched, so every referenced byte still exists.
//!             B2 segments are append-only, so a copy is continued at its end; a damaged copy is made again once.
//!             B3 a moment gets its name when rows and segments are durable and every referenced run was verified in
//!                the copy.
//!             B4 a lock excludes a second backup or pruning; another data directory's copies are not touched.

mod list;
mod origin;
mod part;
mod part_tree;
mod prune;
mod restore;
mod rows;
mod segments;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use margay_env::{Env, Front, OpenMode, Written};
use margay_rows::key;
use margay_segment::{Run, SegmentError, SegmentId};

pub use self::list::{Ends, named_segments};
use self::list::{ends_of, read_list, write_list};
pub use self::part::{Part, PartName};
pub use self::prune::{Pruned, prune};
pub use self::restore::{Putting, RESTORED_ROWS_PER_BATCH, restore_rows};
use self::rows::RowsWriter;
pub(crate) use self::rows::read_rows;
use crate::api::Error;
use crate::open::Volume;
use crate::rests::Rests;

/// Folder of the copies.
const SEGMENTS: &str = "segments";
/// Folder of the moments.
const MOMENTS: &str = "moments";
/// File of a moment.
const ROWS: &str = "rows";
/// File of the segments that a moment names.
const LIST: &str = "segments";
/// Held by a backup or a pruning.
const LOCK: &str = "lock";
/// Suffix of a moment that is not complete yet, or is being removed.
const UNFINISHED: &str = ".unfinished";

/// Why a backup was not made, pruned or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("another backup to it, or a pruning, runs; wait until it has ended")]
    InUse,
    #[error(
        "it holds segments of another data directory (its {name} is not this one's); name another place for this one"
    )]
    OfAnother { name: String },
    #[error(
        "nothing was removed, since what the moment {moment} needs is not known: {error}; \
         if it is lost, remove its folder in moments/ and try again"
    )]
    Unreadable { moment: String, error: Error },
    #[error("the moment has no bucket {bucket}")]
    NoBucket { bucket: String },
    #[error("no key of the bucket {} begins with {:?} in that moment", .0.bucket, .0.prefix)]
    NoKeys(PartName),
    #[error(transparent)]
    Failed(#[from] Error),
}

/// What a backup did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Name of the moment.
    pub moment: String,
    pub rows: u64,
    /// Segments that its rows refer to.
    pub segments: u64,
    /// Bytes copied this time.
    pub copied_bytes: u64,
    /// Bytes verified in the copies.
    pub verified_bytes: u64,
}

/// Runs that the rows of a moment refer to, by segment and offset.
pub(crate) type Named = BTreeMap<SegmentId, BTreeMap<u64, Run>>;

fn failed(error: std::io::Error) -> Error {
    SegmentError::from(error).into()
}

impl Volume {
    /// Makes a backup in `to`, or adds a moment to an existing one. Operations continue; blocks this thread until new
    /// data was copied and everything was verified. `pace` receives the bytes copied and verified so far, and may break
    /// to end early. `to` is on the disk of `target`.
    pub fn backup(
        &self,
        target: &Env,
        to: &Path,
        mut pace: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport, BackupError> {
        let disk = &target.disk;
        disk.create_dir_all(&to.join(SEGMENTS)).map_err(failed)?;
        let _lock = prune::lock(target, to)?;
        let _holds = (self.store.hold_quarantine(), self.stores.readers.hold());
        let frozen = self.frozen()?;
        self.check_all_reached(&frozen.all_named_runs()?)?;
        let moment = self.new_moment(target, to)?;
        let unfinished = to.join(MOMENTS).join(format!("{moment}{UNFINISHED}"));
        disk.create_dir_all(&unfinished).map_err(failed)?;
        let mut report = BackupReport { moment, ..BackupReport::default() };
        let named = frozen.write_moment(target, &unfinished, &mut report)?;
        report.segments = named.len() as u64;
        segments::copy(self, target, &to.join(SEGMENTS), &named, &mut report, &mut pace)?;
        verify_moment(target, &unfinished, report.rows)?;
        let whole = to.join(MOMENTS).join(&report.moment);
        for folder in [&to.join(SEGMENTS), &unfinished] {
            disk.sync_dir(folder).map_err(failed)?;
        }
        disk.rename(&unfinished, &whole).map_err(failed)?;
        disk.sync_dir(&to.join(MOMENTS)).map_err(failed)?;
        Ok(report)
    }

    /// A moment is named by the second of its start; later ones of the same second sort after it.
    fn new_moment(&self, target: &Env, to: &Path) -> Result<String, Error> {
        let second = format!("{:011}-", self.now().seconds().max(0));
        let of_second = moments(target, to)?.into_iter().rev().find_map(|name| {
            let number: u64 = name.strip_prefix(&second)?.parse().ok()?;
            Some(number)
        });
        let number = of_second.map_or(0, |last| last + 1);
        Ok(format!("{second}{number:04}"))
    }

    /// Writes every row and the list of segments; returns the runs that the rows refer to.
    fn write_moment(&self, env: &Env, folder: &Path, report: &mut BackupReport) -> Result<Named, Error> {
        let (rows, written) = self.write_rows(new_file(env, &folder.join(ROWS))?)?;
        written.sync().map_err(failed)?;
        report.rows = rows;
        let named = self.all_named_runs()?;
        write_list(new_file(env, &folder.join(LIST))?, &ends_of(&named))?.sync().map_err(failed)?;
        Ok(named)
    }

    /// Writes every row; returns their number and the writer.
    pub(crate) fn write_rows<W: Write>(&self, to: W) -> Result<(u64, W), Error> {
        let mut writer = RowsWriter::begin(to)?;
        let mut rests = Rests::new(&self.env.clock);
        self.scan(&(Vec::new(), vec![0xff]), &mut crate::draft::Seen::default(), |row| {
            // Those hold locations in this folder, and what processes do now.
            if !key::is_segment(row.key) && !key::is_of_process(row.key) {
                writer.push(row.key, row.value)?;
            }
            rests.row();
            Ok(ControlFlow::Continue(()))
        })?;
        writer.finish()
    }

    pub(crate) fn all_named_runs(&self) -> Result<Named, Error> {
        let mut named = Named::new();
        self.each_named_run(|run| {
            if let Some(run) = run {
                named.entry(run.segment).or_default().insert(run.offset, *run);
            }
        })?;
        Ok(named)
    }
}

/// Reads the written rows again to verify them.
fn verify_moment(env: &Env, folder: &Path, rows: u64) -> Result<(), Error> {
    let open = |name: &str| env.disk.open(&folder.join(name), OpenMode::Read).map_err(failed);
    read_list(&mut Front::of(open(LIST)?))?;
    match read_rows(&mut Front::of(open(ROWS)?), |_, _| Ok(()))? == rows {
        true => Ok(()),
        false => Err(Error::Corrupt("the rows in the backup are not those that were written".to_owned())),
    }
}

/// A new file of an unfinished moment. An interrupted backup of the same second may have left one.
fn new_file(env: &Env, path: &Path) -> Result<Written, Error> {
    if env.disk.exists(path).map_err(failed)? {
        env.disk.remove(path).map_err(failed)?;
    }
    Ok(Written::begin(env.disk.open(path, OpenMode::CreateNew).map_err(failed)?))
}

/// The moments of a backup, oldest first.
pub fn moments(env: &Env, backup: &Path) -> Result<Vec<String>, Error> {
    let folder = backup.join(MOMENTS);
    if !env.disk.exists(&folder).map_err(failed)? {
        return Ok(Vec::new());
    }
    let listed = env.disk.list(&folder).map_err(failed)?;
    let whole = listed.into_iter().filter(|entry| entry.is_dir && !entry.name.ends_with(UNFINISHED));
    Ok(whole.map(|entry| entry.name).collect::<BTreeSet<String>>().into_iter().collect())
}

/// Where the copies of a backup's segments are.
pub fn segments_of(backup: &Path) -> PathBuf {
    backup.join(SEGMENTS)
}

fn rows_of(env: &Env, backup: &Path, moment: &str) -> Result<Front, Error> {
    let path = backup.join(MOMENTS).join(moment).join(ROWS);
    Ok(Front::of(env.disk.open(&path, OpenMode::Read).map_err(failed)?))
}
