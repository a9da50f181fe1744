//! Server-side encryption: an object's bytes are encrypted before they are stored, and decrypted on reads.
//!
//! Why:        somebody who obtains a disk or a copy of the segments learns nothing about an object's content.
//! Layout:     docs/format/encryption.md. `keys`: kinds of keys, `envelope`: stored data keys, `encryptor`,
//!             `decryptor`: streams.
//! Invariants: E1 every object has a data key of its own, stored only encrypted under a key outside the volume: the
//!                server's (SSE-S3, SSE-KMS) or the client's (SSE-C).
//!             E2 a stream has a key of its own, from the data key and a random salt, so no nonce is used twice.
//!             E3 no byte is returned before its tag was verified; truncated, reordered or exchanged chunks fail.
//! Not here:   an object's rows (object_keys), requests for encryption (the S3 door), the key file (margay-accounts).

mod decryptor;
mod encryptor;
mod envelope;
mod error;
mod keys;
#[cfg(test)]
mod tests;

pub(crate) use decryptor::Encrypted;
pub(crate) use encryptor::Encryptor;
pub use envelope::Protection;
pub(crate) use envelope::{Envelope, decode_protection};
pub use error::EncryptionError;
pub use keys::{CustomerKey, DataKey, KEY_NAME_BYTES_MAX, MASTER_KEY_BYTES, MasterKeys, WrappingKey};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;

/// Unencrypted bytes per chunk; the last one of a stream may be shorter.
pub(crate) const PLAIN_CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of a chunk's tag.
pub(crate) const TAG_BYTES: u64 = 16;
/// Random bytes at the start of a stream, from which its key is derived.
pub(crate) const SALT_BYTES: u64 = 32;

/// Context of the stream key's derivation.
const STREAM_KEY_INFO: &[u8] = b"margay encrypted stream 1";

/// Stored size of a stream with this many unencrypted bytes; 0 for an empty one.
pub(crate) fn encrypted_len(plain: u64) -> u64 {
    if plain == 0 { 0 } else { SALT_BYTES + plain + plain.div_ceil(PLAIN_CHUNK_BYTES) * TAG_BYTES }
}

/// The key of the stream that begins with this salt.
fn stream_key(data: &DataKey, salt: &[u8; SALT_BYTES as usize]) -> LessSafeKey {
    let secret = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(data.bytes());
    let info = [STREAM_KEY_INFO];
    let key = secret.expand(&info, &AES_256_GCM).expect("a key is far shorter than HKDF's limit");
    LessSafeKey::new(UnboundKey::from(key))
}

/// The nonce of a chunk: its number. The key is this stream's alone (E2).
fn chunk_nonce(index: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&index.to_be_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// Additional data of a chunk's tag: whether it is the last one of its stream.
fn chunk_aad(is_last: bool) -> Aad<[u8; 1]> {
    Aad::from([is_last.into()])
}
