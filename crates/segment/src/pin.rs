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
    Elsewhere(SegmentId, #[allow(dead_code, reason = "holding it is what it is for")] Arc<dyn Hold>),
}

/// Keeps a segment of another store until it is dropped.
pub trait Hold: Send + Sync + Debug {}

impl SegmentPin {
    pub(crate) fn own(pin: LocalPin) -> SegmentPin {
        SegmentPin(Held::Own(pin))
    }

    /// A segment of another store, which `hold` keeps.
    pub fn elsewhere(segment: SegmentId, hold: Arc<dyn Hold>) -> SegmentPin {
        SegmentPin(Held::Elsewhere(segment, hold))
    }

    pub fn segment(&self) -> SegmentId {
        match &self.0 {
            Held::Own(pin) => pin.segment(),
            Held::Elsewhere(segment, _) => *segment,
        }
    }
}
