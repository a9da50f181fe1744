//! Bytes that are in the bucket and not here, as a store of segments of its own number.
//!
//! Why:        a file whose bytes were never read has extents as any other file: they are in a store that fetches them. So
//!             reading, sharing and copying such files is what it is for any file.
//! Invariants: B1 a segment stands for the bytes of an object as it was listed. A file that is sent keeps the number, and its
//!                new object has the same bytes wherever an extent of the file still names it. Each request asks for the ETag
//!                of the object that the rows name now, so a change by somebody else is an error and no other bytes.
//!             B2 this store is read only: nothing is written here, set aside or removed.
//!             B3 memory for fetched bytes is bounded (`cache`), and what they take of the disk (`disk`).
//! Not here:   which object a number stands for (the caller's `Objects`), when a file gets local bytes.

mod ahead;
mod cache;
mod disk;
mod fetch;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use margay_client::upstream::Upstream;
use margay_segment::{
    Extent, OtherStore, ReadOnly, SegmentError, SegmentId, SegmentInfo, Segments, StoreName, StoreNumber,
};
use margay_volume::Peers;

use self::ahead::Windows;
use self::cache::BLOCK_BYTES;
pub(crate) use self::disk::DiskBlocks;
use self::fetch::{Fetcher, Filling};
use crate::runtime::Requests;

/// The number of this store; real ones count up from 1.
pub(crate) const FAR_STORE: StoreNumber = StoreNumber(0xfffe);
/// Blocks of one request.
const REQUEST_BLOCKS_MAX: u64 = 4;

/// The segment of the bytes with this number.
pub(crate) fn segment_of(number: u64) -> SegmentId {
    let (first, end) = FAR_STORE.ids();
    let id = SegmentId(first.0 + number);
    assert!(id < end, "fewer objects than a store has segments were ever seen");
    id
}

/// The number of the bytes of a segment; `None` for one that is here.
pub(crate) fn number_of(segment: SegmentId) -> Option<u64> {
    let (first, end) = FAR_STORE.ids();
    (first..end).contains(&segment).then(|| segment.0 - first.0)
}

/// A state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FarObject {
    pub(crate) key: String,
    pub(crate) etag: String,
    pub(crate) size: u64,
}

/// What numbers stand for.
pub(crate) trait Objects: Send + Sync + Debug {
    /// `None`: nothing any more.
    fn find(&self, number: u64) -> Result<Option<FarObject>, SegmentError>;

    /// The bucket has another object under its key, or none.
    fn note_replaced(&self, number: u64);
}

#[derive(Debug)]
pub(crate) struct FarStore {
    requests: Arc<Requests>,
    fetcher: Fetcher,
    windows: Windows,
}

/// The far store as the only other one of a volume.
#[derive(Clone, Debug)]
pub(crate) struct FarPeers(pub(crate) Arc<ReadOnly<FarStore>>);

impl Peers for FarPeers {
    fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>> {
        (number == FAR_STORE).then(|| Arc::clone(&self.0) as Arc<dyn Segments>)
    }
}

impl FarStore {
    pub(crate) fn new(
        bucket: Upstream,
        requests: Arc<Requests>,
        objects: Arc<dyn Objects>,
        disk: Option<Arc<DiskBlocks>>,
    ) -> FarStore {
        let fetcher = Fetcher { bucket, objects, cache: Arc::default(), disk };
        FarStore { requests, fetcher, windows: Windows::default() }
    }

    fn object(&self, id: SegmentId) -> Result<FarObject, SegmentError> {
        let number = number_of(id).ok_or(SegmentError::Missing(id))?;
        self.fetcher.objects.find(number)?.ok_or(SegmentError::Missing(id))
    }

    /// Bytes of an object, which has them.
    fn bytes(&self, id: SegmentId, range: Range<u64>) -> Result<Bytes, SegmentError> {
        let (first, last) = (range.start / BLOCK_BYTES, (range.end - 1) / BLOCK_BYTES);
        let within = |index: u64, block: &Bytes| {
            let start = index * BLOCK_BYTES;
            let from = range.start.max(start) - start;
            let to = (range.end - start).min(BLOCK_BYTES);
            (to <= block.len() as u64).then(|| block.slice(from as usize..to as usize))
        };
        let short = || SegmentError::Corrupt { segment: id, offset: range.start, what: "the object has fewer bytes" };
        self.fetch_ahead(id, first, last)?;
        if first == last {
            return within(first, &self.block(id, first)?).ok_or_else(short);
        }
        let mut bytes = BytesMut::with_capacity((range.end - range.start) as usize);
        for index in first..=last {
            bytes.extend_from_slice(&within(index, &self.block(id, index)?).ok_or_else(short)?);
        }
        Ok(bytes.freeze())
    }

    /// Begins to fetch what is needed, and more ahead of a sequential reader.
    fn fetch_ahead(&self, id: SegmentId, first: u64, last: u64) -> Result<(), SegmentError> {
        let window = self.windows.read(id, first, last);
        // Some at a time, so that requests are large.
        let (needed, wanted) = (last + 1 + window / 2, last + 1 + window);
        if (first..needed).all(|index| self.fetcher.cache.has(id, index)) {
            return Ok(());
        }
        let blocks = self.object(id)?.size.div_ceil(BLOCK_BYTES);
        if (first..needed.min(blocks)).all(|index| self.fetcher.cache.has(id, index)) {
            return Ok(());
        }
        let mut at = first;
        while at < wanted.min(blocks) {
            let end = (at / REQUEST_BLOCKS_MAX + 1) * REQUEST_BLOCKS_MAX;
            self.begin(id, at..end.min(wanted).min(blocks));
            at = end;
        }
        Ok(())
    }

    /// Begins to fetch those of the blocks that nobody fetched.
    fn begin(&self, id: SegmentId, indexes: Range<u64>) {
        let (mut first, mut slots) = (indexes.start, Vec::new());
        for index in indexes {
            let (slot, is_new) = self.fetcher.cache.slot(id, index);
            if is_new {
                slots.push(Filling::new(&slot));
                continue;
            }
            self.spawn(id, first, std::mem::take(&mut slots));
            first = index + 1;
        }
        self.spawn(id, first, slots);
    }

    fn spawn(&self, id: SegmentId, first: u64, slots: Vec<Filling>) {
        if !slots.is_empty() {
            self.requests.spawn(self.fetcher.clone().fill(id, first, slots));
        }
    }

    fn block(&self, id: SegmentId, index: u64) -> Result<Bytes, SegmentError> {
        let (slot, is_new) = self.fetcher.cache.slot(id, index);
        if is_new {
            self.spawn(id, index, vec![Filling::new(&slot)]);
        }
        slot.wait().map_err(|error| SegmentError::Io(std::io::Error::new(error.0, error.1)))
    }
}

impl OtherStore for FarStore {
    fn name(&self) -> StoreName {
        StoreName { identity: margay_segment::StoreIdentity([0xff; 16]), number: FAR_STORE, generation: 1 }
    }

    fn read(&self, extent: &Extent, skip: u64, len: u64) -> Result<Bytes, SegmentError> {
        assert!(skip + len <= extent.len, "a read is within its extent");
        if len == 0 {
            return Ok(Bytes::new());
        }
        let start = extent.run.offset + extent.skip + skip;
        self.bytes(extent.run.segment, start..start + len)
    }

    fn read_cached(&self, extent: &Extent, skip: u64, len: u64) -> Result<Option<Bytes>, SegmentError> {
        let (start, id) = (extent.run.offset + extent.skip + skip, extent.run.segment);
        if len == 0 {
            return Ok(Some(Bytes::new()));
        }
        let is_ready =
            (start / BLOCK_BYTES..=(start + len - 1) / BLOCK_BYTES).all(|index| self.fetcher.cache.is_ready(id, index));
        if is_ready { self.bytes(id, start..start + len).map(Some) } else { Ok(None) }
    }

    fn will_read(&self, extent: &Extent) -> Result<(), SegmentError> {
        let first = (extent.run.offset + extent.skip) / BLOCK_BYTES;
        self.fetch_ahead(extent.run.segment, first, first)
    }

    /// The store has checksums of its own.
    fn verify(&self, extent: &Extent) -> Result<(), SegmentError> {
        self.object(extent.run.segment).map(drop)
    }

    fn state(&self, id: SegmentId) -> Result<SegmentInfo, SegmentError> {
        let len = self.object(id)?.size;
        Ok(SegmentInfo { id, kind: margay_segment::Kind::Raw, len, open: false })
    }
}
