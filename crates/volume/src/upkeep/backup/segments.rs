//! Copies of segments: creating, continuing, verifying.
//!
//! Invariants: see `backup` B2 and B3.

use std::ops::ControlFlow;
use std::path::Path;

use margay_env::{Env, OpenMode};
use margay_segment::{Kind, SegmentCopy, SegmentError, SegmentId, segment_of_name, verify_run_in};

use super::list::{Ends, ends_of};
use super::origin::is_of_another;
use super::{BackupError, BackupReport, Named, failed};
use crate::api::Error;
use crate::open::Volume;

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Copies the missing bytes of the segments, syncs them and verifies every referenced run in the copies.
pub(super) fn copy(
    volume: &Volume,
    target: &Env,
    to: &Path,
    named: &Named,
    report: &mut BackupReport,
    pace: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), BackupError> {
    let ends = ends_of(named);
    // Before anything is written: an existing copy may belong to another data directory.
    check_origins(volume, target, to, &ends)?;
    for (segment, end) in ends {
        copy_segment(volume, target, to, segment, end, report, pace)?;
    }
    let damaged = verify(volume, target, to, named, report, pace)?;
    if damaged.is_empty() {
        return Ok(());
    }
    // Leftovers of an interrupted backup, or bit rot since: copied again from the start, once.
    let mut again = Named::new();
    for segment in damaged {
        tracing::warn!(segment = ?segment, "a copy in the backup does not verify: it is made anew");
        let source = volume.store.source(segment).map_err(Error::from)?;
        target.disk.remove(&to.join(&source.name)).map_err(failed)?;
        copy_segment(volume, target, to, segment, u64::MAX, report, pace)?;
        again.insert(segment, named[&segment].clone());
    }
    match verify(volume, target, to, &again, report, pace)?.first() {
        None => Ok(()),
        Some(segment) => Err(Error::Corrupt(format!(
            "segment {segment:?} cannot be read as it was written: run margay scrub, which names the objects"
        ))
        .into()),
    }
}

/// Refuses copies that belong to another data directory's segments.
fn check_origins(volume: &Volume, target: &Env, to: &Path, ends: &Ends) -> Result<(), BackupError> {
    for entry in target.disk.list(to).map_err(failed)? {
        let Some((segment, kind)) = segment_of_name(&entry.name) else { continue };
        if !ends.contains_key(&segment) {
            continue;
        }
        let source = volume.store.source(segment).map_err(Error::from)?;
        let copy = target.disk.open(&to.join(&entry.name), OpenMode::Read).map_err(failed)?;
        if source.name != entry.name || is_of_another(segment, kind, &*source.file, &*copy).map_err(failed)? {
            return Err(BackupError::OfAnother { name: entry.name });
        }
    }
    Ok(())
}

fn copy_segment(
    volume: &Volume,
    target: &Env,
    to: &Path,
    segment: SegmentId,
    end: u64,
    report: &mut BackupReport,
    pace: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), Error> {
    let SegmentCopy { name, kind, file } = volume.store.source(segment)?;
    // A log file is preallocated beyond its content, and its end changes later.
    let len = file.len().map_err(failed)?;
    let end = if kind == Kind::Log { end.min(len) } else { len };
    let copy = target.disk.open(&to.join(&name), OpenMode::OpenOrCreate).map_err(failed)?;
    let mut at = copy.len().map_err(failed)?;
    if at >= end {
        return Ok(());
    }
    let mut buffer = Vec::new();
    while at < end {
        buffer.resize(COPY_BYTES.min(end - at) as usize, 0);
        let count = file.read_at(&mut buffer, at).map_err(failed)?;
        if count == 0 {
            // The log was truncated to its content meanwhile. Whether all referenced runs were copied is checked later.
            break;
        }
        buffer.truncate(count);
        copy.write_all_at(&buffer, at).map_err(failed)?;
        at += buffer.len() as u64;
        report.copied_bytes += buffer.len() as u64;
        go_on(report, pace)?;
    }
    copy.sync_data().map_err(failed)
}

/// Verifies every referenced run in the copies; returns the segments with a mismatch.
fn verify(
    volume: &Volume,
    target: &Env,
    to: &Path,
    named: &Named,
    report: &mut BackupReport,
    pace: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<Vec<SegmentId>, Error> {
    let mut damaged = Vec::new();
    for (segment, runs) in named {
        let name = volume.store.source(*segment)?.name;
        let copy = target.disk.open(&to.join(name), OpenMode::Read).map_err(failed)?;
        for run in runs.values() {
            match verify_run_in(&*copy, run) {
                Ok(()) => report.verified_bytes += run.len,
                Err(SegmentError::Corrupt { .. }) => {
                    damaged.push(*segment);
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            go_on(report, pace)?;
        }
    }
    Ok(damaged)
}

fn go_on(report: &BackupReport, pace: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<(), Error> {
    match pace(report.copied_bytes + report.verified_bytes) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::Busy),
    }
}
