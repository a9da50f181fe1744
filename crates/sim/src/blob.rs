//! Content that is known by a number: made when it is written, made again when it is checked.
//!
//! Why: a model of thousands of objects should not hold their bytes, and no two writes may look alike.

use margay_env::sim::SimRandom;
use margay_env::{Env, Random};

/// Content of a length; different tags give different bytes (from one byte on, nearly always; from eight, always).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blob {
    pub tag: u64,
    pub len: usize,
}

impl Blob {
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        SimRandom::new(self.tag).fill(&mut bytes);
        bytes
    }
}

/// A number below `bound` from a real source, for what needs no repetition.
pub fn any_below(bound: u64) -> u64 {
    Env::real().random.next_u64() % bound.max(1)
}
