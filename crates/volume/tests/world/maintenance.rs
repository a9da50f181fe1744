//! Reclaim at its most aggressive and the check of a running server, beside whatever a test does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use margay_meta::Engine;
use margay_volume::{ReclaimBudget, Reclaimed, SealedLogs, Volume};

/// Everything is sealed, everything that is named moves, everything else goes.
pub const ALL: ReclaimBudget = ReclaimBudget {
    move_bytes_max: u64::MAX,
    live_percent_min: 1_000_000,
    seal_dead_bytes_min: 0,
    quarantine: Duration::ZERO,
    free_percent_min: 0,
    punch: true,
};

/// What reclaim did in all cases of a test.
#[derive(Debug, Default)]
pub struct Maintained {
    passes: AtomicU64,
    moved: AtomicU64,
    removed: AtomicU64,
}

impl Maintained {
    pub const fn new() -> Maintained {
        Maintained { passes: AtomicU64::new(0), moved: AtomicU64::new(0), removed: AtomicU64::new(0) }
    }

    /// A checkpoint, so that logs are let go, and two passes: what the first one moved is gone after the second. Then a check.
    pub fn pass(&self, volume: &Volume, engine: &dyn Engine) {
        engine.checkpoint().unwrap();
        for _ in 0..2 {
            let done = volume.reclaim_once(&ALL, &SealedLogs).unwrap();
            self.count(&done);
        }
        self.check(volume);
    }

    /// The check of all rows that a running server makes, beside whatever is under way.
    pub fn check(&self, volume: &Volume) {
        let report = volume.check(5, &Arc::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }

    /// The same where the power may go any time: a disk that is gone cannot be read.
    pub fn check_until_crash(&self, volume: &Volume) {
        if let Ok(report) = volume.check(5, &Arc::default()) {
            let gone = report.shown.iter().any(|finding| finding.what.contains("simulated machine has stopped"));
            assert!(report.clean() || gone, "{report:#?}");
        }
    }

    /// The two proofs before bytes leave never differ.
    pub fn count(&self, done: &Reclaimed) {
        assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
        self.passes.fetch_add(1, Ordering::Relaxed);
        self.moved.fetch_add(done.moved_runs, Ordering::Relaxed);
        self.removed.fetch_add(done.removed_segments, Ordering::Relaxed);
    }

    /// Passes until `done`.
    pub fn beside(&self, volume: &Volume, engine: &dyn Engine, done: &AtomicBool) {
        while !done.load(Ordering::Acquire) {
            self.pass(volume, engine);
        }
    }

    /// A test in which reclaim had nothing to do shows nothing.
    pub fn told(&self, test: &str) {
        let [passes, moved, removed] =
            [&self.passes, &self.moved, &self.removed].map(|count| count.load(Ordering::Relaxed));
        println!("evidence: {test}: {passes} passes of reclaim moved {moved} runs and removed {removed} segments");
        assert!(moved > 0 && removed > 0, "{test}: {self:?}");
    }
}
