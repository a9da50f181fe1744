//! Tasks that an operator requests: reclaiming space, verifying data, adding up usage.
//!
//! Why:        one list of tasks for the running server (through its control socket) and for a directory at rest.
//! Not here:   how a task works (margay-volume), output (`cli`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use margay_volume::{ReclaimBudget, Reclaimed, ScrubReport, SealedLogs};
use serde_json::{Value, json};

use crate::buckets;
use crate::progress::Far;
use crate::wiring::Storage;

/// Maximum number of passes of one `compact`. Each pass moves something, so the limit only matters for a volume that is
/// written to all the time.
const COMPACT_PASSES_MAX: usize = 1000;
/// Damaged objects that a scrub lists; further ones are counted.
const SHOWN_MAX: usize = 100;

/// An operator's task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read and verify all data.
    Scrub,
    /// Reclaim all dead space now.
    Compact,
    /// Objects and bytes of every bucket.
    Du,
}

impl Work {
    /// Its progress; `None` while it does not run, or for a short task.
    pub fn far(self, storage: &Storage) -> Option<Far> {
        match self {
            Work::Scrub => storage.scrubbed.now(),
            Work::Compact => storage.compacted.now(),
            Work::Du => None,
        }
    }

    pub const ALL: [Work; 3] = [Work::Scrub, Work::Compact, Work::Du];

    /// Its name on the control socket.
    pub fn name(self) -> &'static str {
        match self {
            Work::Scrub => "scrub",
            Work::Compact => "compact",
            Work::Du => "du",
        }
    }

    /// Runs the task; `rate_max` (bytes per second) throttles a scrub. The error is one line.
    pub async fn run(self, storage: Arc<Storage>, rate_max: Option<u64>) -> Result<Value, String> {
        let blocking = match self {
            Work::Du => return buckets::list(&storage.volume).await.map_err(|error| error.to_string()),
            Work::Scrub => tokio::task::spawn_blocking(move || scrub(&storage, rate_max)),
            Work::Compact => tokio::task::spawn_blocking(move || compact(&storage)),
        };
        let done = blocking.await.map_err(|error| format!("the work broke off: {error}"))?;
        done.map_err(|error| error.to_string())
    }
}

fn scrub(storage: &Storage, rate_max: Option<u64>) -> Result<Value, margay_volume::Error> {
    let clock = &storage.env.clock;
    let began = clock.monotonic();
    let data: u64 = storage.volume.live_bytes()?.values().sum();
    let running = storage.scrubbed.begin(data + storage.rows.tree_bytes());
    let pace = |report: &ScrubReport| {
        let read = report.bytes + report.row_bytes;
        running.at(read);
        if let Some(due) = rate_max.and_then(|rate| read.checked_mul(1000)?.checked_div(rate)) {
            let ahead = Duration::from_millis(due).saturating_sub(clock.monotonic().saturating_sub(began));
            clock.sleep(ahead);
        }
        if storage.stopping() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let report = storage.volume.scrub(SHOWN_MAX, pace)?;
    for damaged in &report.shown {
        tracing::error!(what = damaged.what, error = damaged.error, "damaged data");
    }
    let shown: Vec<Value> =
        report.shown.iter().map(|damaged| json!({ "what": damaged.what, "error": damaged.error })).collect();
    Ok(json!({
        "rows": report.rows,
        "bytes": report.bytes,
        "row_bytes": report.row_bytes,
        "damaged": report.damaged,
        "complete": !storage.stopping(),
        "shown": shown,
    }))
}

fn compact(storage: &Storage) -> Result<Value, margay_volume::Error> {
    // Data that is only in the log cannot be reclaimed.
    match storage.rows.checkpoint() {
        // On a full disk, data in segments can be reclaimed all the same.
        Err(error) if error.is_full() => {}
        done => done?,
    }
    // The operator wants the space now: the quarantine's waiting time is skipped, its walk is not.
    let budget =
        ReclaimBudget { seal_dead_bytes_min: 1, quarantine: Duration::ZERO, punch: true, ..ReclaimBudget::default() };
    let mut total = Reclaimed::default();
    let live: u64 = storage.volume.live_bytes()?.values().sum();
    let stored: u64 = storage.segments.segments().iter().map(|info| info.len).sum();
    let running = storage.compacted.begin(stored.saturating_sub(live));
    for _ in 0..COMPACT_PASSES_MAX {
        let done = storage.volume.reclaim_once(&budget, &SealedLogs)?;
        total.add(&done);
        running.at(total.removed_bytes + total.punched_bytes);
        if storage.stopping() || done.moved_runs + done.removed_segments == 0 {
            break;
        }
    }
    Ok(json!({
        "removed_segments": total.removed_segments,
        "disputed_segments": total.disputed_segments,
        "removed_bytes": total.removed_bytes,
        "moved_runs": total.moved_runs,
        "moved_bytes": total.moved_bytes,
        "punched_bytes": total.punched_bytes,
        "skipped_runs": total.skipped_runs,
        "damaged_runs": total.damaged_runs,
    }))
}
