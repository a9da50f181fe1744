//! The end of a seed: when everything is removed, no space stays behind.
//!
//! Invariants: after the last removal, a checkpoint and reclaim, no segment is left that takes no more data, and
//!             the live counters are even. At no time a segment is taken back from the quarantine.

use std::time::Duration;

use margay_env::Env;
use margay_meta::Engine;
use margay_volume::{FsckOptions, ReclaimBudget, SealedLogs, Volume};

use super::{block_on, short_lived};
use crate::target::Target;
use crate::{Failure, fail};

/// Passes of reclaim, with a checkpoint before each; few are needed, but a busy machine may not run the checkpointer
/// for a second.
const PASSES_MAX: usize = 500;

pub(crate) fn none_is_lost<T: Target>(volume: &Volume, engine: &dyn Engine, target: &T) -> Result<(), Failure> {
    block_on(remove_all(target)).map_err(|trouble| Failure(format!("cannot remove everything: {trouble}")))?;
    block_on(short_lived::end_all(volume)).map_err(|error| Failure(format!("cannot end what is due: {error}")))?;
    let budget = ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
    let mut left = Vec::new();
    for _ in 0..PASSES_MAX {
        engine.checkpoint().map_err(|error| Failure(format!("checkpoint: {error}")))?;
        volume.reclaim_once(&budget, &SealedLogs).map_err(|error| Failure(format!("reclaim: {error}")))?;
        // Looked at once: the checkpointer seals its last log a little later, and removes it again a little later.
        left = volume.store().list().into_iter().filter(|info| !info.open).collect();
        if left.is_empty() {
            break;
        }
        Env::real().clock.sleep(Duration::from_millis(10));
    }
    let report = volume.fsck(FsckOptions::default()).map_err(|error| Failure(format!("fsck: {error}")))?;
    if !left.is_empty() {
        let live = volume.live_bytes().map_err(|error| Failure(format!("live bytes: {error}")))?;
        fail!("everything was removed, and {left:?} stay, {live:?} live, fsck: {report:?}");
    }
    let rest = (report.files, report.parts, report.uploads, report.orphans, report.live_bytes);
    if !report.clean() || rest != (0, 0, 0, 0, 0) {
        fail!("everything was removed, and fsck says {report:?}");
    }
    none_was_taken_back(volume)
}

/// Nothing that reclaim set aside was asked for later.
pub(crate) fn none_was_taken_back(volume: &Volume) -> Result<(), Failure> {
    match volume.store().taken_back() {
        0 => Ok(()),
        segments => fail!("{segments} segments were taken back from the quarantine"),
    }
}

async fn remove_all<T: Target>(target: &T) -> Result<(), crate::target::Trouble> {
    for (key, id) in target.uploads().await? {
        target.abort(&key, &id).await?;
    }
    for (key, _) in target.list("").await? {
        target.delete(&key).await?;
    }
    Ok(())
}
