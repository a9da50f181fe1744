//! Quarantine of dead segments: set aside when they have no back row, removed when a walk agrees and their time is
//! over.
//!
//! Why:        wrong accounting once unlinked live files. A segment that is only renamed can be restored.
//! Invariants: Z1 a segment is removed only if both proofs agree; if they differ it is restored, and that is reported.
//!             Z2 on a full disk the time is shortened, never the walk skipped.
//! Not here:   the renaming and the check itself (margay-segment), the walk (walk).

use std::collections::BTreeSet;
use std::time::Duration;

use margay_env::Timestamp;
use margay_meta::{Ask, ReadLimit};
use margay_rows::key;
use margay_segment::{Quarantined, SegmentError, SegmentId};

use super::gather::NamedRuns;
use super::{LogRelease, ReclaimBudget, Reclaimed};
use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;
use crate::rests::Walks;
use crate::sessions::Lease;

/// Segments checked in one call.
const SEGMENTS_PER_READ: usize = 256;
/// On a full disk the pause between two walks is this many times the duration of a walk.
const WALK_PAUSE_FACTOR: u32 = 9;

impl Volume {
    /// Sets aside every segment without back rows.
    pub(super) fn set_dead_aside(
        &self,
        logs: &dyn LogRelease,
        lease: &Lease,
        done: &mut Reclaimed,
    ) -> Result<(), Error> {
        // The order matters: an upload's pin ends after its commit, so all owners in a segment that is settled now are
        // in the rows read next.
        let settled: Vec<SegmentId> = self.settled_segments(logs).into_iter().map(|info| info.id).collect();
        // A process that lives now may make a row refer to a segment again after the look, and be declared dead then.
        let oldest_before = self.stores.processes.oldest_reader()?;
        let mut seen = Seen::default();
        let unnamed = self.unnamed(&settled, &mut seen)?;
        // No older than the commits of other processes that the answers include.
        let now = self.engine.last_cursor().max(seen.cursor);
        self.engine.wait_durable(now)?;
        let oldest = self.stores.processes.oldest_reader()?.min(oldest_before);
        for segment in settled {
            if !unnamed.contains(&segment) {
                self.segment_rows.is_named(segment);
                continue;
            }
            if self.segment_rows.is_read(segment, now, oldest) {
                continue;
            }
            match self.store.set_aside(segment) {
                Ok(true) => done.set_aside_segments += 1,
                Ok(false) | Err(SegmentError::Missing(_)) => {}
                // A reader has pinned it, or the disk refused: another pass tries again.
                Err(error) => tracing::debug!(?segment, %error, "segment stays"),
            }
        }
        // Counters first: a segment that begins in between has none among them.
        let mut gone: Vec<SegmentId> = self.live_table()?.into_keys().collect();
        let exists = self.existing_segments();
        // Other stores remove their own.
        gone.retain(|segment| self.stores.is_own(*segment) && !exists.contains(segment));
        let gone: Vec<SegmentId> = self.unnamed(&gone, &mut seen)?.into_iter().collect();
        self.forget_counters(&gone, lease)
    }

    /// Those of these segments that have no back row: one ask each, many in one call.
    pub(super) fn unnamed(&self, segments: &[SegmentId], seen: &mut Seen) -> Result<BTreeSet<SegmentId>, Error> {
        let mut unnamed = BTreeSet::new();
        for some in segments.chunks(SEGMENTS_PER_READ) {
            let ask = |segment: &SegmentId| {
                let (start, end) = key::backs_of_segment(*segment);
                Ask::Scan { start, end, rows_max: 1, keys_only: true }
            };
            let asks: Vec<Ask> = some.iter().map(ask).collect();
            let answers = self.read_here(&asks, ReadLimit::default(), seen)?;
            assert_eq!(answers.len(), some.len(), "a read answers each question");
            for (segment, answer) in some.iter().zip(answers) {
                let rows = answer.rows();
                if rows.is_empty() && !rows.more {
                    unnamed.insert(*segment);
                }
            }
        }
        Ok(unnamed)
    }

    /// Including those in quarantine.
    fn existing_segments(&self) -> std::collections::HashSet<SegmentId> {
        // In this order, since a segment moves from the first list to the second.
        let mut exists: std::collections::HashSet<SegmentId> =
            self.store.list().into_iter().map(|info| info.id).collect();
        exists.extend(self.store.quarantined().into_iter().map(|held| held.id));
        exists
    }

    /// Removes segments that were in quarantine long enough and are proven dead a second time. Reads nothing while none
    /// is due.
    pub fn release_quarantined(&self, budget: &ReclaimBudget) -> Result<Reclaimed, Error> {
        let _alone = self.upkeep.lock();
        let mut done = Reclaimed::default();
        let Some(lease) = self.reclaim_lease()? else { return Ok(done) };
        self.release_due(budget, &lease, &mut done)?;
        Ok(done)
    }

    pub(super) fn release_due(&self, budget: &ReclaimBudget, lease: &Lease, done: &mut Reclaimed) -> Result<(), Error> {
        let held = self.store.quarantined();
        let in_time: Vec<bool> = held.iter().map(|held| is_over(held, self.now(), budget.quarantine)).collect();
        let waits = in_time.contains(&true);
        let cut = !waits && !held.is_empty() && self.is_disk_short(budget)? && self.may_walk_early();
        if !waits && !cut {
            return Ok(());
        }
        let began = self.env.clock.monotonic();
        let refused = self.refused();
        let walk = self.walk_named_runs(&NamedRuns::new())?;
        let ended = self.env.clock.monotonic();
        *self.walks.lock() = Walks { next_at: ended + (ended - began) * WALK_PAUSE_FACTOR, refused };
        // Also those that are due because the disk is nearly full.
        let cut = cut || self.is_disk_short(budget)?;
        let mut leaving = Vec::new();
        for (held, in_time) in held.iter().zip(in_time) {
            if walk.names(held.id) {
                tracing::error!(
                    segment = ?held.id,
                    "no back row leads from a segment that rows name: it is kept, nothing is lost; run margay fsck"
                );
                self.store.take_back(held.id)?;
                done.disputed_segments += 1;
            } else if in_time || cut {
                leaving.push(held);
            }
        }
        self.record_removed(&leaving.iter().map(|held| held.id).collect::<Vec<_>>(), lease)?;
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
        self.forget_counters(&gone, lease)
    }

    fn is_disk_short(&self, budget: &ReclaimBudget) -> Result<bool, Error> {
        let space = self.store.space()?;
        let free = space.free_bytes.saturating_sub(space.reserve_bytes);
        Ok(free < space.total_bytes / 100 * budget.free_percent_min)
    }

    /// Consecutive walks would take processor time from others, except when a write was refused for lack of space.
    fn may_walk_early(&self) -> bool {
        let walks = *self.walks.lock();
        self.refused() != walks.refused || self.env.clock.monotonic() >= walks.next_at
    }
}

fn is_over(held: &Quarantined, now: Timestamp, time: Duration) -> bool {
    let waited = now.0.saturating_sub(held.since.0);
    u64::try_from(waited).map_or(time.is_zero(), |waited| Duration::from_nanos(waited) >= time)
}
