//! What a check of a volume has found, as JSON, and a check beside a running server.
//!
//! Not here:   the check (margay-volume), output (`cli::fsck`).

use std::sync::Arc;

use margay_volume::FsckReport;
use serde_json::{Value, json};

use crate::wiring::Storage;

/// Checks the rows of one moment while operations go on; blocks. The error is one line.
pub fn check(storage: &Storage, shown_max: usize) -> Result<Value, String> {
    let report = storage.volume.check(shown_max, &Arc::default());
    let report = report.map_err(|error| format!("fsck could not go on: {error}"))?;
    let mut told = to_json(&report, report.clean());
    told["shared"] = storage.volume.engine().is_shared().into();
    Ok(told)
}

pub fn to_json(report: &FsckReport, clean: bool) -> Value {
    let findings: serde_json::Map<String, Value> =
        report.findings.iter().map(|(kind, count)| (format!("{kind:?}"), json!(count))).collect();
    let shown: Vec<Value> = report
        .shown
        .iter()
        .map(|finding| json!({ "kind": format!("{:?}", finding.kind), "what": finding.what }))
        .collect();
    json!({
        "clean": clean,
        "buckets": report.buckets,
        "directories": report.directories,
        "files": report.files,
        "bytes": report.bytes,
        "uploads": report.uploads,
        "parts": report.parts,
        "orphans": report.orphans,
        "shared_runs": report.shared_runs,
        "live_bytes": report.live_bytes,
        "segment_bytes": report.segment_bytes,
        "unreachable_segments": report.unreachable_segments,
        "unnamed_copies": report.unnamed_copies,
        "unreachable_stores": report.unreachable_stores,
        "findings": findings,
        "shown": shown,
        "repaired": report.repaired,
    })
}
