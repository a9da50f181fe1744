//! Makes room for a write that was refused for lack of space: it waits for a pass of reclaim.
//!
//! Why:        dead segments stay in quarantine until the disk is nearly full, and a pass runs every few seconds, so
//!             writers may fill the rest in between. No write should fail while space can be reclaimed.
//! Invariants: R1 one pass serves all waiting writes; where bytes are elsewhere too, passes go on while some of them go.
//!             R2 a pass that freed too little, or took long, is not repeated for a while: on a really full disk
//!                further writes fail at once.
//! Locking:    `Volume::room`, held over the pass. The caller holds no lock of a file: others write to it meanwhile.
//! Not here:   which requests wait, and on which thread (the doors).

use std::time::Duration;

use margay_segment::SegmentError;

use super::{ReclaimBudget, Reclaimed, SealedLogs};
use crate::api::Error;
use crate::open::Volume;
use crate::rests::Room;

/// Fewer bytes do not count as room: the next write would use them up.
const ROOM_BYTES_MIN: u64 = 16 << 20;
/// Bytes that are evicted at once, where some are elsewhere too.
const EVICT_BYTES: u64 = 256 << 20;
/// After a pass this long, the next wait is delayed.
const LONG: Duration = Duration::from_secs(10);
/// After a pass that freed too little or was long, the pause is this many times its duration, and at least:
const PAUSE_FACTOR: u32 = 9;
const PAUSE_MIN: Duration = Duration::from_secs(2);

impl Volume {
    /// Whether an upload of this size would find the disk full now.
    pub fn lacks_room(&self, bytes: u64) -> bool {
        let stored = bytes > self.small_bytes_max();
        !self.engine.has_room() || stored && matches!(self.store.check_space(bytes), Err(SegmentError::Full))
    }

    /// Reclaims space for a refused write; true if it is worth a retry. Blocks for one pass at most.
    pub fn make_room(&self) -> bool {
        let asked_at = self.env.clock.monotonic();
        let mut room = self.room.lock();
        if room.ended_at >= asked_at {
            return room.gave;
        }
        if self.env.clock.monotonic() < room.next_at {
            return false;
        }
        // The maximum time: it is cut, since a write was refused.
        let budget = ReclaimBudget { quarantine: Duration::MAX, ..ReclaimBudget::default() };
        let (took, gave, ended_at) = loop {
            let has_evicted = self.options.evict.as_ref().is_some_and(|evict| evict.evict(EVICT_BYTES));
            // The wait for another store is bounded by itself, and a long one is no reason to refuse what comes next.
            let began_at = self.env.clock.monotonic();
            let done = self.reclaim_once(&budget, &SealedLogs);
            let (ended_at, gave) = (self.env.clock.monotonic(), self.has_given(done));
            // What went may share its segments with what stayed.
            if gave || !has_evicted {
                break (ended_at - began_at, gave, ended_at);
            }
        };
        let pause = if gave && took < LONG { Duration::ZERO } else { (took * PAUSE_FACTOR).max(PAUSE_MIN) };
        *room = Room { ended_at, gave, next_at: ended_at + pause };
        gave
    }

    fn has_given(&self, done: Result<Reclaimed, Error>) -> bool {
        if !self.engine.has_room() || self.waits_for_other_store() {
            return false;
        }
        // What another pass gave back while this one waited for it counts too.
        let given = done
            .and_then(|done| Ok((done.removed_bytes + done.punched_bytes).max(self.store.space()?.available_bytes)));
        match given {
            Ok(bytes) => bytes >= ROOM_BYTES_MIN,
            Err(error) => {
                tracing::warn!(%error, "no space could be given back for a write that was refused");
                false
            }
        }
    }
}
