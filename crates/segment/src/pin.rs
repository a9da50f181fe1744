//! Holding a segment, wherever it is stored.
//!
//! Why:        who reads or writes a segment keeps it, and need not know how it is kept.
//! Not here:   what a pin of this folder counts (segment), what another store is told (whoever makes such a pin).

use std::fmt::Debug;
use std::sync::Arc;

use crate::SegmentId;
use crate::segment::LocalPin;

/// Keeps a segment, so that reclaim leaves it alone; a clone keeps it too, and no later than this one began to.
#[derive(Clone, Debug)]
pub struct SegmentPin(Held);

#[derive(Clone, Debug)]
enum Held {
    Own(LocalPin),
    Elsewhere(SegmentId, Arc<dyn Hold>),
}

/// Keeps a segment of another store until it is dropped.
pub trait Hold: Send + Sync + Debug {
    /// From which moment on it counts: it keeps all that one from a later moment keeps.
    fn since(&self) -> u64;
}

impl SegmentPin {
    pub(crate) fn own(pin: LocalPin) -> SegmentPin {
        SegmentPin(Held::Own(pin))
    }

    /// A segment of another store, which `hold` keeps.
    pub fn elsewhere(segment: SegmentId, hold: Arc<dyn Hold>) -> SegmentPin {
        SegmentPin(Held::Elsewhere(segment, hold))
    }

    /// Keeps what either of two pins of the same segment keeps.
    pub fn join(&mut self, other: SegmentPin) {
        assert_eq!(self.segment(), other.segment(), "pins of one segment");
        if let (Held::Elsewhere(_, mine), Held::Elsewhere(_, others)) = (&self.0, &other.0)
            && others.since() < mine.since()
        {
            *self = other;
        }
    }

    pub fn segment(&self) -> SegmentId {
        match &self.0 {
            Held::Own(pin) => pin.segment(),
            Held::Elsewhere(segment, _) => *segment,
        }
    }
}
