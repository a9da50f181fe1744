//! An object opened for reading.
//!
//! Why:        a GET keeps its snapshot however the key changes meanwhile, so the reader holds the extents.
//! Invariants: the reader's segments are pinned before the entry was read for the last time, so they are there.
//!             Every byte given out was verified by the segment store, or is a zero of a hole.
//! Not here:   finding the entry (get_object).

use std::sync::Arc;

use bytes::Bytes;
use margay_segment::{Extent, SegmentPin, Store};

use crate::api::{Error, ObjectInfo};
use crate::blocking::{self, Blocking};
use crate::record::data::is_hole;

/// Most bytes that one read gives.
pub const READ_BYTES_MAX: u64 = 1 << 20;

/// An object opened for reading; keeps its content however the key changes meanwhile.
#[derive(Debug)]
pub struct Reader {
    pub(crate) info: ObjectInfo,
    pub(crate) content: Content,
    pub(crate) store: Arc<Store>,
    pub(crate) blocking: Arc<dyn Blocking>,
}

#[derive(Debug)]
pub(crate) enum Content {
    Inline(Bytes),
    /// Extents with their offsets in the object, ascending and without gaps.
    Extents {
        extents: Vec<(u64, Extent)>,
        pins: Vec<SegmentPin>,
    },
}

impl Reader {
    pub fn info(&self) -> &ObjectInfo {
        &self.info
    }

    /// Up to `len` verified bytes from `offset`, at least 1 unless at the end; at most 1 MiB a call.
    pub async fn read(&self, offset: u64, len: u64) -> Result<Bytes, Error> {
        let len = len.min(READ_BYTES_MAX).min(self.info.size.saturating_sub(offset));
        if len == 0 {
            return Ok(Bytes::new());
        }
        let (extent, skip) = match &self.content {
            Content::Inline(bytes) => {
                let start = usize::try_from(offset).map_err(|_| Error::InvalidRange)?;
                return Ok(bytes.slice(start..start + len as usize));
            }
            Content::Extents { extents, .. } => find(extents, offset)?,
        };
        let len = len.min(extent.len - skip);
        if is_hole(&extent) {
            return Ok(Bytes::from(vec![0; len as usize]));
        }
        if let Some(bytes) = self.store.read_cached(&extent, skip, len)? {
            return Ok(bytes);
        }
        let store = Arc::clone(&self.store);
        let read = blocking::run(&*self.blocking, move || store.read(&extent, skip, len)).await;
        Ok(read.ok_or_else(|| std::io::Error::other("a read was dropped before it ended"))??)
    }

    /// Segments held against removal.
    pub fn pinned_segments(&self) -> usize {
        match &self.content {
            Content::Inline(_) => 0,
            Content::Extents { pins, .. } => pins.len(),
        }
    }
}

/// The extent that holds `offset`, and how far into it that is.
fn find(extents: &[(u64, Extent)], offset: u64) -> Result<(Extent, u64), Error> {
    let index = extents.partition_point(|(start, _)| *start <= offset);
    let (start, extent) = index.checked_sub(1).and_then(|index| extents.get(index)).ok_or(Error::InvalidRange)?;
    match offset - start {
        skip if skip < extent.len => Ok((*extent, skip)),
        _ => Err(Error::Corrupt("extents do not cover the object".to_owned())),
    }
}
