//! Repeatable randomness: SplitMix64 (Steele, Lea, Flood 2014).
//!
//! Not here: anything fit for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Random;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug)]
pub struct SimRandom(AtomicU64);

impl SimRandom {
    pub fn new(seed: u64) -> SimRandom {
        SimRandom(AtomicU64::new(seed))
    }

    /// A number in `0..bound`; `bound` is above 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0);
        // The bias of the remainder is below 2^-40 for the small bounds of simulations.
        Random::next_u64(self) % bound
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

impl Random for SimRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            let bytes = Random::next_u64(self).to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }

    fn next_u64(&self) -> u64 {
        let mut mixed = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
