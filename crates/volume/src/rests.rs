//! Pauses of long reads, which leave half of a processor to others; and when upkeep tasks last ran.
//!
//! Not here:   what is read (reclaim's walk, fsck).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;
use margay_segment::SegmentId;

/// Rows read between two pauses.
const ROWS_BETWEEN: u64 = 16_384;
/// Maximum pause.
const REST_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Rests {
    clock: Arc<dyn Clock>,
    rows: u64,
    since: Duration,
}

impl Rests {
    pub(crate) fn new(clock: &Arc<dyn Clock>) -> Rests {
        Rests { clock: Arc::clone(clock), rows: 0, since: clock.monotonic() }
    }

    /// Counts a row; now and then blocks for as long as the rows since the last pause took.
    pub(crate) fn row(&mut self) {
        self.rows += 1;
        if self.rows.is_multiple_of(ROWS_BETWEEN) {
            self.clock.sleep(self.clock.monotonic().saturating_sub(self.since).min(REST_MAX));
            self.since = self.clock.monotonic();
        }
    }
}

/// When the next walk may begin on a full disk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Walks {
    pub(crate) next_at: Duration,
    /// Number of refused writes when the last walk began.
    pub(crate) refused: u64,
}

/// The state of punching.
#[derive(Debug, Default)]
pub(crate) struct Punched {
    /// Number of refused writes when segments were last examined.
    pub(crate) refused: u64,
    /// Bytes that each segment had lost then.
    pub(crate) lost: BTreeMap<SegmentId, i64>,
}

/// The counters of a segment when its referenced bytes were counted: gained, lost, shared.
pub(crate) type CountersThen = (i64, i64, i64);
/// What the back rows of a segment said when its counters were these.
pub(crate) type Counted = BTreeMap<SegmentId, (CountersThen, NamedBytes)>;

/// Bytes of the runs of a segment that have a back row, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedBytes {
    /// Payload alone.
    pub(crate) payload: u64,
    /// What copies of them take in a pack.
    pub(crate) in_pack: u64,
}

/// Result of the last pass for room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    pub(crate) ended_at: Duration,
    pub(crate) gave: bool,
    /// When the next one may begin.
    pub(crate) next_at: Duration,
}
