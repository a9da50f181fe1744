//! Compares back rows with the rows that refer to runs.
//!
//! Why:        there are as many of each as runs, in different orders, so sums of digests per segment are compared.
//!             Which rows differ does not matter, because a repair rebuilds all of them.
//! Invariants: B1 a segment with equal sums has exactly the back rows that its referring rows require.
//! Not here:   rebuilding them (upgrade).

use std::collections::{BTreeMap, BTreeSet};

use margay_rows::key;
use margay_rows::record::BackRow;
use margay_segment::SegmentId;
use md5::{Digest, Md5};

use super::check::visit;
use super::gather::Rows;
use super::{FindingKind, Findings, Repair};
use crate::api::Error;
use crate::open::Volume;

/// A sum over rows, independent of their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RowSum {
    rows: u64,
    digests: u128,
}

impl RowSum {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let digest = Md5::new().chain_update((key.len() as u64).to_be_bytes()).chain_update(key).chain_update(value);
        self.rows += 1;
        self.digests = self.digests.wrapping_add(u128::from_be_bytes(digest.finalize().into()));
    }
}

/// Sums over the back rows of a segment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FoundBacks {
    sum: RowSum,
    /// Bytes of runs, counted once per owner.
    owned: i64,
    /// Bytes of runs, each counted once.
    named: i64,
    last: Option<(u64, bool)>,
}

impl FoundBacks {
    /// Bytes of runs, each counted once.
    pub(super) fn named(&self) -> i64 {
        self.named
    }
}

/// Compares, and gives what was found of segments whose back rows are right.
pub(super) fn check(
    volume: &Volume,
    rows: &Rows,
    findings: &mut Findings,
) -> Result<BTreeMap<SegmentId, FoundBacks>, Error> {
    let mut found: BTreeMap<SegmentId, FoundBacks> = BTreeMap::new();
    let mut damaged = Vec::new();
    let mut shared_runs = 0;
    visit(volume, &key::all_backs(), |row| {
        findings.count_row();
        let (Ok((segment, offset, _)), Ok(back)) = (key::parse_back(row.key), BackRow::decode(row.value)) else {
            damaged.push(row.key.to_vec());
            return;
        };
        let backs = found.entry(segment).or_default();
        backs.sum.add(row.key, row.value);
        let len = i64::try_from(back.run_len).unwrap_or(i64::MAX);
        backs.owned = backs.owned.saturating_add(len);
        match &mut backs.last {
            Some((last, is_shared)) if *last == offset => {
                shared_runs += u64::from(!std::mem::replace(is_shared, true));
            }
            last => {
                *last = Some((offset, false));
                backs.named = backs.named.saturating_add(len);
            }
        }
    })?;
    findings.report.shared_runs = shared_runs;
    findings.report.live_bytes = found.values().map(|backs| backs.named.max(0) as u64).sum();
    let mut locations = RowSum::default();
    visit(volume, &key::all_locations(), |row| {
        findings.count_row();
        locations.add(row.key, row.value);
    })?;

    let before = findings.report.findings.get(&FindingKind::Back).copied().unwrap_or(0);
    for row in &damaged {
        findings.note(FindingKind::Back, || format!("back row {row:02x?} does not decode"));
    }
    let mut wrong = BTreeSet::new();
    let segments: BTreeSet<&SegmentId> = rows.backs.keys().chain(found.keys()).collect();
    for segment in segments {
        let right = rows.backs.get(segment).copied().unwrap_or_default();
        let stored = found.get(segment).map(|backs| backs.sum).unwrap_or_default();
        if right != stored {
            wrong.insert(*segment);
            findings.note(FindingKind::Back, || {
                format!("{} back rows lead from {segment:?}, not the {} that should", stored.rows, right.rows)
            });
        }
    }
    if locations != rows.locations {
        findings.note(FindingKind::Back, || {
            let (stored, right) = (locations.rows, rows.locations.rows);
            format!("{stored} locations of files with extent rows, not the {right} that should be")
        });
    }
    if findings.report.findings.get(&FindingKind::Back).copied().unwrap_or(0) > before {
        findings.repairs.push(Repair::Rebuild);
    }
    found.retain(|segment, _| !wrong.contains(segment));
    Ok(found)
}
