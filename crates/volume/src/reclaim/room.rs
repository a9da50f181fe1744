//! Room for a write that was refused for want of space: it waits for a pass of reclaim.
//!
//! Why:        dead segments stay in quarantine until the disk is short, and a pass comes every few seconds; a writer fills
//!             what is left in between. None should be refused while there is something to give back.
//! Invariants: R1 one pass serves all who wait for it.
//!             R2 a pass that gave too little back, or took long, is not repeated for a while: on a disk that is really full
//!                others are refused at once.
//! Locking:    `Volume::room`, held over the pass. The caller holds no lock of a file: others write to it meanwhile.
//! Not here:   which requests wait, and on which thread (the doors).

use std::time::Duration;

use margay_segment::SegmentError;

use super::{ReclaimBudget, Reclaimed, SealedLogs};
use crate::api::Error;
use crate::open::Volume;
use crate::rests::Room;

/// Fewer bytes are no room: another write would use them up at once.
const ROOM_BYTES_MIN: u64 = 16 << 20;
/// Nobody waits so long twice, one time after the other.
const LONG: Duration = Duration::from_secs(10);
/// Behind a pass that made no room or was long nothing is tried for as many times as long as it took, and at least:
const PAUSE_FACTOR: u32 = 9;
const PAUSE_MIN: Duration = Duration::from_secs(2);

impl Volume {
    /// Whether an upload of so many bytes would find the disk full now.
    pub fn lacks_room(&self, bytes: u64) -> bool {
        let stored = bytes > self.small_bytes_max();
        !self.engine.has_room() || stored && matches!(self.store.check_space(bytes), Err(SegmentError::Full))
    }

    /// Gives space back for a write that was refused; true when it is worth another try. Blocks for a pass at most.
    pub fn make_room(&self) -> bool {
        let asked_at = self.env.clock.monotonic();
        let mut room = self.room.lock();
        if room.ended_at >= asked_at {
            return room.gave;
        }
        let began_at = self.env.clock.monotonic();
        if began_at < room.next_at {
            return false;
        }
        // However long its time: it is cut, since a write was refused.
        let budget = ReclaimBudget { quarantine: Duration::MAX, ..ReclaimBudget::default() };
        let done = self.reclaim_once(&budget, &SealedLogs);
        let ended_at = self.env.clock.monotonic();
        let (took, gave) = (ended_at - began_at, self.has_given(done));
        let pause = if gave && took < LONG { Duration::ZERO } else { (took * PAUSE_FACTOR).max(PAUSE_MIN) };
        *room = Room { ended_at, gave, next_at: ended_at + pause };
        gave
    }

    fn has_given(&self, done: Result<Reclaimed, Error>) -> bool {
        if !self.engine.has_room() {
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
