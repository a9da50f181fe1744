//! Reclaim: moves dead segments to quarantine and removes them later; rewrites mostly dead ones first.
//!
//! Invariants: C1 a segment goes to quarantine when it accepts no more runs, has no pin, has no back row at a durable
//!                commit, and no process reads anything older. New owners come only from existing ones, and from
//!                readers whose session lives, so it stays dead. It is removed when a walk over all rows agrees and its
//!                time is over (quarantine).
//!             C2 the batch that moves a run asserts all its owners and changes their versions, which readers notice.
//!             C3 data is synced at its new location before a batch refers to it; a later pass removes the old file.
//!             C4 every batch asserts the lease of the store or of orphans, so a holder that was paused commits nothing late.
//!                What it does to files late is harmless: a dead segment stays dead.
//!             C5 counters only select segments to rewrite, seal or punch; wrong ones cost work, never bytes.
//! Locking:    one pass at a time (`Volume::upkeep`).
//! Not here:   when to run (the server), which log files the engine still needs (`LogRelease`).

mod gather;
mod left;
mod punch;
mod quarantine;
mod record;
mod rewrite;
mod room;
mod walk;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::ControlFlow;
use std::time::Duration;

use margay_segment::{Kind, SegmentId, SegmentInfo};

pub(crate) use self::walk::runs_of_row;
use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::counters::decode_counter;
use crate::error::Refused;
use crate::open::{ORPHANS_LEASE, Volume};
use crate::rests::CountersThen;
use crate::sessions::Lease;
use margay_rows::key::{self, Live};

/// Tells which sealed log segments the engine has folded and no longer needs.
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

/// Limits of one pass.
#[derive(Clone, Copy, Debug)]
pub struct ReclaimBudget {
    /// Live bytes moved at most.
    pub move_bytes_max: u64,
    /// Segments with a smaller percentage of live bytes are rewritten.
    pub live_percent_min: u64,
    /// The open pack is sealed when it has this many dead bytes and a smaller percentage of live ones than
    /// `live_percent_min`, or when a write was refused for lack of space.
    pub seal_dead_bytes_min: u64,
    /// How long a dead segment stays in quarantine. Zero: it is removed in the pass that finds it dead, after the walk.
    pub quarantine: Duration,
    /// With a smaller percentage of the disk free, the quarantine's time is skipped.
    pub free_percent_min: u64,
    /// Punch dead ranges of segments that are not rewritten, even if no write was refused.
    pub punch: bool,
}

impl Default for ReclaimBudget {
    fn default() -> ReclaimBudget {
        ReclaimBudget {
            move_bytes_max: 256 << 20,
            live_percent_min: 70,
            seal_dead_bytes_min: 8 << 20,
            quarantine: Duration::ZERO,
            free_percent_min: 10,
            punch: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Dead segments that were moved to quarantine.
    pub set_aside_segments: u64,
    /// Segments without back rows that a row refers to: they are kept.
    pub disputed_segments: u64,
    pub removed_segments: u64,
    /// Bytes of the device that the removed segments occupied.
    pub removed_bytes: u64,
    pub moved_runs: u64,
    pub moved_bytes: u64,
    /// Bytes punched in segments because there was no space to rewrite them.
    pub punched_bytes: u64,
    /// Runs left in place because they changed meanwhile, have too many owners or belong to an orphan.
    pub skipped_runs: u64,
    /// Unreadable runs: run a scrub.
    pub damaged_runs: u64,
}

impl Reclaimed {
    /// Adds the counts of another pass.
    pub fn add(&mut self, done: &Reclaimed) {
        self.set_aside_segments += done.set_aside_segments;
        self.disputed_segments += done.disputed_segments;
        self.removed_segments += done.removed_segments;
        self.removed_bytes += done.removed_bytes;
        self.moved_runs += done.moved_runs;
        self.moved_bytes += done.moved_bytes;
        self.punched_bytes += done.punched_bytes;
        self.skipped_runs += done.skipped_runs;
        self.damaged_runs += done.damaged_runs;
    }
}

/// Counters of a segment's bytes, per owner of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveBytes {
    /// For first owners.
    pub(crate) gained: i64,
    /// For lost owners.
    pub(crate) lost: i64,
    /// For further owners.
    pub(crate) shared: i64,
}

impl LiveBytes {
    /// Upper limit of the referenced bytes: a run counts for each owner.
    pub(crate) fn live(self) -> u64 {
        self.gained.saturating_add(self.shared).saturating_sub(self.lost).max(0) as u64
    }

    pub(crate) fn all(self) -> CountersThen {
        (self.gained, self.lost, self.shared)
    }

    /// Lower limit of the referenced bytes.
    pub(crate) fn live_at_least(self) -> u64 {
        self.gained.saturating_sub(self.lost).max(0) as u64
    }
}

pub(crate) type LiveTable = BTreeMap<SegmentId, LiveBytes>;

impl Volume {
    /// One pass; blocks this thread, also while another pass runs.
    pub fn reclaim_once(&self, budget: &ReclaimBudget, logs: &dyn LogRelease) -> Result<Reclaimed, Error> {
        let _alone = self.upkeep.lock();
        let mut done = Reclaimed::default();
        if self.engine.get(&key::upgrade())?.value.is_some() {
            // The back rows are incomplete.
            return Ok(done);
        }
        // Another volume on this store runs reclaim.
        let Some(lease) = self.reclaim_lease()? else { return Ok(done) };
        if let Some(lease) = self.lease_here(ORPHANS_LEASE)? {
            self.drain_orphans(&lease)?;
        }
        self.seal_mostly_dead(budget)?;
        // After sealing, since a segment without a row stays.
        self.record_segments(&lease)?;
        self.set_dead_aside(logs, &lease, &mut done)?;
        if self.rewrite_mostly_dead((budget, logs), &lease, &mut done)? {
            self.set_dead_aside(logs, &lease, &mut done)?;
        }
        self.release_due(budget, &lease, &mut done)?;
        // Freed space is better used to rewrite, in the next pass.
        if done.removed_segments == 0 {
            self.punch_dead(budget, logs, &mut done)?;
        }
        Ok(done)
    }

    /// The lease for reclaim of the own store.
    fn reclaim_lease(&self) -> Result<Option<Lease>, Error> {
        self.lease_here(&format!("reclaim/{}", self.stores.number.0))
    }

    /// Upper limit of the referenced bytes of each segment: a shared run counts for each owner, up to the segment's
    /// size. Segments without any are omitted.
    pub fn live_bytes(&self) -> Result<BTreeMap<SegmentId, u64>, Error> {
        let lens: BTreeMap<SegmentId, u64> = self.store.list().iter().map(|info| (info.id, info.len)).collect();
        let live = self.live_table()?.into_iter().map(|(segment, bytes)| {
            let len = lens.get(&segment).copied().unwrap_or(u64::MAX);
            (segment, bytes.live().min(len))
        });
        Ok(live.filter(|(_, bytes)| *bytes > 0).collect())
    }

    /// Settled segments of this process: those that accept no more runs and have no pin.
    pub(crate) fn settled_segments(&self, logs: &dyn LogRelease) -> Vec<SegmentInfo> {
        let settled = |info: &SegmentInfo| !info.open && (info.kind != Kind::Log || logs.released(info.id));
        self.store.list().into_iter().filter(settled).filter(|info| self.segment_rows.may_reclaim(info.id)).collect()
    }

    pub(crate) fn live_table(&self) -> Result<LiveTable, Error> {
        self.live_table_at(&mut Seen::default())
    }

    /// As `live_table`, and records the commit that it depends on.
    pub(crate) fn live_table_at(&self, seen: &mut Seen) -> Result<LiveTable, Error> {
        let mut table = LiveTable::new();
        self.scan(&key::all_live(), seen, |row| {
            let (segment, side) = key::parse_live(row.key)?;
            let bytes = table.entry(segment).or_default();
            match side {
                Live::Gained => bytes.gained = decode_counter(row.value)?,
                Live::Lost => bytes.lost = decode_counter(row.value)?,
                Live::Shared => bytes.shared = decode_counter(row.value)?,
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(table)
    }

    fn seal_mostly_dead(&self, budget: &ReclaimBudget) -> Result<(), Error> {
        let table = self.live_table()?;
        let refused = budget.punch || self.was_refused();
        for info in self.store.list() {
            let live = table.get(&info.id).copied().unwrap_or_default().live();
            let dead = info.len.saturating_sub(live);
            let mostly_dead = live * 100 < (live + dead) * budget.live_percent_min;
            if info.open && info.kind == Kind::Pack && dead >= budget.seal_dead_bytes_min && (mostly_dead || refused) {
                self.store.seal(info.id)?;
            }
        }
        Ok(())
    }

    /// Removes the rows of segments that no longer exist. Ids are never reused, so these counters are not needed.
    fn forget_counters(&self, segments: &[SegmentId], lease: &Lease) -> Result<(), Error> {
        self.counted.lock().retain(|segment, _| !segments.contains(segment));
        for some in segments.chunks(1024) {
            self.retry(|_| -> Result<(), Refused> {
                let mut draft = Draft::default();
                lease.assert_in(&mut draft);
                for segment in some {
                    for side in [Live::Gained, Live::Lost, Live::Shared] {
                        draft.delete(key::live(*segment, side));
                    }
                    draft.delete(key::segment(*segment));
                }
                self.commit(draft).map(|_| ())
            })?;
            self.segment_rows.gone(some);
        }
        Ok(())
    }
}
