//! An object opened for reading.
//!
//! Why:        a GET reads one snapshot even if the key changes meanwhile, so the reader holds the extents.
//! Invariants: R1 the reader's segments were pinned before the entry was last read, so they exist.
//!             R2 every returned byte was verified by the segment store, or is a zero of a hole.
//!             R3 no byte of an encrypted object is returned before it was unlocked.
//! Not here:   finding the entry (get_object).

mod encrypted;

use std::sync::Arc;

use bytes::Bytes;
use margay_rows::record::data::is_hole;
use margay_segment::{Extent, SegmentPin, Segments};

use crate::api::{Error, ObjectInfo};
use crate::blocking::{self, Blocking};
use crate::encryption::{CustomerKey, Envelope, MasterKeys};

pub(crate) use encrypted::EncryptedContent;

/// Most bytes that one read gives.
pub const READ_BYTES_MAX: u64 = 1 << 20;

/// An object opened for reading; keeps its content however the key changes meanwhile.
#[derive(Debug)]
pub struct Reader {
    pub(crate) info: ObjectInfo,
    pub(crate) content: Content,
    pub(crate) lock: Option<Lock>,
    pub(crate) store: Arc<dyn Segments>,
    pub(crate) blocking: Arc<dyn Blocking>,
}

/// What is needed to decrypt an object.
#[derive(Debug)]
pub(crate) struct Lock {
    pub(crate) envelope: Envelope,
    /// Decrypted length of each of its streams.
    pub(crate) plain_lens: Vec<u64>,
}

#[derive(Debug)]
pub(crate) enum Content {
    Inline(Bytes),
    /// Extents with their offsets in the object, ascending and without gaps.
    Extents {
        extents: Vec<(u64, Extent)>,
        pins: Vec<SegmentPin>,
    },
    Encrypted(Arc<EncryptedContent>),
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
        if self.lock.is_some() {
            return Err(Error::KeyRequired);
        }
        let (extent, skip) = match &self.content {
            Content::Inline(bytes) => {
                let start = usize::try_from(offset).map_err(|_| Error::InvalidRange)?;
                return Ok(bytes.slice(start..start + len as usize));
            }
            Content::Extents { extents, .. } => find(extents, offset)?,
            Content::Encrypted(content) => {
                let content = Arc::clone(content);
                let read = blocking::run(&*self.blocking, move || content.read(offset, len)).await;
                return read.ok_or_else(dropped)?;
            }
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
        Ok(read.ok_or_else(dropped)??)
    }

    /// Unlocks an encrypted object; the customer's key is needed if it is under one. No-op for others.
    pub(crate) fn unlock(&mut self, customer: Option<&CustomerKey>, masters: &MasterKeys) -> Result<(), Error> {
        let Some(lock) = &self.lock else { return Ok(()) };
        let key = lock.envelope.open(customer, masters)?;
        let stored = std::mem::replace(&mut self.content, Content::Inline(Bytes::new()));
        let content = EncryptedContent::new(key, &lock.plain_lens, stored, Arc::clone(&self.store));
        self.content = Content::Encrypted(Arc::new(content));
        self.lock = None;
        Ok(())
    }

    /// Unlocks an object under a customer's key. No-op for others.
    pub fn unlock_with(&mut self, customer: &CustomerKey) -> Result<(), Error> {
        self.unlock(Some(customer), &MasterKeys::default())
    }

    /// Number of pinned segments.
    pub fn pinned_segments(&self) -> usize {
        self.content.pinned_segments()
    }
}

fn dropped() -> Error {
    std::io::Error::other("a read was dropped before it ended").into()
}

impl Content {
    /// All of these stored bytes. Waits for the device.
    pub(crate) fn read_all(&self, store: &dyn Segments, mut offset: u64, len: u64) -> Result<Bytes, Error> {
        let end = offset + len;
        let extents = match self {
            Content::Inline(bytes) => {
                let range = usize::try_from(offset).ok().zip(usize::try_from(end).ok());
                let range = range.filter(|(_, end)| *end <= bytes.len()).ok_or(Error::InvalidRange)?;
                return Ok(bytes.slice(range.0..range.1));
            }
            Content::Extents { extents, .. } => extents,
            Content::Encrypted(_) => return Err(Error::Corrupt("an object is encrypted twice".to_owned())),
        };
        let mut all = Vec::new();
        while offset < end {
            let (extent, skip) = find(extents, offset)?;
            let part = (end - offset).min(extent.len - skip);
            let bytes = store.read(&extent, skip, part)?;
            if part == len {
                return Ok(bytes);
            }
            all.extend_from_slice(&bytes);
            offset += part;
        }
        Ok(all.into())
    }

    pub(crate) fn pinned_segments(&self) -> usize {
        match self {
            Content::Inline(_) => 0,
            Content::Extents { pins, .. } => pins.len(),
            Content::Encrypted(content) => content.pinned_segments(),
        }
    }
}

/// The extent with `offset`, and the position in it.
fn find(extents: &[(u64, Extent)], offset: u64) -> Result<(Extent, u64), Error> {
    let index = extents.partition_point(|(start, _)| *start <= offset);
    let (start, extent) = index.checked_sub(1).and_then(|index| extents.get(index)).ok_or(Error::InvalidRange)?;
    match offset - start {
        skip if skip < extent.len => Ok((*extent, skip)),
        _ => Err(Error::Corrupt("extents do not cover the object".to_owned())),
    }
}
