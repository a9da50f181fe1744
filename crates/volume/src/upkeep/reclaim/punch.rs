//! Punches holes for dead bytes in packs and logs that are not rewritten.
//!
//! Why:        on a full disk nothing can be copied, but a hole needs no space. All segments are considered, however
//!             much of them is live, when the disk is full or when an operator requests a full compaction.
//! Invariants: U1 a run is punched if it has no back row, read durably after its segment was settled, and if a walk
//!                over all rows of a snapshot does not find it either.
//!             U2 a segment is considered again only after it has lost bytes.
//! Not here:   the holes and their last check (margay-segment).

use std::collections::BTreeSet;

use margay_segment::{Kind, Run, SegmentId};

use super::gather::{Named, NamedRuns};
use super::{LiveBytes, LiveTable, LogRelease, ReclaimBudget, Reclaimed};
use crate::api::Error;
use crate::draft::Seen;
use crate::open::Volume;
use crate::rests::Punched;

/// Segments that have lost fewer bytes since they were last examined wait.
const DEAD_BYTES_MIN: i64 = 4096;

impl Volume {
    /// Whether a write was refused for lack of space since segments were last punched.
    pub(super) fn was_refused(&self) -> bool {
        self.refused() != self.punched.lock().refused
    }

    /// Does nothing unless requested, or unless a write was refused for lack of space since the last time.
    pub(super) fn punch_dead(
        &self,
        budget: &ReclaimBudget,
        logs: &dyn LogRelease,
        done: &mut Reclaimed,
    ) -> Result<(), Error> {
        let mut punched = self.punched.lock();
        let refused = self.refused();
        if refused == punched.refused && !budget.punch {
            return Ok(());
        }
        punched.refused = refused;
        let mut seen = Seen::default();
        let before = self.live_table_at(&mut seen)?;
        let candidates = self.with_dead_bytes(logs, &before, &mut punched);
        if candidates.is_empty() {
            return Ok(());
        }
        tracing::info!(segments = candidates.len(), "giving back dead parts of segments in place");
        // First settled, then the back rows: as for removal.
        let settled = self.settled_segments(logs);
        let runs = self.named_runs(&candidates)?;
        let dead_at = self.engine.last_cursor().max(seen.cursor);
        self.engine.wait_durable(dead_at)?;
        if self.stores.processes.oldest_reader()? < dead_at {
            // Another process may be reading dead parts, which a hole would destroy.
            return Ok(());
        }
        let walk = self.walk_named_runs(&runs)?;
        for info in settled.iter().filter(|info| candidates.contains(&info.id)) {
            if of_segment(&runs, info.id).any(|named| named.run.len == 0) {
                // This back row does not decode, so the length of its run is unknown.
                continue;
            }
            let is_live = |run: &Run| runs.contains_key(&(run.segment, run.offset));
            let counted = before.get(&info.id).copied().unwrap_or_default();
            match self.store.punch(info.id, &is_live, &walk) {
                Ok(given) => {
                    done.punched_bytes += given.bytes;
                    // Otherwise a reader pinned it: a later pass tries again.
                    if given.complete {
                        punched.lost.insert(info.id, counted.lost);
                    }
                }
                // A backup is made.
                Err(error) => tracing::debug!(segment = ?info.id, %error, "dead parts stay"),
            }
        }
        Ok(())
    }

    /// Settled segments that have lost bytes since they were punched.
    fn with_dead_bytes(&self, logs: &dyn LogRelease, table: &LiveTable, punched: &mut Punched) -> BTreeSet<SegmentId> {
        punched.lost.retain(|segment, _| table.contains_key(segment));
        let settled = self.settled_segments(logs).into_iter().filter(|info| info.kind != Kind::Raw);
        let dead = |segment: &SegmentId| {
            let LiveBytes { lost, .. } = table.get(segment).copied().unwrap_or_default();
            lost - punched.lost.get(segment).copied().unwrap_or_default()
        };
        settled.map(|info| info.id).filter(|segment| dead(segment) >= DEAD_BYTES_MIN).collect()
    }
}

fn of_segment(runs: &NamedRuns, id: SegmentId) -> impl Iterator<Item = &Named> {
    runs.range((id, 0)..=(id, u64::MAX)).map(|(_, named)| named)
}
