//! Copies of the own segments at other stores.
//!
//! Why:        a disk that is lost takes nothing with it that was acknowledged.
//! Invariants: O1 what a writer has put into its file is announced before the segment is synced, so a sync waits for its copies.
//!             O2 a sync returns once as many stores have the bytes as the volume requires; the first commit that refers to them
//!                names these stores in the segment's row.
//!             O3 the row of a segment says that it is sealed only once its copies are complete, so that after a crash those of others are
//!                sent again. One whose own file is found not whole says it no more, so that the next process knows too.
//! Not here:   how bytes are sent and which stores get them (an implementation of the port).

use std::cell::RefCell;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use margay_segment::format::RUN_END_BYTES;
use margay_segment::{Run, RunWriter, SegmentError, SegmentId, SegmentPin, Segments, StoreNumber, SyncFuture};

/// Bytes that are announced at once while a run is written.
const ANNOUNCED_BYTES: u64 = 4 << 20;

/// Makes copies of the own segments at other stores.
pub trait Copies: Send + Sync + Debug {
    /// The stores that have a segment, as its row says; told once for each at the start. `is_complete`: the row was written when
    /// `is_complete` was true, else a store may lack some of it.
    fn knows(&self, id: SegmentId, stores: &[StoreNumber], is_complete: bool);

    /// This part of a segment's file is to be copied.
    fn wrote(&self, id: SegmentId, part: Range<u64>);

    /// Starts copying what was announced; does not wait.
    fn start(&self, id: SegmentId);

    /// Resolves when enough stores have all that was announced of the segment.
    fn wait(&self, id: SegmentId) -> SyncFuture<'_>;

    /// As `wait`, blocking this thread.
    fn wait_blocking(&self, id: SegmentId) -> Result<(), SegmentError>;

    /// The stores that have something of the segment, ascending, the own one among them.
    fn stores(&self, id: SegmentId) -> Vec<StoreNumber>;

    /// Whether as many stores as the volume requires have all of a segment that is written no more.
    fn is_complete(&self, id: SegmentId) -> bool;

    /// Whether the own file of a segment was found to lack something that rows name, and nobody could give it.
    fn is_partial(&self, _id: SegmentId) -> bool {
        false
    }

    /// These ranges of the segment's file were punched; they may touch.
    fn punched(&self, id: SegmentId, holes: Vec<Range<u64>>);

    /// The segment's file was removed.
    fn removed(&self, id: SegmentId);
}

/// A run whose bytes are copied.
#[derive(Debug)]
pub(super) struct CopiedRun {
    run: Box<dyn RunWriter>,
    copies: Arc<dyn Copies>,
    announced: u64,
}

impl CopiedRun {
    pub(super) fn begin(run: Box<dyn RunWriter>, copies: Arc<dyn Copies>) -> CopiedRun {
        let announced = run.written().start;
        let mut begun = CopiedRun { run, copies, announced };
        // The header, so that a copy can be walked past a run that is never finished.
        begun.announce(1);
        begun
    }

    fn announce(&mut self, bytes_min: u64) {
        let end = self.run.written().end;
        assert!(self.announced <= end, "what was written of a run does not change");
        if end - self.announced >= bytes_min {
            self.copies.wrote(self.run.segment(), self.announced..end);
            self.announced = end;
        }
    }
}

impl RunWriter for CopiedRun {
    fn taken(&self) -> u64 {
        self.run.taken()
    }

    fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, SegmentError> {
        self.run.read(offset, len)
    }

    fn segment(&self) -> SegmentId {
        self.run.segment()
    }

    fn written(&self) -> Range<u64> {
        self.run.written()
    }

    fn pin(&self) -> SegmentPin {
        self.run.pin()
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), SegmentError> {
        self.run.reserve(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SegmentError> {
        self.run.write(bytes)?;
        self.announce(ANNOUNCED_BYTES);
        Ok(())
    }

    fn end(&mut self) -> Result<Run, SegmentError> {
        let run = self.run.end()?;
        self.announce(1);
        Ok(run)
    }
}

/// A sync of the own store and of the copies, at the same time.
pub(super) async fn sync(own: &dyn Segments, copies: &dyn Copies, id: SegmentId) -> Result<(), SegmentError> {
    copies.start(id);
    own.sync(id).await?;
    copies.wait(id).await
}

/// As `sync`, blocking this thread.
pub(super) fn sync_blocking(own: &dyn Segments, copies: &dyn Copies, id: SegmentId) -> Result<(), SegmentError> {
    copies.start(id);
    own.sync_blocking(id)?;
    copies.wait_blocking(id)
}

/// Notes what a dead run takes in its file.
pub(super) fn is_live_or_noted(run: &Run, is_live: &dyn Fn(&Run) -> bool, dead: &RefCell<Vec<Range<u64>>>) -> bool {
    let is_live = is_live(run);
    if !is_live {
        let end = run.offset + run.len + run.table_bytes() + RUN_END_BYTES as u64;
        dead.borrow_mut().push(run.offset..end);
    }
    is_live
}
