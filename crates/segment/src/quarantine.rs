//! Quarantine of dead segments, and the only check before bytes are removed.
//!
//! Why:        a segment that is dead by its counters may still be referenced, if a counter is wrong. So it is renamed
//!             first, and unlinked only when a second proof agrees: a walk over all rows that can refer to a run, begun
//!             after the renaming. A read that finds its segment here takes it back.
//! Layout:     `<id>.<kind>.quarantine-<seconds since 1970, 16 hex digits>` beside the segments.
//! Invariants: Q1 no segment file is unlinked and no hole is punched unless `may_leave` allows it.
//!             Q2 a segment that was taken back is not moved here again by this process: its proofs disagree.
//! Durability: renamings are not synced: after a crash the segment is found under either name.
//! Locking:    `state` before the folder's table; files are renamed and unlinked under it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_env::Timestamp;
use parking_lot::Mutex;

use crate::error::invalid;
use crate::segment::Segment;
use crate::{Kind, Run, SegmentError, SegmentId};

/// A segment that waits for its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantined {
    pub id: SegmentId,
    pub kind: Kind,
    /// Length of the file in bytes.
    pub len: u64,
    /// Bytes of the device that it occupies.
    pub used_bytes: u64,
    /// When it was moved to quarantine, by wall time; whole seconds after a restart.
    pub since: Timestamp,
    /// Its position in the order of this process's moves to quarantine; 0 for those found at the start.
    pub(crate) number: u64,
}

/// A segment in quarantine, as the store knew it: an earlier lookup may still pin it.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) shown: Quarantined,
    pub(crate) segment: Arc<Segment>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Number of segments that this process moved to quarantine.
    pub(crate) count: u64,
    pub(crate) held: BTreeMap<SegmentId, Held>,
    /// Taken back by this process.
    pub(crate) disputed: HashSet<SegmentId>,
}

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    pub(crate) state: Mutex<State>,
    /// Number of guards that keep everything in quarantine.
    holds: AtomicU64,
    /// Segments that a read or a walk took back since the start.
    pub(crate) taken_back: AtomicU64,
}

/// While it lives, no segment leaves the quarantine.
#[derive(Debug)]
pub struct QuarantineHold(Arc<Quarantine>);

impl Drop for QuarantineHold {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

impl Quarantine {
    pub(crate) fn found(held: BTreeMap<SegmentId, Held>) -> Quarantine {
        Quarantine { state: Mutex::new(State { held, ..State::default() }), ..Quarantine::default() }
    }

    /// Whether a segment is in quarantine.
    pub(crate) fn has(&self, id: SegmentId) -> bool {
        self.state.lock().held.contains_key(&id)
    }

    pub(crate) fn hold(self: &Arc<Quarantine>) -> QuarantineHold {
        self.holds.fetch_add(1, Ordering::AcqRel);
        QuarantineHold(Arc::clone(self))
    }

    fn let_go(&self) {
        let before = self.holds.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "every hold is counted once");
    }

    pub(crate) fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 0
    }
}

/// The second proof: which runs are referenced by rows, found by reading all rows of one snapshot.
///
/// Begin it, take the snapshot, report every reference to a run, and call [`Walk::complete`].
#[derive(Debug)]
pub struct Walk {
    /// Segments with a larger number were moved to quarantine after the walk began.
    up_to: u64,
    /// Sealed segments without pins when the walk began.
    settled: HashSet<SegmentId>,
    /// Start and end of each referenced run in a segment, including its table.
    named: HashMap<SegmentId, BTreeMap<u64, u64>>,
    complete: bool,
}

impl Walk {
    pub(crate) fn begin(up_to: u64, settled: HashSet<SegmentId>) -> Walk {
        Walk { up_to, settled, named: HashMap::new(), complete: false }
    }

    /// Reports a reference to this run.
    pub fn name(&mut self, run: &Run) {
        assert!(!self.complete, "a walk that is complete takes no more runs");
        let end = run.offset.saturating_add(run.len).saturating_add(run.table_bytes());
        let named = self.named.entry(run.segment).or_default().entry(run.offset).or_insert(end);
        *named = end.max(*named);
    }

    /// Every row of the snapshot was read.
    pub fn complete(&mut self) {
        self.complete = true;
    }

    /// Whether a row refers to a run of the segment.
    pub fn names(&self, segment: SegmentId) -> bool {
        self.named.contains_key(&segment)
    }

    /// The gaps between referenced runs in this range, in order.
    pub(crate) fn gaps(&self, segment: SegmentId, between: Range<u64>) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), between.start);
        for (start, end) in self.named.get(&segment).into_iter().flatten() {
            if at < (*start).min(between.end) {
                gaps.push(at..(*start).min(between.end));
            }
            at = at.max(*end);
        }
        if at < between.end {
            gaps.push(at..between.end);
        }
        gaps
    }

    /// Whether a referenced run has bytes in this range of the segment.
    fn reaches_into(&self, segment: SegmentId, part: &Range<u64>) -> bool {
        let named = self.named.get(&segment);
        // Referenced runs do not overlap, so the last one that begins before the end reaches farthest.
        let last = named.and_then(|named| named.range(..part.end).next_back());
        last.is_some_and(|(start, end)| *end > part.start || *start >= part.start)
    }

    /// Whether the walk is valid for this segment.
    pub fn covers(&self, quarantined: &Quarantined) -> bool {
        self.complete && quarantined.number <= self.up_to
    }
}

/// Why bytes may be removed.
#[derive(Clone, Copy, Debug)]
pub enum Proof<'a> {
    /// By its counters the segment is dead, so it was moved to quarantine; this walk began afterwards.
    Walked(&'a Walk),
    /// A sealed log whose records were all read again from the file, none with payload: it contains no run that a row
    /// could refer to.
    NoPayload,
    /// A log file that was prepared and never used: all of its bytes are zero.
    NeverBegun,
    /// A copy of another store's segment, whose row names other stores only, or which has no row any more.
    Unnamed,
    /// A raw segment whose writer gave up: its run was never finished, so no row can refer to it.
    Abandoned,
}

/// What would be removed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leaving<'a> {
    /// A file that was never in quarantine.
    Whole(SegmentId, Kind),
    Quarantined(&'a Quarantined),
    /// A range of a segment that stays.
    Part(SegmentId, &'a Range<u64>),
}

/// The only check before bytes are removed (Q1). The error names the missing proof.
pub(crate) fn may_leave(leaving: Leaving<'_>, proof: Proof<'_>) -> Result<(), SegmentError> {
    let refused = |segment: SegmentId, why: &str| Err(invalid(format!("segment {segment:?} stays: {why}")));
    match (leaving, proof) {
        (Leaving::Whole(_, Kind::Log), Proof::NoPayload | Proof::NeverBegun) => Ok(()),
        (Leaving::Whole(_, Kind::Raw), Proof::Abandoned) => Ok(()),
        (Leaving::Whole(..), Proof::Unnamed) => Ok(()),
        (Leaving::Whole(id, _), _) => refused(id, "only a walk can prove it dead"),
        (Leaving::Quarantined(held), Proof::Walked(walk)) if !walk.covers(held) => {
            refused(held.id, "no complete walk began after it was set aside")
        }
        (Leaving::Quarantined(held), Proof::Walked(walk)) if walk.names(held.id) => refused(held.id, "a row names it"),
        (Leaving::Quarantined(_), Proof::Walked(_)) => Ok(()),
        (Leaving::Quarantined(held), _) => refused(held.id, "only a walk can prove it dead"),
        (Leaving::Part(id, _), Proof::Walked(walk)) if !walk.complete || !walk.settled.contains(&id) => {
            refused(id, "no complete walk began after its last writer left")
        }
        (Leaving::Part(id, part), Proof::Walked(walk)) if walk.reaches_into(id, part) => {
            refused(id, "a row names a run there")
        }
        (Leaving::Part(_, _), Proof::Walked(_)) => Ok(()),
        (Leaving::Part(id, _), _) => refused(id, "only a walk can prove a part of it dead"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SegmentId = SegmentId(7);

    fn held(number: u64) -> Quarantined {
        Quarantined { id: ID, kind: Kind::Pack, len: 1, used_bytes: 1, since: Timestamp(0), number }
    }

    fn run(offset: u64) -> Run {
        Run { segment: ID, offset, len: 1, crc: 0 }
    }

    #[test]
    fn a_segment_leaves_only_by_a_complete_later_walk_that_does_not_name_it() {
        let mut walk = Walk::begin(3, HashSet::new());
        assert!(may_leave(Leaving::Quarantined(&held(3)), Proof::Walked(&walk)).is_err(), "not complete");
        walk.complete();
        assert!(may_leave(Leaving::Quarantined(&held(3)), Proof::Walked(&walk)).is_ok());
        assert!(may_leave(Leaving::Quarantined(&held(4)), Proof::Walked(&walk)).is_err(), "set aside afterwards");
        for proof in [Proof::NoPayload, Proof::NeverBegun] {
            assert!(may_leave(Leaving::Quarantined(&held(3)), proof).is_err());
            assert!(may_leave(Leaving::Whole(ID, Kind::Pack), proof).is_err(), "no log");
            assert!(may_leave(Leaving::Whole(ID, Kind::Log), proof).is_ok());
            assert!(may_leave(Leaving::Whole(ID, Kind::Log), Proof::Abandoned).is_err());
            assert!(may_leave(Leaving::Part(ID, &(1..2)), proof).is_err());
        }
        assert!(may_leave(Leaving::Whole(ID, Kind::Log), Proof::Walked(&walk)).is_err());
        let mut walk = Walk::begin(3, HashSet::new());
        walk.name(&run(8));
        walk.complete();
        assert!(may_leave(Leaving::Quarantined(&held(3)), Proof::Walked(&walk)).is_err(), "named");
    }

    #[test]
    fn a_part_leaves_only_when_its_segment_was_settled_before_the_walk() {
        let mut walk = Walk::begin(0, HashSet::from([ID]));
        walk.name(&run(8));
        assert!(may_leave(Leaving::Part(ID, &(16..17)), Proof::Walked(&walk)).is_err(), "not complete");
        walk.complete();
        for (part, may) in [(9..20, true), (0..8, true), (8..9, false), (0..9, false), (7..20, false)] {
            assert_eq!(may_leave(Leaving::Part(ID, &part), Proof::Walked(&walk)).is_ok(), may, "{part:?}");
        }
        assert_eq!(walk.gaps(ID, 2..20), [2..8, 9..20]);
        assert_eq!(walk.gaps(ID, 8..9), []);
        assert_eq!(walk.gaps(ID, 2..8).into_iter().next(), Some(2..8));
        let mut walk = Walk::begin(0, HashSet::new());
        walk.complete();
        assert!(may_leave(Leaving::Part(ID, &(16..17)), Proof::Walked(&walk)).is_err(), "not settled");
    }
}
