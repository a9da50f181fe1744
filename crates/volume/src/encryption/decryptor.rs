//! Decrypts any range of an encrypted object, chunk by chunk, wherever its bytes are stored.
//!
//! Why:        a range costs only the chunks that it touches.
//! Invariants: D1 every returned byte was authenticated by its chunk's tag.
//!             D2 a call holds at most `CHUNKS_PER_READ` chunks, twice (encrypted and decrypted).
//! Not here:   where the stored bytes are (reader, open files): `Encrypted` reads them by offset.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use ring::aead::LessSafeKey;

use super::{
    DataKey, EncryptionError, PLAIN_CHUNK_BYTES, SALT_BYTES, TAG_BYTES, chunk_aad, chunk_nonce, encrypted_len,
    stream_key,
};

/// Chunks that one call decrypts at most.
const CHUNKS_PER_READ: u64 = 4;
const STORED_CHUNK_BYTES: u64 = PLAIN_CHUNK_BYTES + TAG_BYTES;

/// Offset of a stream in the object's decrypted and stored bytes.
#[derive(Clone, Copy, Debug)]
struct Stream {
    plain: u64,
    stored: u64,
    plain_len: u64,
}

/// How to decrypt an object: its streams and their keys.
pub(crate) struct Encrypted {
    data: DataKey,
    /// The non-empty streams, in order.
    streams: Vec<Stream>,
    plain_len: u64,
    /// The most recently read stream, and its key.
    last: Mutex<Option<(u64, Arc<LessSafeKey>)>>,
}

impl std::fmt::Debug for Encrypted {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Encrypted").field("streams", &self.streams.len()).finish_non_exhaustive()
    }
}

impl Encrypted {
    /// An object whose streams have these decrypted lengths: one for a simple object, else one per part.
    pub(crate) fn new(data: DataKey, plain_lens: &[u64]) -> Encrypted {
        let (mut plain, mut stored, mut streams) = (0, 0, Vec::new());
        for &plain_len in plain_lens.iter().filter(|len| **len > 0) {
            streams.push(Stream { plain, stored, plain_len });
            plain += plain_len;
            stored += encrypted_len(plain_len);
        }
        Encrypted { data, streams, plain_len: plain, last: Mutex::new(None) }
    }

    /// Decrypted bytes from `offset` on, at least one and at most `len`; `stored` reads all stored bytes at an offset
    /// and length. The range is inside the object.
    pub(crate) fn read<E: From<EncryptionError>>(
        &self,
        offset: u64,
        len: u64,
        stored: &dyn Fn(u64, u64) -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        if len == 0 || offset >= self.plain_len {
            return Err(EncryptionError::InvalidRange.into());
        }
        let index = self.streams.partition_point(|stream| stream.plain <= offset);
        let stream = self.streams[index.checked_sub(1).ok_or(EncryptionError::InvalidRange)?];
        let within = offset - stream.plain;
        let end = within.saturating_add(len).min(stream.plain_len);
        let first = within / PLAIN_CHUNK_BYTES;
        let beyond = end.div_ceil(PLAIN_CHUNK_BYTES).min(first + CHUNKS_PER_READ);
        let key = self.key(&stream, stored)?;
        let from = first * STORED_CHUNK_BYTES;
        let to = (beyond * STORED_CHUNK_BYTES).min(encrypted_len(stream.plain_len) - SALT_BYTES);
        let bytes = stored(stream.stored + SALT_BYTES + from, to - from)?;
        let mut plain = Vec::with_capacity(bytes.len());
        for (chunk, index) in bytes.chunks(STORED_CHUNK_BYTES as usize).zip(first..) {
            let start = plain.len();
            let is_last = (index + 1) * PLAIN_CHUNK_BYTES >= stream.plain_len;
            plain.extend_from_slice(chunk);
            let opened = key
                .open_in_place(chunk_nonce(index), chunk_aad(is_last), &mut plain[start..])
                .map_err(|_| EncryptionError::Damaged("an encrypted chunk does not decrypt"))?
                .len();
            plain.truncate(start + opened);
        }
        let skip = (within - first * PLAIN_CHUNK_BYTES) as usize;
        let take = ((end - within) as usize).min(plain.len().saturating_sub(skip));
        Ok(Bytes::from(plain).slice(skip..skip + take))
    }

    fn key<E: From<EncryptionError>>(
        &self,
        stream: &Stream,
        stored: &dyn Fn(u64, u64) -> Result<Bytes, E>,
    ) -> Result<Arc<LessSafeKey>, E> {
        if let Some((plain, key)) = &*self.last.lock()
            && *plain == stream.plain
        {
            return Ok(Arc::clone(key));
        }
        let salt = stored(stream.stored, SALT_BYTES)?;
        let salt = salt.first_chunk().ok_or(EncryptionError::Damaged("an encrypted stream has no salt"))?;
        let key = Arc::new(stream_key(&self.data, salt));
        *self.last.lock() = Some((stream.plain, Arc::clone(&key)));
        Ok(key)
    }
}
