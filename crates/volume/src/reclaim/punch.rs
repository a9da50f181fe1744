//! Giving back dead runs inside packs, when there is no room to rewrite them.
//!
//! Why:        on a full disk nothing can be copied, but holes cost nothing.
//! Invariants: a run is punched only when the runs that are known to be live add up to the pack's live bytes, and
//!             those did not change during the scan: then no live run is missing from the list. And only when a walk
//!             over all rows of a snapshot does not find it either.

use std::collections::HashSet;
use std::ops::ControlFlow;

use margay_segment::{Kind, SegmentId, Walk};

use super::gather::NamedRuns;
use super::{KeepLogs, LiveTable, Reclaimed};
use crate::api::Error;
use crate::open::Volume;

impl Volume {
    /// `before` was read before the scan that found `runs`.
    pub(super) fn punch_dead(
        &self,
        victims: &HashSet<SegmentId>,
        runs: &NamedRuns,
        before: &LiveTable,
        done: &mut Reclaimed,
    ) -> Result<(), Error> {
        // Settled first, counters second: as for removal.
        let settled = self.settled_segments(&KeepLogs);
        let walk = self.walk_named_runs()?;
        let after = self.live_table()?;
        self.engine.wait_durable(self.engine.last_seq())?;
        for info in settled.iter().filter(|info| info.kind == Kind::Pack && victims.contains(&info.id)) {
            let known = runs.range((info.id, 0)..=(info.id, u64::MAX));
            let known: i64 = known.map(|(_, named)| named.run.len as i64).sum();
            let counted = before.get(&info.id).copied().unwrap_or_default();
            if after.get(&info.id).copied().unwrap_or_default() == counted && counted.live() == known {
                self.punch_pack(info.id, runs, &walk, done)?;
            }
        }
        Ok(())
    }

    fn punch_pack(&self, pack: SegmentId, runs: &NamedRuns, walk: &Walk, done: &mut Reclaimed) -> Result<(), Error> {
        let mut dead = Vec::new();
        self.store.walk_pack(pack, &mut |walked| {
            dead.extend(walked.run.filter(|run| !runs.contains_key(&(run.segment, run.offset))));
            ControlFlow::Continue(())
        })?;
        let still_settled = || self.store.segments().iter().any(|info| info.id == pack && !info.open);
        for run in dead {
            // A reader that came since may hold the pack: what is dead now it cannot have found, but one that was
            // there before could have.
            if !still_settled() {
                break;
            }
            self.store.punch(&run, walk)?;
            done.punched_bytes += run.len;
        }
        Ok(())
    }
}
