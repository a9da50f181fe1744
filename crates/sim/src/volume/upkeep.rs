//! Checkpoints, passes of reclaim and checks of all rows between the operations of clients.
//!
//! Invariants: the two proofs before bytes leave never differ; a check finds nothing, however much is under way.
//! Not here:   expiry (short_lived).

use std::sync::Arc;
use std::time::Duration;

use margay_env::sim::SimRandom;
use margay_meta::Engine;
use margay_meta::embedded::EmbeddedEngine;
use margay_volume::{ReclaimBudget, SealedLogs, Volume};

use super::yield_once;
use crate::machine::Fault;
use crate::{Failure, fail};

const ROUNDS: u64 = 20;
const CHECK_PERCENT: u64 = 15;

/// How much one pass may do: half of them everything.
pub(crate) fn any_budget(random: &SimRandom) -> ReclaimBudget {
    let some = ReclaimBudget {
        move_bytes_max: random.below(200_000),
        live_percent_min: random.below(100),
        seal_dead_bytes_min: random.below(20_000),
        quarantine: Duration::from_secs(random.below(2)),
        free_percent_min: random.below(100),
        punch: random.below(2) == 0,
    };
    let all = ReclaimBudget { move_bytes_max: u64::MAX, live_percent_min: 1_000_000, seal_dead_bytes_min: 0, ..some };
    if random.chance(50) { all } else { some }
}

/// One pass; the error is in words.
pub(crate) fn reclaim(volume: &Volume, budget: &ReclaimBudget) -> Result<(), String> {
    let done = volume.reclaim_once(budget, &SealedLogs).map_err(|error| error.to_string())?;
    if (done.damaged_runs, done.disputed_segments) == (0, 0) { Ok(()) } else { Err(format!("{done:?}")) }
}

/// The check that a running server makes; the error is in words.
pub(crate) fn check_beside(volume: &Volume) -> Result<(), String> {
    let report = volume.check(5, &Arc::default()).map_err(|error| error.to_string())?;
    if report.clean() { Ok(()) } else { Err(format!("{:?}", report.shown)) }
}

pub(super) struct Upkeep<'a> {
    pub(super) volume: &'a Volume,
    pub(super) engine: &'a EmbeddedEngine,
    pub(super) fault: Fault,
    pub(super) stopped: &'a dyn Fn() -> bool,
}

impl Upkeep<'_> {
    pub(super) async fn now_and_then(self, random: SimRandom) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            for _ in 0..random.below(30) {
                yield_once().await;
            }
            let (folds, checks, budget) = (random.chance(30), random.chance(CHECK_PERCENT), any_budget(&random));
            let folded = if folds { self.engine.checkpoint().map_err(|error| error.to_string()) } else { Ok(()) };
            self.judge("checkpoint", folded)?;
            self.judge("reclaim", reclaim(self.volume, &budget))?;
            if checks {
                self.judge("check", check_beside(self.volume))?;
            }
        }
        Ok(())
    }

    fn judge(&self, what: &str, done: Result<(), String>) -> Result<(), Failure> {
        match done {
            // What a machine that stops meanwhile finds says nothing.
            Err(error) if !self.fault.explains(&error) && !(self.stopped)() => fail!("{what}: {error}"),
            _ => Ok(()),
        }
    }
}
