//! Work beside the requests: giving space back, verifying data, adding up usage.
//!
//! Why:        one list of works for the running server (by its control socket) and for a directory at rest.
//! Invariants: N1 the background pass moves at most the set bytes per second, and rests while nothing was committed.
//!             N2 the check of all rows comes once an interval; what it finds is told by the log, `status` and metrics.
//! Not here:   how it is done (margay-volume), how a command shows it (`cli`).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_env::{Env, Timestamp};
use margay_meta::{Engine, Seq};
use margay_segment::Store;
use margay_volume::{FsckReport, ReclaimBudget, Reclaimed, ScrubReport, SealedLogs, Volume};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use crate::buckets;
use crate::progress::Far;
use crate::settings::StorageLimits;
use crate::wiring::Storage;

/// Between two background passes.
const PASS_PAUSE: Duration = Duration::from_secs(2);
/// Passes of one `compact` at most: each moves something, so this ends only a volume that is written to all the time.
const COMPACT_PASSES_MAX: usize = 1000;
/// Damaged things named by a scrub; more are counted.
const SHOWN_MAX: usize = 100;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Read and verify all data.
    Scrub,
    /// Give back all dead space now.
    Compact,
    /// Objects and bytes of every bucket.
    Du,
}

impl Work {
    /// How far it is; `None` while it does not run, or when it does not take long.
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

    /// Does it; `rate_max` in bytes per second holds a scrub back. The error is one line.
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
    let running = storage.scrubbed.begin(data + storage.engine.statistics().tree_file_bytes);
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
    // What is still in the log only cannot be given back.
    match storage.engine.checkpoint() {
        // On a full disk what lies in segments already is given back all the same.
        Err(error) if error.is_full() => {}
        done => done?,
    }
    // Somebody asked for the space now: the quarantine's time is cut, its walk is not.
    let budget =
        ReclaimBudget { seal_dead_bytes_min: 1, quarantine: Duration::ZERO, punch: true, ..ReclaimBudget::default() };
    let mut total = Reclaimed::default();
    let live: u64 = storage.volume.live_bytes()?.values().sum();
    let stored: u64 = storage.segments.segments().iter().map(|info| info.len).sum();
    let running = storage.compacted.begin(stored.saturating_sub(live));
    for _ in 0..COMPACT_PASSES_MAX {
        let done = storage.volume.reclaim_once(&budget, &SealedLogs)?;
        add(&mut total, &done);
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

fn add(total: &mut Reclaimed, done: &Reclaimed) {
    total.set_aside_segments += done.set_aside_segments;
    total.disputed_segments += done.disputed_segments;
    total.removed_segments += done.removed_segments;
    total.removed_bytes += done.removed_bytes;
    total.moved_runs += done.moved_runs;
    total.moved_bytes += done.moved_bytes;
    total.punched_bytes += done.punched_bytes;
    total.skipped_runs += done.skipped_runs;
    total.damaged_runs += done.damaged_runs;
}

/// What the background passes have done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passes {
    pub count: u64,
    pub failed: u64,
    pub total: Reclaimed,
}

/// The last check of all rows.
#[derive(Clone, Debug)]
pub struct Checked {
    pub at: Timestamp,
    pub report: FsckReport,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Mutex<bool>,
    changed: Condvar,
    passes: Mutex<Passes>,
    checked: Mutex<Option<Checked>>,
}

/// The background reclaimer; stops when dropped.
#[derive(Debug)]
pub struct Reclaimer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub fn start(env: &Env, volume: Arc<Volume>, limits: &StorageLimits) -> std::io::Result<Reclaimer> {
        let shared = Arc::new(Shared::default());
        let (inner, env, limits) = (Arc::clone(&shared), env.clone(), *limits);
        let body = move || reclaim_on(&inner, &env, &volume, &limits);
        let thread = std::thread::Builder::new().name("reclaim".to_owned()).spawn(body)?;
        Ok(Reclaimer { shared, thread: Some(thread) })
    }

    pub fn passes(&self) -> Passes {
        *self.shared.passes.lock()
    }

    pub fn last_check(&self) -> Option<Checked> {
        self.shared.checked.lock().clone()
    }

    /// For `margay status`.
    pub fn check_status(&self) -> Value {
        let Some(checked) = self.last_check() else { return json!({ "last": null }) };
        let shown: Vec<&String> = checked.report.shown.iter().map(|finding| &finding.what).collect();
        json!({
            "last_seconds": checked.at.seconds(),
            "findings": checked.report.findings.values().sum::<u64>(),
            "shown": shown,
        })
    }

    /// For `margay status`.
    pub fn quarantine_status(&self, segments: &Store) -> Value {
        let held = segments.quarantined();
        json!({
            "segments": held.len(),
            "bytes": held.iter().map(|held| held.used_bytes).sum::<u64>(),
            "disputed": segments.taken_back(),
        })
    }

    /// Ends after the pass that runs now.
    pub fn stop(&self) {
        *self.shared.stop.lock() = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Checks all rows beside the requests and tells of what does not fit.
fn check(shared: &Shared, env: &Env, volume: &Volume) {
    match volume.check(SHOWN_MAX, &Arc::default()) {
        Ok(report) => {
            for finding in &report.shown {
                tracing::error!(kind = ?finding.kind, what = finding.what, "the check found something wrong");
            }
            tracing::info!(files = report.files, findings = report.findings.len(), "checked all rows");
            *shared.checked.lock() = Some(Checked { at: env.clock.now(), report });
        }
        Err(error) => tracing::error!(%error, "the check of all rows could not go on"),
    }
}

/// The same again: nothing was committed, and no write was refused for want of space.
fn quiet_mark(volume: &Volume) -> (Seq, u64) {
    (volume.engine().last_seq(), volume.refused())
}

fn reclaim_on(shared: &Shared, env: &Env, volume: &Volume, limits: &StorageLimits) {
    let budget = ReclaimBudget {
        move_bytes_max: limits.reclaim_rate_max.saturating_mul(PASS_PAUSE.as_secs()),
        quarantine: limits.quarantine_time,
        ..ReclaimBudget::default()
    };
    let mut settled_at = None;
    // The first one soon: a server that is restarted every night is checked too.
    let mut check_at = env.clock.monotonic() + limits.check_interval / 24;
    loop {
        {
            let mut stop = shared.stop.lock();
            if !*stop {
                shared.changed.wait_for(&mut stop, PASS_PAUSE);
            }
            if *stop {
                return;
            }
        }
        if env.clock.monotonic() >= check_at {
            check(shared, env, volume);
            check_at = env.clock.monotonic() + limits.check_interval;
        }
        let settled = settled_at == Some(quiet_mark(volume));
        if settled && volume.store().quarantined().is_empty() {
            continue;
        }
        let began = env.clock.monotonic();
        let outcome =
            if settled { volume.release_quarantined(&budget) } else { volume.reclaim_once(&budget, &SealedLogs) };
        let mut passes = shared.passes.lock();
        passes.count += 1;
        match outcome {
            Ok(done) => {
                add(&mut passes.total, &done);
                let moved = done.moved_runs + done.set_aside_segments + done.removed_segments + done.punched_bytes;
                // The pass itself commits: quiet means that it found nothing and nobody else wrote.
                settled_at = (moved == 0).then(|| quiet_mark(volume));
                if moved > 0 {
                    let took_ms = u64::try_from((env.clock.monotonic() - began).as_millis()).unwrap_or(u64::MAX);
                    tracing::debug!(?done, took_ms, "reclaim pass");
                }
            }
            Err(error) => {
                passes.failed += 1;
                tracing::warn!(%error, "reclaim pass failed, the next one tries again");
            }
        }
    }
}
