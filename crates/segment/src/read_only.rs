//! A store of another process, as far as this one may use it.
//!
//! Why:        of the store of another process, or of a bucket, bytes are only read; all other calls of the port are answered here.
//! Not here:   how the bytes come here (the implementation).

use std::fmt::Debug;
use std::io;

use bytes::Bytes;

use crate::quarantine::{QuarantineHold, Quarantined, Walk};
use crate::segments::{Holes, InQuarantine, RunLength, RunWriter, Segments, StoreSpace, SyncFuture};
use crate::{Extent, Run, SegmentCopy, SegmentError, SegmentId, SegmentInfo, SegmentPin, StoreName};

/// What is asked of the store of another process.
pub trait OtherStore: Send + Sync + Debug {
    fn name(&self) -> StoreName;

    /// As [`Segments::read`].
    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError>;

    /// As [`Segments::read_cached`]. Without one of its own, none of the bytes are in memory.
    fn read_cached(&self, _extent: &Extent, _skip: u64, _len: u64) -> Result<Option<Bytes>, SegmentError> {
        Ok(None)
    }

    /// As [`Segments::will_read`].
    fn will_read(&self, _extent: &Extent) -> Result<(), SegmentError> {
        Ok(())
    }

    /// As [`Segments::verify`].
    fn verify(&self, extent: &Extent) -> Result<(), SegmentError>;

    /// As [`Segments::state`].
    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError>;

    /// As [`Segments::source`]. Without one of its own, whole files are not given.
    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        Err(SegmentError::Unreachable(id, self.name().number))
    }
}

/// Such a store behind the port.
#[derive(Debug)]
pub struct ReadOnly<T>(pub T);

fn refused<T>(what: &str) -> Result<T, SegmentError> {
    let error = format!("the store of another process is only read: {what}");
    Err(SegmentError::Io(io::Error::new(io::ErrorKind::Unsupported, error)))
}

impl<T: OtherStore> Segments for ReadOnly<T> {
    fn name(&self) -> StoreName {
        self.0.name()
    }

    fn is_attached(&self) -> bool {
        true
    }

    fn attach(&self, _name: StoreName) -> Result<(), SegmentError> {
        refused("it has its name")
    }

    fn skip_ids(&self, _last: SegmentId) -> Result<(), SegmentError> {
        refused("it makes no ids")
    }

    fn begin(&self, _length: RunLength, _owner: &[u8]) -> Result<Box<dyn RunWriter>, SegmentError> {
        refused("no run begins there")
    }

    fn start_sync(&self, _id: SegmentId) -> Result<(), SegmentError> {
        Ok(())
    }

    fn sync(&self, _id: SegmentId) -> SyncFuture<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn sync_blocking(&self, _id: SegmentId) -> Result<(), SegmentError> {
        Ok(())
    }

    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        self.0.read(extent, skip, len)
    }

    fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError> {
        self.0.read_cached(extent, skip, len)
    }

    fn will_read(&self, extent: &Extent) -> Result<(), SegmentError> {
        self.0.will_read(extent)
    }

    fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        self.0.verify(extent)
    }

    fn pin(&self, id: SegmentId, _quarantined: InQuarantine) -> Result<SegmentPin, SegmentError> {
        Err(SegmentError::Missing(id))
    }

    fn removals(&self) -> u64 {
        0
    }

    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        self.0.state(id)
    }

    fn list(&self) -> Vec<SegmentInfo> {
        Vec::new()
    }

    fn source(&self, id: SegmentId) -> Result<SegmentCopy, SegmentError> {
        self.0.source(id)
    }

    fn seal(&self, _id: SegmentId) -> Result<(), SegmentError> {
        Ok(())
    }

    fn space(&self) -> Result<StoreSpace, SegmentError> {
        refused("its space is its own")
    }

    fn check_space(&self, _bytes: u64) -> Result<(), SegmentError> {
        Ok(())
    }

    fn refused(&self) -> u64 {
        0
    }

    fn allocated_bytes(&self, _id: SegmentId) -> Result<u64, SegmentError> {
        Ok(0)
    }

    fn set_aside(&self, _id: SegmentId) -> Result<bool, SegmentError> {
        Ok(false)
    }

    fn quarantined(&self) -> Vec<Quarantined> {
        Vec::new()
    }

    fn take_back(&self, _id: SegmentId) -> Result<bool, SegmentError> {
        Ok(false)
    }

    fn taken_back(&self) -> u64 {
        0
    }

    fn hold_quarantine(&self) -> QuarantineHold {
        unreachable!("only the own store has a quarantine (T2 of the volume's stores)")
    }

    fn begin_walk(&self) -> Walk {
        unreachable!("only the own store is walked (T2 of the volume's stores)")
    }

    fn release(&self, id: SegmentId, _walk: &Walk) -> Result<Quarantined, SegmentError> {
        Err(SegmentError::Missing(id))
    }

    fn punch(&self, _id: SegmentId, _is_live: &dyn Fn(&Run) -> bool, _walk: &Walk) -> Result<Holes, SegmentError> {
        Ok(Holes::default())
    }
}
