//! Pins on segments of any store.
//!
//! Why:        a reader or writer pins a segment without knowing how its store counts pins.
//! Not here:   the counters of the local folder (segment), messages to another store (the implementor of `Hold`).

use std::fmt::Debug;
use std::sync::Arc;

use crate::SegmentId;
use crate::segment::LocalPin;

/// Keeps a segment from reclaim; so does each clone.
#[derive(Clone, Debug)]
pub struct SegmentPin(Held);

#[derive(Clone, Debug)]
enum Held {
    Own(LocalPin),
    Elsewhere(SegmentId, Arc<dyn Hold>),
}

/// A pin at another store, until it is dropped.
pub trait Hold: Send + Sync + Debug {
    /// The moment from which it counts: it keeps everything that a pin from a later moment keeps.
    fn since(&self) -> u64;
}

impl SegmentPin {
    pub(crate) fn own(pin: LocalPin) -> SegmentPin {
        SegmentPin(Held::Own(pin))
    }

    /// A pin on a segment of another store, held by `hold`.
    pub fn elsewhere(segment: SegmentId, hold: Arc<dyn Hold>) -> SegmentPin {
        SegmentPin(Held::Elsewhere(segment, hold))
    }

    /// Combines two pins of the same segment: keeps what either of them keeps.
    pub fn join(&mut self, other: SegmentPin) {
        assert_eq!(self.segment(), other.segment(), "pins of one segment");
        if let (Held::Elsewhere(_, mine), Held::Elsewhere(_, others)) = (&self.0, &other.0)
            && others.since() < mine.since()
        {
            *self = other;
        }
    }

    /// The moment from which a pin at another store counts; none for the own store.
    pub fn since(&self) -> Option<u64> {
        match &self.0 {
            Held::Own(_) => None,
            Held::Elsewhere(_, hold) => Some(hold.since()),
        }
    }

    pub fn segment(&self) -> SegmentId {
        match &self.0 {
            Held::Own(pin) => pin.segment(),
            Held::Elsewhere(segment, _) => *segment,
        }
    }
}
