//! Pruning: removes old moments, then the copies of segments that no remaining moment refers to.
//!
//! Invariants: P1 before anything is removed, the references of every remaining moment were read; if one is unreadable,
//!                nothing is removed.
//!             P2 a moment loses its name, durably, before a segment that it refers to is removed. So after a crash
//!                every existing moment is complete, and the next pruning continues.
//!             P3 the lock excludes a running backup.
//! Not here:   how many are kept (the caller).

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;

use margay_env::{Env, LockHandle};
use margay_segment::{SegmentId, segment_of_name};

use super::list::named_segments;
use super::{BackupError, LOCK, MOMENTS, SEGMENTS, UNFINISHED, failed, moments};
use crate::api::Error;

/// What a pruning removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Removed moments, oldest first.
    pub moments: Vec<String>,
    /// Remaining moments.
    pub kept: usize,
    /// Removed copies of segments.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Excludes other changes of the backup while it lives.
pub(super) fn lock(env: &Env, backup: &Path) -> Result<Box<dyn LockHandle>, BackupError> {
    env.disk.lock(&backup.join(LOCK)).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => BackupError::InUse,
        _ => failed(error).into(),
    })
}

/// Removes all moments except the newest `keep`, leftovers of unfinished ones, and unreferenced copies. With `dry` it
/// only reports.
pub fn prune(env: &Env, backup: &Path, keep: NonZeroUsize, dry: bool) -> Result<Pruned, BackupError> {
    let folder = backup.join(MOMENTS);
    // A location without a backup gets no lock file.
    if moments(env, backup)?.is_empty() {
        return Ok(Pruned::default());
    }
    let _lock = lock(env, backup)?;
    prune_locked(env, backup, &folder, keep, dry)
}

/// As `prune`; the caller holds the lock.
pub(super) fn prune_locked(
    env: &Env,
    backup: &Path,
    folder: &Path,
    keep: NonZeroUsize,
    dry: bool,
) -> Result<Pruned, BackupError> {
    let mut gone = moments(env, backup)?;
    let kept = gone.split_off(gone.len().saturating_sub(keep.get()));
    let mut named: BTreeSet<SegmentId> = BTreeSet::new();
    for moment in &kept {
        let ends = named_segments(env, backup, moment)
            .map_err(|error| BackupError::Unreadable { moment: moment.clone(), error })?;
        named.extend(ends.into_keys());
    }
    let mut pruned = Pruned { moments: gone, kept: kept.len(), ..Pruned::default() };
    if !dry && !pruned.moments.is_empty() {
        for moment in &pruned.moments {
            let unfinished = folder.join(format!("{moment}{UNFINISHED}"));
            env.disk.rename(&folder.join(moment), &unfinished).map_err(failed)?;
        }
        env.disk.sync_dir(folder).map_err(failed)?;
    }
    let segments = backup.join(SEGMENTS);
    for entry in env.disk.list(&segments).map_err(failed)? {
        if segment_of_name(&entry.name).is_some_and(|(segment, _)| !named.contains(&segment)) {
            pruned.segments += 1;
            pruned.bytes += entry.len;
            if !dry {
                env.disk.remove(&segments.join(&entry.name)).map_err(failed)?;
            }
        }
    }
    if !dry {
        env.disk.sync_dir(&segments).map_err(failed)?;
        remove_unfinished(env, folder)?;
    }
    Ok(pruned)
}

fn remove_unfinished(env: &Env, folder: &Path) -> Result<(), Error> {
    for entry in env.disk.list(folder).map_err(failed)? {
        if !entry.is_dir || !entry.name.ends_with(UNFINISHED) {
            continue;
        }
        let unfinished = folder.join(&entry.name);
        for file in env.disk.list(&unfinished).map_err(failed)? {
            env.disk.remove(&unfinished.join(&file.name)).map_err(failed)?;
        }
        env.disk.remove_dir(&unfinished).map_err(failed)?;
    }
    env.disk.sync_dir(folder).map_err(failed)
}
