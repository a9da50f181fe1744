//! The chain of chunk signatures: each covers the previous one, back to the signature of the request.
//!
//! Invariants: H1 the chain advances only by a signature that it created itself or that verified.
//! Not here:   the framing (`body`).

use std::sync::Arc;

use ring::digest;

use super::date::AmzDate;
use super::hex;
use super::key::SigningKey;

const CHUNK_ALGORITHM: &str = "AWS4-HMAC-SHA256-PAYLOAD";
const TRAILER_ALGORITHM: &str = "AWS4-HMAC-SHA256-TRAILER";
/// The digest of an empty text, which precedes the digest of a chunk on a line of its own.
const EMPTY_SHA256_LINE: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n";

/// Signs or verifies the chunks of one body, in order.
#[derive(Clone, Debug)]
pub struct ChunkChain {
    key: Arc<SigningKey>,
    /// The date and scope lines of every string to sign.
    lines: String,
    previous: [u8; 64],
    text: Vec<u8>,
}

impl ChunkChain {
    pub(crate) fn new(key: Arc<SigningKey>, date: &AmzDate, seed: &[u8; 32]) -> ChunkChain {
        let lines = format!("\n{}\n{}\n", date.text(), key.scope());
        ChunkChain { key, lines, previous: hex::encode(seed), text: Vec::with_capacity(320) }
    }

    fn prepare(&mut self, algorithm: &str, before_digest: &str, digest: &digest::Digest) {
        let digest: &[u8; 32] = digest.as_ref().try_into().expect("SHA-256 gives 32 bytes");
        self.text.clear();
        self.text.extend_from_slice(algorithm.as_bytes());
        self.text.extend_from_slice(self.lines.as_bytes());
        self.text.extend_from_slice(&self.previous);
        self.text.push(b'\n');
        self.text.extend_from_slice(before_digest.as_bytes());
        self.text.extend_from_slice(&hex::encode(digest));
    }

    fn prepare_chunk(&mut self, digest: &digest::Digest) {
        self.prepare(CHUNK_ALGORITHM, EMPTY_SHA256_LINE, digest);
    }

    /// Checks the signature of the next chunk, given the SHA-256 of its payload.
    pub(crate) fn verify_chunk(&mut self, payload: &digest::Digest, signature: &[u8; 32]) -> bool {
        self.prepare_chunk(payload);
        self.advance_if_verified(signature)
    }

    /// Checks the signature of the trailer, given the SHA-256 of its canonical lines.
    pub(crate) fn verify_trailer(&mut self, lines: &digest::Digest, signature: &[u8; 32]) -> bool {
        self.prepare(TRAILER_ALGORITHM, "", lines);
        self.advance_if_verified(signature)
    }

    /// The signature of the next chunk in hex, given its payload.
    pub(crate) fn sign_chunk(&mut self, payload: &[u8]) -> [u8; 64] {
        self.prepare_chunk(&digest::digest(&digest::SHA256, payload));
        self.advance()
    }

    /// The signature of the trailer in hex, given its canonical lines.
    pub(crate) fn sign_trailer(&mut self, lines: &[u8]) -> [u8; 64] {
        self.prepare(TRAILER_ALGORITHM, "", &digest::digest(&digest::SHA256, lines));
        self.advance()
    }

    fn advance_if_verified(&mut self, signature: &[u8; 32]) -> bool {
        let verified = self.key.verifies(&self.text, signature);
        if verified {
            self.previous = hex::encode(signature);
        }
        verified
    }

    fn advance(&mut self) -> [u8; 64] {
        self.previous = hex::encode(&self.key.sign(&self.text));
        self.previous
    }
}
