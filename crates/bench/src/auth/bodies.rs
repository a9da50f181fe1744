//! The bodies that are sent: a few hundred, cut from one ring of random bytes, with their SHA-256.
//!
//! Why:        "precomputed" is a word of the seed: hashing for V4 must not share the processor with the server's work.
//! Invariants: object i holds body i modulo their number, in every case, so a GET can be compared with it.

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::load::SizeRange;
use crate::random::Rng;

/// Distinct bodies of a run.
const BODIES: u64 = 256;
/// Random bytes that a body is cut from, besides its own length.
const SLACK_BYTES: u64 = 4 << 20;

#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) sha256: [u8; 32],
}

#[derive(Debug)]
pub(super) struct Bodies(Vec<Body>);

impl Bodies {
    pub(super) fn new(size: SizeRange, keys: u64, seed: u64) -> Bodies {
        let mut rng = Rng::new(seed);
        let mut ring = BytesMut::new();
        while (ring.len() as u64) < size.most + SLACK_BYTES {
            ring.extend_from_slice(&rng.next().to_le_bytes());
        }
        let ring = ring.freeze();
        let body = |_| {
            let length = size.least + rng.below(size.most - size.least + 1);
            let start = rng.below(SLACK_BYTES);
            let bytes = ring.slice(start as usize..(start + length) as usize);
            let sha256 = Sha256::digest(&bytes).into();
            Body { bytes, sha256 }
        };
        Bodies((0..BODIES.min(keys)).map(body).collect())
    }

    /// The body of an object.
    pub(super) fn of(&self, index: u64) -> &Body {
        &self.0[(index % self.0.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_asked_sizes_and_repeat_with_the_seed() {
        let size = SizeRange { least: 10, most: 20 };
        let (one, two) = (Bodies::new(size, 1000, 7), Bodies::new(size, 1000, 7));
        for index in 0..1000 {
            let body = one.of(index);
            assert!((10..=20).contains(&body.bytes.len()));
            assert_eq!(body.bytes, two.of(index).bytes);
            assert_eq!(body.sha256, <[u8; 32]>::from(Sha256::digest(&body.bytes)));
        }
        assert_eq!(Bodies::new(size, 3, 7).0.len(), 3);
    }
}
