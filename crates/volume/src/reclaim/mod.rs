//! Giving space back: dead segments are removed, mostly dead ones are rewritten first.
//!
//! Why:        segments are only appended to, so deleted bytes come back file by file.
//! Invariants: C1 a segment is removed when it takes no more runs, nobody pins it, and its live counters are even at
//!                a durable commit. New owners come only from owners, so it stays dead.
//!             C2 a run moves by one batch that asserts every owner and that there is no other one, and makes every
//!                owner's version new; readers notice, or hold the old segment by a pin.
//!             C3 data is synced in its new place before a batch names it; the old file goes in a later pass at the
//!                earliest when that batch is durable.
//! Not here:   when to run and how often (the server), which log files the engine still needs (`LogRelease`).

mod gather;
mod punch;
mod rewrite;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;

use margay_segment::{Kind, SegmentError, SegmentId, SegmentInfo};

use crate::api::Error;
use crate::bucket::decode_counter;
use crate::draft::Draft;
use crate::error::Refused;
use crate::key::{self, Live};
use crate::open::Volume;
use crate::seen::Seen;

/// Tells which of the sealed log segments the engine has folded and no longer needs for itself.
pub trait LogRelease: Send + Sync + Debug {
    fn released(&self, log: SegmentId) -> bool;
}

/// Leaves every log segment alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepLogs;

impl LogRelease for KeepLogs {
    fn released(&self, _log: SegmentId) -> bool {
        false
    }
}

/// For an engine that seals a log segment when it no longer needs it, as the embedded one does.
#[derive(Clone, Copy, Debug, Default)]
pub struct SealedLogs;

impl LogRelease for SealedLogs {
    fn released(&self, _log: SegmentId) -> bool {
        true
    }
}

/// How much one pass may do.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimBudget {
    /// Live bytes moved at most.
    pub move_bytes_max: u64,
    /// Segments with a smaller share of live bytes are rewritten, in percent.
    pub live_percent_min: u64,
    /// The pack that is being filled is sealed when it has this many dead bytes and a smaller share of live ones
    /// than `live_percent_min`.
    pub seal_dead_bytes_min: u64,
}

impl Default for ReclaimBudget {
    fn default() -> ReclaimBudget {
        ReclaimBudget { move_bytes_max: 256 << 20, live_percent_min: 70, seal_dead_bytes_min: 8 << 20 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    pub removed_segments: u64,
    /// Bytes of the device that the removed segments occupied.
    pub removed_bytes: u64,
    pub moved_runs: u64,
    pub moved_bytes: u64,
    /// Bytes given back inside segments because there was no room to rewrite them.
    pub punched_bytes: u64,
    /// Runs left where they are because they changed meanwhile, have too many owners or are an orphan's.
    pub skipped_runs: u64,
    /// Runs that could not be read: run a scrub.
    pub damaged_runs: u64,
}

/// Gained and lost bytes of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveBytes {
    pub(crate) gained: i64,
    pub(crate) lost: i64,
}

impl LiveBytes {
    pub(crate) fn live(self) -> i64 {
        self.gained - self.lost
    }
}

pub(crate) type LiveTable = BTreeMap<SegmentId, LiveBytes>;

impl Volume {
    /// One pass; blocks this thread. At most one pass at a time is useful; more are safe.
    pub fn reclaim_once(&self, budget: &ReclaimBudget, logs: &dyn LogRelease) -> Result<Reclaimed, Error> {
        let mut done = Reclaimed::default();
        self.drain_orphans()?;
        self.seal_mostly_dead(budget)?;
        self.remove_dead(logs, &mut done)?;
        if self.rewrite_mostly_dead(budget, logs, &mut done)? {
            self.remove_dead(logs, &mut done)?;
        }
        Ok(done)
    }

    /// Bytes in each segment that something names; segments without any are left out.
    pub fn live_bytes(&self) -> Result<BTreeMap<SegmentId, u64>, Error> {
        let live = self.live_table()?.into_iter().map(|(segment, bytes)| (segment, bytes.live().max(0) as u64));
        Ok(live.filter(|(_, bytes)| *bytes > 0).collect())
    }

    /// Segments that take no more runs and that nobody pins.
    pub(crate) fn settled_segments(&self, logs: &dyn LogRelease) -> Vec<SegmentInfo> {
        let settled = |info: &SegmentInfo| !info.open && (info.kind != Kind::Log || logs.released(info.id));
        self.store.segments().into_iter().filter(settled).collect()
    }

    pub(crate) fn live_table(&self) -> Result<LiveTable, Error> {
        let mut table = LiveTable::new();
        self.scan(&key::all_live(), &mut Seen::default(), |row| {
            let (segment, side) = key::parse_live(row.key)?;
            let bytes = table.entry(segment).or_default();
            match side {
                Live::Gained => bytes.gained = decode_counter(row.value)?,
                Live::Lost => bytes.lost = decode_counter(row.value)?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(table)
    }

    fn seal_mostly_dead(&self, budget: &ReclaimBudget) -> Result<(), Error> {
        let table = self.live_table()?;
        for info in self.store.segments() {
            let live = table.get(&info.id).copied().unwrap_or_default().live().max(0) as u64;
            let dead = info.len.saturating_sub(live);
            let mostly_dead = live * 100 < (live + dead) * budget.live_percent_min;
            if info.open && info.kind == Kind::Pack && dead >= budget.seal_dead_bytes_min && mostly_dead {
                self.store.seal(info.id)?;
            }
        }
        Ok(())
    }

    fn remove_dead(&self, logs: &dyn LogRelease, done: &mut Reclaimed) -> Result<(), Error> {
        // The order matters: pins of uploads end after their commit, so a segment that is settled now has all its
        // owners in the counters read next.
        let settled = self.settled_segments(logs);
        let table = self.live_table()?;
        self.engine.wait_durable(self.engine.last_seq())?;
        let exists: std::collections::HashSet<SegmentId> =
            self.store.segments().into_iter().map(|info| info.id).collect();
        let mut gone: Vec<SegmentId> = table.keys().copied().filter(|segment| !exists.contains(segment)).collect();
        gone.retain(|segment| table[segment].live() == 0);
        for info in settled {
            let live = table.get(&info.id).copied().unwrap_or_default();
            if live.live() != 0 {
                continue;
            }
            let bytes = self.store.allocated_bytes(info.id).unwrap_or(info.len);
            match self.store.remove(info.id) {
                Ok(()) => {
                    done.removed_segments += 1;
                    done.removed_bytes += bytes;
                    gone.push(info.id);
                }
                Err(SegmentError::Missing(_)) => gone.push(info.id),
                // A reader took hold of it, or the disk refused: another pass will see.
                Err(error) => tracing::debug!(segment = ?info.id, %error, "segment stays"),
            }
        }
        self.forget_counters(&gone)
    }

    /// Ids are never used again, so nobody counts there any more.
    fn forget_counters(&self, segments: &[SegmentId]) -> Result<(), Error> {
        for some in segments.chunks(1024) {
            self.retry(|_| -> Result<(), Refused> {
                let mut draft = Draft::default();
                for segment in some {
                    draft.delete(key::live(*segment, Live::Gained));
                    draft.delete(key::live(*segment, Live::Lost));
                }
                self.commit(draft).map(|_| ())
            })?;
        }
        Ok(())
    }
}
