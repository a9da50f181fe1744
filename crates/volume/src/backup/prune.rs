//! Pruning: old moments go, then the copies that no remaining moment names.
//!
//! Invariants: P1 before anything goes, what every remaining moment names has been read; if one cannot be read, nothing goes.
//!             P2 a moment loses its name, durably, before a copy that it names goes: whatever a crash leaves, each
//!                moment that is there is whole, and the next pruning goes on.
//!             P3 one work at a time: a backup that runs has the lock.
//! Not here:   how many are kept (the caller).

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;

use margay_env::{Env, LockHandle};
use margay_segment::{SegmentId, segment_of_name};

use super::list::named_segments;
use super::{BackupError, LOCK, MOMENTS, SEGMENTS, UNFINISHED, failed, moments};
use crate::api::Error;

/// What a pruning removed, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Moments that went, oldest first.
    pub moments: Vec<String>,
    /// Moments that are left.
    pub kept: usize,
    /// Copies of segments that went.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Keeps others from changing the backup as long as it lives.
pub(super) fn lock(env: &Env, backup: &Path) -> Result<Box<dyn LockHandle>, BackupError> {
    env.disk.lock(&backup.join(LOCK)).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => BackupError::InUse,
        _ => failed(error).into(),
    })
}

/// Removes all moments but the newest `keep`, what is left of unfinished ones, and what no remaining moment names. Only
/// tells what would go when `dry`.
pub fn prune(env: &Env, backup: &Path, keep: NonZeroUsize, dry: bool) -> Result<Pruned, BackupError> {
    let folder = backup.join(MOMENTS);
    // A place that holds no backup gets no lock file either.
    if moments(env, backup)?.is_empty() {
        return Ok(Pruned::default());
    }
    let _lock = lock(env, backup)?;
    prune_locked(env, backup, &folder, keep, dry)
}

/// As `prune`, by one who has the lock.
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
