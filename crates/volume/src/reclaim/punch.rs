//! Giving back dead bytes inside packs and logs that are not rewritten.
//!
//! Why:        on a full disk nothing can be copied, but holes cost nothing. Segments are looked at however much of them
//!             lives, since every byte counts then, and when somebody asks for all dead space.
//! Invariants: U1 a segment is punched only when the runs that are known to be live add up to its live bytes, and
//!                those did not change during the scan: then no live run is missing from the list. And only where a
//!                walk over all rows of a snapshot does not find a run either.
//!             U2 a segment is looked at again only after it has lost bytes since.
//! Not here:   the holes and their last check (margay-segment).

use std::collections::HashSet;

use margay_segment::{Kind, Run, SegmentId};

use super::gather::NamedRuns;
use super::{LiveBytes, LiveTable, LogRelease, ReclaimBudget, Reclaimed};
use crate::api::Error;
use crate::open::Volume;
use crate::rests::Punched;
use crate::seen::Seen;

/// Segments that lost fewer bytes since they were last looked at wait.
const DEAD_BYTES_MIN: i64 = 4096;

impl Volume {
    /// Whether a write was refused for want of space since segments were last punched.
    pub(super) fn was_refused(&self) -> bool {
        self.refused() != self.punched.lock().refused
    }

    /// Does nothing unless it was asked for, or a write was refused for want of space since the last time.
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
        let dead_at = self.engine.last_cursor().max(seen.cursor);
        if self.stores.processes.oldest_reader()? < dead_at {
            // Another process may read what is dead here, and holes would come under its reads.
            return Ok(());
        }
        tracing::info!(segments = candidates.len(), "giving back dead parts of segments in place");
        let runs = self.named_runs(&candidates)?;
        // Settled first, counters second: as for removal.
        let settled = self.settled_segments(logs);
        let walk = self.walk_named_runs()?;
        let after = self.live_table()?;
        self.engine.wait_durable(self.engine.last_cursor())?;
        for info in settled.iter().filter(|info| candidates.contains(&info.id)) {
            let counted = before.get(&info.id).copied().unwrap_or_default();
            let unchanged = after.get(&info.id).copied().unwrap_or_default() == counted;
            if !unchanged || known_bytes(&runs, info.id) != counted.live() {
                continue;
            }
            let is_live = |run: &Run| runs.contains_key(&(run.segment, run.offset));
            match self.store.punch(info.id, &is_live, &walk) {
                Ok(given) => {
                    done.punched_bytes += given.bytes;
                    // Else a reader took hold of it: a later pass tries again.
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
    fn with_dead_bytes(&self, logs: &dyn LogRelease, table: &LiveTable, punched: &mut Punched) -> HashSet<SegmentId> {
        punched.lost.retain(|segment, _| table.contains_key(segment));
        let settled = self.settled_segments(logs).into_iter().filter(|info| info.kind != Kind::Raw);
        let dead = |segment: &SegmentId| {
            let LiveBytes { lost, .. } = table.get(segment).copied().unwrap_or_default();
            lost - punched.lost.get(segment).copied().unwrap_or_default()
        };
        settled.map(|info| info.id).filter(|segment| dead(segment) >= DEAD_BYTES_MIN).collect()
    }
}

/// Bytes of the segment's runs that some row names.
fn known_bytes(runs: &NamedRuns, id: SegmentId) -> i64 {
    runs.range((id, 0)..=(id, u64::MAX)).map(|(_, named)| named.run.len as i64).sum()
}
