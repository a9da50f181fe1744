//! Dead segments: set aside when the counters say so, removed when a walk says so too and their time is over.
//!
//! Why:        the counters were wrong once and live files were unlinked. A segment that is only renamed can be taken back.
//! Invariants: Z1 nothing leaves unless both proofs agree; where they differ the segment is taken back and that is told.
//!             Z2 on a short disk the time is cut, never the walk.
//! Not here:   the renaming and the check itself (margay-segment), the walk (walk).

use std::time::Duration;

use margay_env::Timestamp;
use margay_segment::{Quarantined, SegmentError, SegmentId};

use super::{LogRelease, ReclaimBudget, Reclaimed};
use crate::api::Error;
use crate::open::Volume;
use crate::rests::Walks;
use crate::seen::Seen;

/// On a short disk a walk follows another one after so many times as long as that one took.
const WALK_PAUSE_FACTOR: u32 = 9;

impl Volume {
    /// Sets aside every segment whose counters are even.
    pub(super) fn set_dead_aside(&self, logs: &dyn LogRelease, done: &mut Reclaimed) -> Result<(), Error> {
        // The order matters: pins of uploads end after their commit, so a segment that is settled now has all its
        // owners in the counters read next.
        let settled = self.settled_segments(logs);
        let mut seen = Seen::default();
        let table = self.live_table_at(&mut seen)?;
        // Not before the commits of others that the table shows.
        let now = self.engine.last_cursor().max(seen.cursor);
        self.engine.wait_durable(now)?;
        let oldest = self.stores.processes.oldest_reader()?;
        for info in settled {
            let live = table.get(&info.id).copied().unwrap_or_default().live();
            if live < 0 {
                tracing::error!(segment = ?info.id, live, "a counter of live bytes is below zero: run margay fsck");
            }
            if live != 0 {
                self.segment_rows.is_named(info.id);
                continue;
            }
            if self.segment_rows.is_read(info.id, now, oldest) {
                continue;
            }
            match self.store.set_aside(info.id) {
                Ok(true) => done.set_aside_segments += 1,
                Ok(false) | Err(SegmentError::Missing(_)) => {}
                // A reader took hold of it, or the disk refused: another pass will see.
                Err(error) => tracing::debug!(segment = ?info.id, %error, "segment stays"),
            }
        }
        let exists = self.existing_segments();
        let mut gone: Vec<SegmentId> = table.keys().copied().filter(|segment| !exists.contains(segment)).collect();
        // Other stores look after their own.
        gone.retain(|segment| self.stores.is_own(*segment) && table[segment].live() == 0);
        self.forget_counters(&gone)
    }

    /// Those in quarantine included.
    fn existing_segments(&self) -> std::collections::HashSet<SegmentId> {
        // In this order, since a segment goes from the first list to the second.
        let mut exists: std::collections::HashSet<SegmentId> =
            self.store.list().into_iter().map(|info| info.id).collect();
        exists.extend(self.store.quarantined().into_iter().map(|held| held.id));
        exists
    }

    /// Removes what has been in quarantine for long enough and is proven dead a second time. Reads nothing while
    /// nothing is due.
    pub fn release_quarantined(&self, budget: &ReclaimBudget) -> Result<Reclaimed, Error> {
        let _alone = self.upkeep.lock();
        let mut done = Reclaimed::default();
        self.release_due(budget, &mut done)?;
        Ok(done)
    }

    pub(super) fn release_due(&self, budget: &ReclaimBudget, done: &mut Reclaimed) -> Result<(), Error> {
        let held = self.store.quarantined();
        let in_time: Vec<bool> = held.iter().map(|held| is_over(held, self.now(), budget.quarantine)).collect();
        let waits = in_time.contains(&true);
        let cut = !waits && !held.is_empty() && self.is_disk_short(budget)? && self.may_walk_early();
        if !waits && !cut {
            return Ok(());
        }
        let began = self.env.clock.monotonic();
        let refused = self.refused();
        let walk = self.walk_named_runs()?;
        let ended = self.env.clock.monotonic();
        *self.walks.lock() = Walks { next_at: ended + (ended - began) * WALK_PAUSE_FACTOR, refused };
        // Also those that are due when the disk is short.
        let cut = cut || self.is_disk_short(budget)?;
        let mut leaving = Vec::new();
        for (held, in_time) in held.iter().zip(in_time) {
            if walk.names(held.id) {
                tracing::error!(
                    segment = ?held.id,
                    "counters call a segment dead that rows name: it is kept, nothing is lost; run margay fsck"
                );
                self.store.take_back(held.id)?;
                done.disputed_segments += 1;
            } else if in_time || cut {
                leaving.push(held);
            }
        }
        self.record_removed(&leaving.iter().map(|held| held.id).collect::<Vec<_>>())?;
        let mut gone = Vec::new();
        for held in leaving {
            match self.store.release(held.id, &walk) {
                Ok(_) => {
                    done.removed_segments += 1;
                    done.removed_bytes += held.used_bytes;
                    gone.push(held.id);
                }
                Err(SegmentError::Missing(_)) => {}
                Err(error) => tracing::debug!(segment = ?held.id, %error, "segment stays in quarantine"),
            }
        }
        self.forget_counters(&gone)
    }

    fn is_disk_short(&self, budget: &ReclaimBudget) -> Result<bool, Error> {
        let space = self.store.space()?;
        let free = space.free_bytes.saturating_sub(space.reserve_bytes);
        Ok(free < space.total_bytes / 100 * budget.free_percent_min)
    }

    /// Walks one after the other would take a processor from others; but somebody was refused for want of space.
    fn may_walk_early(&self) -> bool {
        let walks = *self.walks.lock();
        self.refused() != walks.refused || self.env.clock.monotonic() >= walks.next_at
    }
}

fn is_over(held: &Quarantined, now: Timestamp, time: Duration) -> bool {
    let waited = now.0.saturating_sub(held.since.0);
    u64::try_from(waited).map_or(time.is_zero(), |waited| Duration::from_nanos(waited) >= time)
}
