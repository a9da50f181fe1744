//! Encrypts a stream: takes bytes in pieces of any size, emits encrypted chunks.
//!
//! Invariants: E4 one chunk is buffered; it is held back until it is known whether another one follows, since its tag
//!                covers that.

use ring::aead::LessSafeKey;

use super::{DataKey, PLAIN_CHUNK_BYTES, SALT_BYTES, chunk_aad, chunk_nonce, stream_key};

pub(crate) struct Encryptor {
    key: LessSafeKey,
    /// Emitted before the first chunk.
    salt: Option<[u8; SALT_BYTES as usize]>,
    /// Number of bytes taken.
    taken: u64,
    /// Number of the chunk that is being filled.
    index: u64,
    chunk: Vec<u8>,
}

impl std::fmt::Debug for Encryptor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Encryptor").field("taken", &self.taken).finish_non_exhaustive()
    }
}

impl Encryptor {
    /// The salt is random.
    pub(crate) fn new(data: &DataKey, salt: [u8; SALT_BYTES as usize]) -> Encryptor {
        Encryptor { key: stream_key(data, &salt), salt: Some(salt), taken: 0, index: 0, chunk: Vec::new() }
    }

    /// Number of bytes taken.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Takes bytes, and passes complete chunks to `emit`.
    pub(crate) fn push<E>(&mut self, mut plain: &[u8], emit: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.taken += plain.len() as u64;
        while !plain.is_empty() {
            let free = PLAIN_CHUNK_BYTES as usize - self.chunk.len();
            if free == 0 {
                self.emit_chunk(false, emit)?;
                continue;
            }
            let (head, rest) = plain.split_at(free.min(plain.len()));
            self.chunk.extend_from_slice(head);
            plain = rest;
        }
        Ok(())
    }

    /// Emits the last chunk; no more bytes follow.
    pub(crate) fn finish<E>(&mut self, emit: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.chunk.is_empty() { Ok(()) } else { self.emit_chunk(true, emit) }
    }

    fn emit_chunk<E>(&mut self, is_last: bool, emit: &mut dyn FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        if let Some(salt) = self.salt.take() {
            emit(&salt)?;
        }
        let tag = self
            .key
            .seal_in_place_separate_tag(chunk_nonce(self.index), chunk_aad(is_last), &mut self.chunk)
            .expect("a chunk is far shorter than the cipher's limit");
        emit(&self.chunk)?;
        emit(tag.as_ref())?;
        self.index += 1;
        self.chunk.clear();
        Ok(())
    }
}
