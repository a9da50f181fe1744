//! Refuses data writes before the disk is really full.
//!
//! Why:        deletes, the log and checkpoints must work on a full disk, so data writes stop at a reserve.
//! Invariants: P1 bytes that were granted but not written yet count as used.
//! Locking:    one short mutex; the file system is queried under it at most every [`REFRESH_AFTER`] or
//!             [`REFRESH_BYTES`] written, and once more before a refusal.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use margay_env::{Env, Space};
use parking_lot::Mutex;

use crate::SegmentError;

/// Maximum age of the file system's answer.
const REFRESH_AFTER: Duration = Duration::from_millis(100);
/// Maximum bytes written before the file system is queried again.
const REFRESH_BYTES: u64 = 16 << 20;
/// Between two lines in the log that say that writes are refused.
const TOLD_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct SpaceGate {
    env: Env,
    folder: PathBuf,
    reserve_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free_bytes: u64,
    asked_at: Option<Duration>,
    /// Written since the file system was asked.
    written_since: u64,
    /// Granted and not written yet.
    granted: u64,
    /// Refused since the start.
    refused: u64,
    /// When the log was told last.
    told_at: Option<Duration>,
}

/// Space promised to a writer; what is left of it returns on drop.
#[derive(Debug)]
pub(crate) struct Grant {
    gate: Arc<SpaceGate>,
    left: u64,
}

impl SpaceGate {
    pub(crate) fn new(env: Env, folder: PathBuf, reserve_bytes: u64) -> Arc<SpaceGate> {
        Arc::new(SpaceGate { env, folder, reserve_bytes, state: Mutex::default() })
    }

    pub(crate) fn grant(self: &Arc<SpaceGate>, bytes: u64) -> Result<Grant, SegmentError> {
        let mut state = self.state.lock();
        let now = self.env.clock.monotonic();
        let stale = state.asked_at.is_none_or(|at| now.saturating_sub(at) >= REFRESH_AFTER);
        if stale || state.written_since >= REFRESH_BYTES {
            self.ask(&mut state, now)?;
        }
        if !self.fits(&state, bytes) {
            self.ask(&mut state, now)?;
            if !self.fits(&state, bytes) {
                state.refused += 1;
                self.tell(&mut state, bytes, now);
                return Err(SegmentError::Full);
            }
        }
        state.granted += bytes;
        Ok(Grant { gate: Arc::clone(self), left: bytes })
    }

    /// How often bytes were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.state.lock().refused
    }

    /// What the file system says now.
    pub(crate) fn now(&self) -> Result<Space, SegmentError> {
        Ok(self.env.disk.space(&self.folder)?)
    }

    /// Bytes that a write could be granted now.
    pub(crate) fn available(&self) -> Result<u64, SegmentError> {
        let mut state = self.state.lock();
        let now = self.env.clock.monotonic();
        self.ask(&mut state, now)?;
        Ok(state.free_bytes.saturating_sub(state.granted).saturating_sub(self.reserve_bytes))
    }

    fn ask(&self, state: &mut State, now: Duration) -> Result<(), SegmentError> {
        state.free_bytes = self.env.disk.space(&self.folder)?.free_bytes;
        state.asked_at = Some(now);
        state.written_since = 0;
        Ok(())
    }

    fn tell(&self, state: &mut State, bytes: u64, now: Duration) {
        if state.told_at.is_some_and(|told| now.saturating_sub(told) < TOLD_EVERY) {
            return;
        }
        state.told_at = Some(now);
        tracing::warn!(
            folder = %self.folder.display(),
            bytes,
            free_bytes = state.free_bytes,
            reserve_bytes = self.reserve_bytes,
            refused = state.refused,
            "the disk is full, so a write is refused: free room, delete objects, or add a disk"
        );
    }

    fn fits(&self, state: &State, bytes: u64) -> bool {
        let used = state.written_since.saturating_add(state.granted).saturating_add(bytes);
        state.free_bytes.checked_sub(used).is_some_and(|left| left >= self.reserve_bytes)
    }
}

impl Grant {
    /// Bytes of it that are not in files yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Notes that bytes of the grant are now in files.
    pub(crate) fn spend(&mut self, bytes: u64) {
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        let mut state = self.gate.state.lock();
        state.granted -= bytes;
        state.written_since += bytes;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.gate.state.lock().granted -= self.left;
    }
}
