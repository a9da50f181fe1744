//! An encrypted object's stored bytes and its decryptor: decrypted bytes by offset.
//!
//! Why:        both doors read the same object, one async, one on its own thread; both use this.
//! Invariants: E1 the segments are pinned while this lives, whatever happens to the object.

use std::sync::Arc;

use bytes::Bytes;
use margay_segment::Segments;

use super::Content;
use crate::api::Error;
use crate::encryption::{DataKey, Encrypted};

#[derive(Debug)]
pub(crate) struct EncryptedContent {
    encrypted: Encrypted,
    stored: Content,
    store: Arc<dyn Segments>,
}

impl EncryptedContent {
    /// `plain_lens` are those of its streams.
    pub(crate) fn new(
        data: DataKey,
        plain_lens: &[u64],
        stored: Content,
        store: Arc<dyn Segments>,
    ) -> EncryptedContent {
        EncryptedContent { encrypted: Encrypted::new(data, plain_lens), stored, store }
    }

    /// Decrypted bytes from `offset` on, at least one and at most `len`. Blocks on the device.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Result<Bytes, Error> {
        self.encrypted.read(offset, len, &|at, len| self.stored.read_all(&*self.store, at, len))
    }

    /// As `read`, all of them.
    pub(crate) fn read_into(&self, mut offset: u64, len: u64, into: &mut Vec<u8>) -> Result<(), Error> {
        let end = offset + len;
        while offset < end {
            let bytes = self.read(offset, end - offset)?;
            offset += bytes.len() as u64;
            into.extend_from_slice(&bytes);
        }
        Ok(())
    }

    pub(crate) fn pinned_segments(&self) -> usize {
        self.stored.pinned_segments()
    }
}

/// Two are equal only if they are the same instance.
impl PartialEq for EncryptedContent {
    fn eq(&self, other: &EncryptedContent) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for EncryptedContent {}
