//! Server-side encryption: the bytes of an object are encrypted on their way to the store, and back.
//!
//! Why:        who gets hold of a disk or a copy of the segments learns nothing of an object's content.
//! Layout:     docs/format/encryption.md. `keys` who holds which key, `envelope` how an object's key is kept with it,
//!             `encryptor` and `decryptor` the stream of chunks.
//! Invariants: E1 every object has a data key of its own, which is stored only encrypted under a key that is not in
//!                the volume: the server's (SSE-S3, SSE-KMS) or the client's (SSE-C).
//!             E2 a stream has a key of its own, made from the data key and a random salt, so no nonce is used twice.
//!             E3 no byte is given out whose tag was not checked; cut, reordered or exchanged chunks do not pass.
//! Not here:   an object's rows (object_keys), which requests ask for it (the S3 door), the key file (the binary).

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

/// Plain bytes of a chunk; the last one of a stream may be shorter.
pub(crate) const PLAIN_CHUNK_BYTES: u64 = 64 << 10;
/// Bytes of a chunk's tag.
pub(crate) const TAG_BYTES: u64 = 16;
/// Random bytes at the begin of a stream, from which its key is made.
pub(crate) const SALT_BYTES: u64 = 32;

/// Says what a stream's key is for.
const STREAM_KEY_INFO: &[u8] = b"margay encrypted stream 1";

/// Bytes that a stream of so many plain bytes takes. Nothing is nothing.
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

/// What a chunk's tag covers besides its bytes and number: whether it is the last one of its stream.
fn chunk_aad(is_last: bool) -> Aad<[u8; 1]> {
    Aad::from([is_last.into()])
}
