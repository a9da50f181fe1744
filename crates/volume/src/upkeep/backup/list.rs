//! The list of segments that a moment refers to, in a small file beside its rows.
//!
//! Why:        pruning reads this list of every moment instead of all rows.
//! Layout:     in the format of rows: segment id (8 bytes, big-endian) to the end of the last referenced run in it (8
//!             bytes, little-endian); docs/format/backup.md.
//! Invariants: N1 a moment without a list is older than lists: then its rows are read.
//! Not here:   what happens to unreferenced segments (prune).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use margay_env::{Env, Front, OpenMode};
use margay_segment::{Run, SegmentId};

use super::rows::{RowsWriter, read_rows};
use super::{LIST, MOMENTS, Named, failed, rows_of};
use crate::api::Error;
use crate::upkeep::reclaim::runs_of_row;

/// Size of the end mark after a run in a pack or log.
const END_MARK_BYTES: u64 = margay_segment::format::RUN_END_BYTES as u64;

/// Segments, and the end of the last referenced run in each.
pub type Ends = BTreeMap<SegmentId, u64>;

/// Where a run ends, including its checksum table and end mark.
pub(super) fn end_of(run: &Run) -> u64 {
    run.offset.saturating_add(run.len).saturating_add(run.table_bytes()).saturating_add(END_MARK_BYTES)
}

pub(super) fn ends_of(named: &Named) -> Ends {
    let end = |runs: &BTreeMap<u64, Run>| runs.values().map(end_of).max().unwrap_or(0);
    named.iter().map(|(segment, runs)| (*segment, end(runs))).collect()
}

pub(super) fn write_list<W: Write>(to: W, ends: &Ends) -> Result<W, Error> {
    let mut writer = RowsWriter::begin(to)?;
    for (segment, end) in ends {
        writer.push(&segment.0.to_be_bytes(), &end.to_le_bytes())?;
    }
    Ok(writer.finish()?.1)
}

pub(crate) fn read_list(from: &mut dyn Read) -> Result<Ends, Error> {
    let mut ends = Ends::new();
    read_rows(from, |segment, end| {
        let (Ok(segment), Ok(end)) = (segment.try_into(), end.try_into()) else {
            return Err(Error::Corrupt("the list of a moment's segments is damaged".to_owned()));
        };
        ends.insert(SegmentId(u64::from_be_bytes(segment)), u64::from_le_bytes(end));
        Ok(())
    })?;
    Ok(ends)
}

/// The segments that a moment refers to.
pub fn named_segments(env: &Env, backup: &Path, moment: &str) -> Result<Ends, Error> {
    let list = backup.join(MOMENTS).join(moment).join(LIST);
    if env.disk.exists(&list).map_err(failed)? {
        return read_list(&mut Front::of(env.disk.open(&list, OpenMode::Read).map_err(failed)?));
    }
    let mut ends = Ends::new();
    read_rows(&mut rows_of(env, backup, moment)?, |key, value| {
        runs_of_row(key, value, |run| {
            if let Some(run) = run {
                let end = ends.entry(run.segment).or_default();
                *end = end_of(run).max(*end);
            }
        })?;
        Ok(())
    })?;
    Ok(ends)
}
