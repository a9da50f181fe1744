//! Reclaim in the background, and the daily check of all rows.
//!
//! Invariants: N1 the background pass moves at most the configured bytes per second, and pauses while nothing is
//!                committed and all copies are where the rows say.
//!             N2 the check of all rows runs once per interval; its findings go to the log, `status` and metrics.
//! Not here:   how reclaim works (margay-volume), reclaim that an operator requests (the binary's works).

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use margay_env::{Env, Timestamp};
use margay_meta::Cursor;
use margay_segment::Store;
use margay_volume::{FsckReport, ReclaimBudget, Reclaimed, SealedLogs, Volume};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

/// Pause between two background passes.
const PASS_PAUSE: Duration = Duration::from_secs(2);
/// Findings of a check that are listed; further ones are counted.
const SHOWN_MAX: usize = 100;

/// Limits of background reclaim; see the settings of the same names.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimLimits {
    /// Bytes moved per second.
    pub rate_max: u64,
    /// How long a dead segment stays in quarantine before its file is removed.
    pub quarantine: Duration,
    /// Between two checks of all rows.
    pub check_every: Duration,
}

/// Totals of the background passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passes {
    pub count: u64,
    pub failed: u64,
    pub total: Reclaimed,
}

/// Result of the last check of all rows.
#[derive(Clone, Debug)]
pub struct LastCheck {
    pub at: Timestamp,
    pub report: FsckReport,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Mutex<bool>,
    changed: Condvar,
    passes: Mutex<Passes>,
    checked: Mutex<Option<LastCheck>>,
}

/// The background reclaimer; stops when dropped.
#[derive(Debug)]
pub struct Reclaimer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub fn start(env: &Env, volume: Arc<Volume>, limits: ReclaimLimits) -> std::io::Result<Reclaimer> {
        let shared = Arc::new(Shared::default());
        let (inner, env, limits) = (Arc::clone(&shared), env.clone(), limits);
        let body = move || reclaim_on(&inner, &env, &volume, &limits);
        let thread = std::thread::Builder::new().name("reclaim".to_owned()).spawn(body)?;
        Ok(Reclaimer { shared, thread: Some(thread) })
    }

    pub fn passes(&self) -> Passes {
        *self.shared.passes.lock()
    }

    pub fn last_check(&self) -> Option<LastCheck> {
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

    /// Ends after the current pass.
    pub fn stop(&self) {
        *self.shared.stop.lock() = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // The panic was already reported.
            let _ = thread.join();
        }
    }
}

/// Checks all rows beside the requests and reports inconsistencies.
fn check(shared: &Shared, env: &Env, volume: &Volume) {
    match volume.check(SHOWN_MAX, &Arc::default()) {
        Ok(report) => {
            for finding in &report.shown {
                tracing::error!(kind = ?finding.kind, what = finding.what, "the check found something wrong");
            }
            tracing::info!(files = report.files, findings = report.findings.len(), "checked all rows");
            *shared.checked.lock() = Some(LastCheck { at: env.clock.now(), report });
        }
        Err(error) => tracing::error!(%error, "the check of all rows could not go on"),
    }
}

/// Equal marks mean: nothing was committed in between, and no write was refused for lack of space.
fn quiet_mark(volume: &Volume) -> (Cursor, u64) {
    (volume.engine().last_cursor(), volume.refused())
}

fn reclaim_on(shared: &Shared, env: &Env, volume: &Volume, limits: &ReclaimLimits) {
    let budget = ReclaimBudget {
        move_bytes_max: limits.rate_max.saturating_mul(PASS_PAUSE.as_secs()),
        quarantine: limits.quarantine,
        ..ReclaimBudget::default()
    };
    let mut settled_at = None;
    // The first check comes early: a server that restarts every night is checked too.
    let mut check_at = env.clock.monotonic() + limits.check_every / 24;
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
            check_at = env.clock.monotonic() + limits.check_every;
        }
        let settled = settled_at
            .is_some_and(|(cursor, refused)| volume.engine().unchanged_since(cursor) && volume.refused() == refused)
            && !volume.has_stale_rows();
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
                passes.total.add(&done);
                let moved = done.moved_runs + done.set_aside_segments + done.removed_segments + done.punched_bytes;
                // The pass itself commits. Quiet means that it found nothing and nobody else wrote.
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
