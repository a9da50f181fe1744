//! The port to stored segments: what the file system asks of them, whoever stores them.
//!
//! Why:        one local folder stands behind it, and so can folders of several disks or machines.
//! Invariants: S2 a run is durable on every store that must hold it when `sync` of its segment, called after `end`,
//!             returned Ok.  A call that names a segment of a store that cannot be asked is `Unreachable`, never `Missing`.
//! Not here:   the folder (store), which stores hold a segment (rows of the volume).

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::quarantine::{QuarantineHold, Quarantined, Walk};
use crate::{Extent, Run, SegmentCopy, SegmentError, SegmentId, SegmentInfo, SegmentPin, StoreName};

/// A sync that may be waited for without holding a thread.
pub type SyncFuture<'a> = Pin<Box<dyn Future<Output = Result<(), SegmentError>> + Send + 'a>>;

/// How long a run will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunLength {
    /// So many bytes, beside other runs if they are few.
    Exact(u64),
    /// So many bytes, in a segment of its own, so that they are given back alone.
    ExactAlone(u64),
    /// Shows when it ends; in a segment of its own.
    Growing,
}

/// What a pin does with a segment that lies in the quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InQuarantine {
    /// Somebody has a row that names it: it is taken back, with an alarm.
    TakeBack,
    /// The row may be old: the segment is `Missing`.
    Leave,
}

/// Bytes of the file system that new segments go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSpace {
    pub total_bytes: u64,
    pub free_bytes: u64,
    /// Of the free ones those that data leaves free.
    pub reserve_bytes: u64,
    /// Bytes of data that fit now: without the reserve, and without what is promised to writers.
    pub available_bytes: u64,
    /// Bytes that segments in quarantine occupy.
    pub quarantined_bytes: u64,
}

/// What punching holes came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holes {
    pub bytes: u64,
    /// Nobody took hold of the segment before all dead parts were given back.
    pub complete: bool,
}

/// A run being written: space is reserved, bytes arrive in order. Dropping it gives the space up.
pub trait RunWriter: Send + Sync + Debug {
    /// Payload bytes taken so far.
    fn taken(&self) -> u64;

    /// Payload that was written already; from memory, so it is not verified.
    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, SegmentError>;

    fn segment(&self) -> SegmentId;

    /// Keeps the segment. Take it before `end` and drop it once metadata names the run, so that reclaim cannot take the
    /// segment for dead in between.
    fn pin(&self) -> SegmentPin;

    /// Makes sure of room for so many more bytes, if it is not sure yet; more than the run's length is an error.
    fn reserve(&mut self, bytes: u64) -> Result<(), SegmentError>;

    /// Appends; more than the reserved length is an error.
    fn write(&mut self, bytes: &[u8]) -> Result<(), SegmentError>;

    /// Ends the run (all reserved bytes must have been written); durable after [`Segments::sync`]. A growing run goes on
    /// when it fails.
    fn end(&mut self) -> Result<Run, SegmentError>;
}

/// Stored segments. Cheap to share; all calls may run concurrently.
pub trait Segments: Send + Sync + Debug {
    /// What the store says of itself: ids that it makes begin with its number.
    fn name(&self) -> StoreName;

    /// Whether this process has called `attach`.
    fn is_attached(&self) -> bool;

    /// Takes the name that the volume knows the store by, durably.
    fn attach(&self, name: StoreName) -> Result<(), SegmentError>;

    /// Reserves space for a run. `owner` goes into the run's header, for fsck.
    fn begin(&self, length: RunLength, owner: &[u8]) -> Result<Box<dyn RunWriter>, SegmentError>;

    /// Begins to make durable what was written to a segment, and does not wait.
    fn start_sync(&self, id: SegmentId) -> Result<(), SegmentError>;

    /// Resolves when all that was written to the segment before the call is durable (syncs are shared).
    fn sync(&self, id: SegmentId) -> SyncFuture<'_>;

    /// As `sync`, blocking this thread.
    fn sync_blocking(&self, id: SegmentId) -> Result<(), SegmentError>;

    /// Reads and verifies `len` bytes of the extent from `skip` within the extent on. Blocks on the device.
    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError>;

    /// As `read`, but `None` when the bytes are not in memory.
    fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError>;

    /// A hint that the extent will be read from its begin on; nobody waits.
    fn will_read(&self, extent: &Extent) -> Result<(), SegmentError>;

    /// Reads the whole run that the extent is part of and checks every checksum.
    fn verify(&self, extent: &Extent) -> Result<(), SegmentError>;

    fn pin(&self, id: SegmentId, quarantined: InQuarantine) -> Result<SegmentPin, SegmentError>;

    /// Times that stored bytes were about to go, since the start. Whoever takes this count, finds by a row where bytes lie,
    /// pins their segment, and finds the count as it was, has a pin that holds them; otherwise the row must be read again.
    fn removals(&self) -> u64;

    /// What is known of a segment; one in quarantine is taken back.
    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError>;

    /// Every segment that is not in quarantine, ordered by id; those of this process's own stores alone.
    fn list(&self) -> Vec<SegmentInfo>;

    /// The file of a segment, for copying it: also when it is in quarantine, which then stays as it is.
    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError>;

    /// Ends a pack early: no further run begins in it. Fine when it is sealed already.
    fn seal(&self, id: SegmentId) -> Result<(), SegmentError>;

    fn space(&self) -> Result<StoreSpace, SegmentError>;

    /// `Full` when so many bytes of data would not fit now.
    fn check_space(&self, bytes: u64) -> Result<(), SegmentError>;

    /// Writes that were refused for want of space since the start.
    fn refused(&self) -> u64;

    /// Bytes of the device that the segment occupies.
    fn allocated_bytes(&self, id: SegmentId) -> Result<u64, SegmentError>;

    /// Puts a segment that the counters call dead into the quarantine; open readers keep their bytes. Refused while the
    /// segment is open. False, and nothing is done, when it was taken back before: its proofs disagree.
    fn set_aside(&self, id: SegmentId) -> Result<bool, SegmentError>;

    /// The segments in quarantine, ordered by id.
    fn quarantined(&self) -> Vec<Quarantined>;

    /// Puts a segment that is in quarantine back in its place; false when it is not there.
    fn take_back(&self, id: SegmentId) -> Result<bool, SegmentError>;

    /// Segments that were taken back from the quarantine since the start; any is a sign of a wrong counter.
    fn taken_back(&self) -> u64;

    /// Keeps every segment that is in quarantine now or comes there, until the guard is dropped.
    fn hold_quarantine(&self) -> QuarantineHold;

    /// Begins the second proof. Take the snapshot of the rows afterwards.
    fn begin_walk(&self) -> Walk;

    /// Unlinks a segment that is in quarantine; gives what it was. Ids are not reused.
    fn release(&self, id: SegmentId, walk: &Walk) -> Result<Quarantined, SegmentError>;

    /// Gives the space of dead parts of a sealed segment back in place: of a pack the runs that are not live, of a log
    /// what the walk did not find. A raw segment has no parts. Refused while somebody holds the quarantine.
    fn punch(&self, id: SegmentId, is_live: &dyn Fn(&Run) -> bool, walk: &Walk) -> Result<Holes, SegmentError>;
}
