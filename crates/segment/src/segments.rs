//! The port to stored segments: the calls that the file system needs from any implementation.
//!
//! Why:        the local folder implements it; folders on several disks or machines can implement it too.
//! Invariants: S2 a run is durable on every store that must hold it once `sync` of its segment, called after `end`,
//!                returned Ok.
//!             P1 a call about a segment whose store cannot be reached returns `Unreachable`, never `Missing`.
//! Not here:   the folder (store), which stores hold a segment (rows of the volume).

use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;

use crate::quarantine::{QuarantineHold, Quarantined, Walk};
use crate::{Extent, Run, SegmentCopy, SegmentError, SegmentId, SegmentInfo, SegmentPin, StoreName};

/// A sync that can be awaited without blocking a thread.
pub type SyncFuture<'a> = Pin<Box<dyn Future<Output = Result<(), SegmentError>> + Send + 'a>>;

/// Length of a run, as far as it is known at its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// This many bytes; a short run shares its segment with others.
    Exact(u64),
    /// This many bytes in a segment of its own, so that its space can be freed separately.
    ExactAlone(u64),
    /// Known only when the run ends; it gets a segment of its own.
    Growing,
}

/// Handling of a pin on a segment in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InQuarantine {
    /// A current row refers to the segment: it is restored from quarantine, with an alarm.
    TakeBack,
    /// The row may be outdated: the segment is `Missing`.
    Leave,
}

/// Space of the file system that holds new segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSpace {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// The part of the free bytes that data must leave free.
    pub reserve_bytes: u64,
    /// Bytes of data that fit now: excluding the reserve and the space reserved by writers.
    pub available_bytes: u64,
    /// Bytes occupied by segments in quarantine.
    pub quarantined_bytes: u64,
}

/// Result of punching holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    pub bytes: u64,
    /// All dead parts were freed before anybody pinned the segment.
    pub complete: bool,
}

/// A run being written: its space is reserved, and bytes arrive in order. Dropping it releases the space.
pub trait RunWriter: Send + Sync + Debug {
    /// Payload bytes written so far.
    fn taken(&self) -> u64;

    /// Returns payload that was already written; from memory, so it is not verified.
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, SegmentError>;

    fn segment(&self) -> SegmentId;

    /// The part of the segment's file that has been written for this run and does not change any more: from its header on.
    fn written(&self) -> Range<u64>;

    /// Pins the segment. Take the pin before `end` and drop it once metadata refers to the run, so that reclaim cannot
    /// treat the segment as dead in between.
    fn pin(&self) -> SegmentPin;

    /// Reserves space for this many more bytes, if not reserved yet; more than the run's length is an error.
    fn reserve(&mut self, bytes: u64) -> Result<(), SegmentError>;

    /// Appends; more than the reserved length is an error.
    fn write(&mut self, bytes: &[u8]) -> Result<(), SegmentError>;

    /// Ends the run (all reserved bytes must have been written); it is durable after [`Segments::sync`]. A growing run
    /// can continue after an error.
    fn end(&mut self) -> Result<Run, SegmentError>;
}

/// Stored segments. Cheap to share; all calls may run concurrently.
pub trait Segments: Send + Sync + Debug {
    /// The name of the store; the ids that it creates begin with its number.
    fn name(&self) -> StoreName;

    /// Whether this process has called `attach`.
    fn is_attached(&self) -> bool;

    /// Sets the name that the volume has for the store, durably.
    fn attach(&self, name: StoreName) -> Result<(), SegmentError>;

    /// Gives no id of the own number up to this one again, durably: rows of the volume know it, whatever the store shows.
    fn skip_ids(&self, last: SegmentId) -> Result<(), SegmentError>;

    /// Reserves space for a run. `owner` goes into the run's header, for fsck.
    fn begin(&self, length: RunLength, owner: &[u8]) -> Result<Box<dyn RunWriter>, SegmentError>;

    /// Starts making the written bytes of a segment durable; does not wait.
    fn start_sync(&self, id: SegmentId) -> Result<(), SegmentError>;

    /// Resolves when all bytes written to the segment before the call are durable (concurrent syncs are combined).
    fn sync(&self, id: SegmentId) -> SyncFuture<'_>;

    /// As `sync`, blocking this thread.
    fn sync_blocking(&self, id: SegmentId) -> Result<(), SegmentError>;

    /// Reads and verifies `len` bytes of the extent from `skip` within the extent on. Blocks on the device.
    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError>;

    /// As `read`, but returns `None` if the bytes are not in memory.
    fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError>;

    /// Read-ahead hint: the extent will be read from its begin. Does not wait.
    fn will_read(&self, extent: &Extent) -> Result<(), SegmentError>;

    /// Reads the whole run that the extent is part of and checks every checksum.
    fn verify(&self, extent: &Extent) -> Result<(), SegmentError>;

    fn pin(&self, id: SegmentId, quarantined: InQuarantine) -> Result<SegmentPin, SegmentError>;

    /// Number of times since the start that stored bytes were about to be removed. A caller reads this count, finds the
    /// location of bytes in a row, and pins their segment. If the count is unchanged then, the pin protects the bytes;
    /// otherwise the row must be read again.
    fn removals(&self) -> u64;

    /// Information about a segment; one in quarantine is restored.
    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError>;

    /// All segments outside quarantine, ordered by id; only those in this process's own stores.
    fn list(&self) -> Vec<SegmentInfo>;

    /// The segment's file, for copying; also in quarantine, where the segment stays.
    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError>;

    /// Seals a pack early, so that no further run begins in it. Does nothing if it is sealed already.
    fn seal(&self, id: SegmentId) -> Result<(), SegmentError>;

    fn space(&self) -> Result<StoreSpace, SegmentError>;

    /// Returns `Full` if this many bytes of data would not fit now.
    fn check_space(&self, bytes: u64) -> Result<(), SegmentError>;

    /// Number of writes since the start that were refused for lack of space.
    fn refused(&self) -> u64;

    /// Bytes of the device that the segment occupies.
    fn allocated_bytes(&self, id: SegmentId) -> Result<u64, SegmentError>;

    /// Moves a segment to quarantine after the first proof that it is dead; open readers keep their bytes. Refused
    /// while the segment is open. Returns false and does nothing if it was restored before, because its proofs
    /// disagree.
    fn set_aside(&self, id: SegmentId) -> Result<bool, SegmentError>;

    /// The segments in quarantine, ordered by id.
    fn quarantined(&self) -> Vec<Quarantined>;

    /// Restores a segment from quarantine; false if it is not in quarantine.
    fn take_back(&self, id: SegmentId) -> Result<bool, SegmentError>;

    /// Number of segments restored from quarantine since the start; any of them indicates a wrong first proof.
    fn taken_back(&self) -> u64;

    /// Until the guard is dropped, every segment in quarantine, now or later, is kept.
    fn hold_quarantine(&self) -> QuarantineHold;

    /// Begins the second proof. Take the snapshot of the rows after this call.
    fn begin_walk(&self) -> Walk;

    /// Unlinks a segment in quarantine and returns its description. Ids are not reused.
    fn release(&self, id: SegmentId, walk: &Walk) -> Result<Quarantined, SegmentError>;

    /// Frees the dead parts of a sealed segment in place: the dead runs of a pack, or the parts of a log that the walk
    /// did not find. A raw segment has no parts. Refused while a guard holds the quarantine.
    fn punch(&self, id: SegmentId, is_live: &dyn Fn(&Run) -> bool, walk: &Walk) -> Result<Holes, SegmentError>;
}
