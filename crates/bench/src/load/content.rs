//! What the objects of a load hold, and whether they come back as they went.
//!
//! Why:        a load that nobody checks can be fast and wrong. The bytes follow from the key, the length and a stamp
//!             in the first eight bytes, so a reader needs no record of writes, and a mix of two writes shows.
//! Invariants: C1 a body of fewer than `STAMPED_BYTES_MIN` bytes has stamp 0 and no room for it.
//! Not here:   sending and receiving (`worker`).

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};

use crate::random::{Rng, mix};
use margay_client::PayloadHash;
use margay_client::payload::{Chunks, Payload};

/// Random bytes that all bodies are cut from; a power of two.
const RING_BYTES: usize = 4 << 20;
/// Bodies of this size and more begin with their stamp.
const STAMPED_BYTES_MIN: u64 = 16;
const STAMP_BYTES: u64 = 8;
/// Bodies up to this size are sent whole, larger ones in pieces of this size.
const PIECE_BYTES: u64 = 256 << 10;

const _: () = assert!(RING_BYTES.is_power_of_two() && PIECE_BYTES < RING_BYTES as u64);

/// The source of all bodies; cheap to clone.
#[derive(Clone)]
pub(super) struct Content {
    ring: Bytes,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Content")
    }
}

/// A place in the ring from which a body is read on.
#[derive(Clone, Debug)]
struct Cursor {
    ring: Bytes,
    stamp: u64,
    start: u64,
    position: u64,
    length: u64,
}

impl Cursor {
    fn new(content: &Content, key: &str, length: u64, stamp: u64) -> Cursor {
        let stamp = if length < STAMPED_BYTES_MIN { 0 } else { stamp };
        let mut hash = mix(length ^ mix(stamp));
        for byte in key.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Cursor { ring: content.ring.clone(), stamp, start: mix(hash) % RING_BYTES as u64, position: 0, length }
    }

    /// The next bytes, up to `limit`, without copying; empty at the end.
    fn next(&mut self, limit: u64) -> Bytes {
        let left = self.length - self.position;
        if self.length >= STAMPED_BYTES_MIN && self.position < STAMP_BYTES {
            let stamp = Bytes::copy_from_slice(&self.stamp.to_le_bytes()[self.position as usize..]);
            let stamp = stamp.slice(..stamp.len().min(limit as usize));
            self.position += stamp.len() as u64;
            return stamp;
        }
        let at = ((self.start + self.position) % RING_BYTES as u64) as usize;
        let count = left.min(limit).min((RING_BYTES - at) as u64);
        self.position += count;
        self.ring.slice(at..at + count as usize)
    }
}

impl Chunks for Cursor {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        let chunk = self.next(PIECE_BYTES);
        Poll::Ready(Ok((!chunk.is_empty()).then_some(chunk)))
    }
}

impl Content {
    pub(super) fn new(seed: u64) -> Content {
        let mut rng = Rng::new(seed);
        let mut ring = BytesMut::with_capacity(RING_BYTES);
        while ring.len() < RING_BYTES {
            ring.extend_from_slice(&rng.next().to_le_bytes());
        }
        Content { ring: ring.freeze() }
    }

    /// The body of `key` with this length and stamp, and what a signature over it says when `hashed`.
    pub(super) fn body(&self, key: &str, length: u64, stamp: u64, hashed: bool) -> (Payload, PayloadHash) {
        let cursor = Cursor::new(self, key, length, stamp);
        let hash = if hashed { sha256(cursor.clone()) } else { PayloadHash::Unsigned };
        if length > PIECE_BYTES {
            return (Payload::Stream(Box::new(cursor), length), hash);
        }
        (Payload::Whole(whole(cursor)), hash)
    }

    pub(super) fn check(&self, key: &str, length: u64) -> Check {
        Check { content: self.clone(), key: key.into(), length, head: Vec::new(), cursor: None, right: true }
    }
}

fn whole(mut cursor: Cursor) -> Bytes {
    let mut body = BytesMut::with_capacity(cursor.length as usize);
    loop {
        let piece = cursor.next(PIECE_BYTES);
        if piece.is_empty() {
            return body.freeze();
        }
        body.extend_from_slice(&piece);
    }
}

fn sha256(mut cursor: Cursor) -> PayloadHash {
    use sha2::{Digest, Sha256};
    let mut digest = Sha256::new();
    loop {
        let piece = cursor.next(PIECE_BYTES);
        if piece.is_empty() {
            return PayloadHash::Sha256(digest.finalize().into());
        }
        digest.update(&piece);
    }
}

/// Compares a body that comes in pieces with what it must be.
#[derive(Debug)]
pub(super) struct Check {
    content: Content,
    key: Arc<str>,
    length: u64,
    /// The first bytes, until there are enough to read the stamp.
    head: Vec<u8>,
    cursor: Option<Cursor>,
    right: bool,
}

impl Check {
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.cursor.is_none() {
            self.head.extend_from_slice(bytes);
            if self.length >= STAMPED_BYTES_MIN && (self.head.len() as u64) < STAMP_BYTES {
                return;
            }
            let stamp = match self.head.first_chunk::<{ STAMP_BYTES as usize }>() {
                Some(stamp) if self.length >= STAMPED_BYTES_MIN => u64::from_le_bytes(*stamp),
                _ => 0,
            };
            self.cursor = Some(Cursor::new(&self.content, &self.key, self.length, stamp));
            let head = std::mem::take(&mut self.head);
            self.compare(&head);
        } else {
            self.compare(bytes);
        }
    }

    fn compare(&mut self, mut bytes: &[u8]) {
        let cursor = self.cursor.as_mut().expect("set by the first feed");
        while !bytes.is_empty() {
            let wanted = cursor.next(bytes.len() as u64);
            if wanted.is_empty() || wanted != bytes[..wanted.len()] {
                self.right = false;
                return;
            }
            bytes = &bytes[wanted.len()..];
        }
    }

    /// Whether all bytes came and were right.
    pub(super) fn finish(self) -> bool {
        let complete = match &self.cursor {
            Some(cursor) => cursor.position == self.length,
            None => self.length == 0,
        };
        self.right && complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_recognised_and_damage_is_not() {
        let content = Content::new(7);
        for length in [0, 1, 7, 8, 15, 16, 17, 1024, PIECE_BYTES, PIECE_BYTES + 1, RING_BYTES as u64 + 9] {
            let body = whole(Cursor::new(&content, "key", length, 99));
            assert_eq!(body.len() as u64, length);
            for piece in [1, 5, 4096, usize::MAX] {
                if length > 100_000 && piece < 100 {
                    continue;
                }
                let mut check = content.check("key", length);
                body.chunks(piece.min(body.len().max(1))).for_each(|bytes| check.feed(bytes));
                assert!(check.finish(), "{length} bytes in pieces of {piece}");
            }
            let mut other = content.check("other", length);
            other.feed(&body);
            assert_eq!(other.finish(), length == 0, "{length} bytes of another key");
            let mut short = content.check("key", length);
            short.feed(&body[..body.len().saturating_sub(1)]);
            assert_eq!(short.finish(), length == 0, "{length} bytes, one missing");
            let mut long = content.check("key", length);
            long.feed(&body);
            long.feed(b"x");
            assert!(!long.finish(), "{length} bytes and one more");
        }
    }

    #[test]
    fn a_mix_of_two_writes_is_not_right() {
        let content = Content::new(7);
        let first = whole(Cursor::new(&content, "key", 4096, 1));
        let second = whole(Cursor::new(&content, "key", 4096, 2));
        assert_ne!(first[8..], second[8..]);
        let mut check = content.check("key", 4096);
        check.feed(&first[..2048]);
        check.feed(&second[2048..]);
        assert!(!check.finish());
    }
}
