//! The randomness port.
//!
//! Why: ids, keys and nonces must be unpredictable in production and repeatable in a simulation.

use std::fmt::Debug;

pub trait Random: Send + Sync + Debug {
    /// Fills `buffer`; the real source is cryptographically secure.
    fn fill(&self, buffer: &mut [u8]);

    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}
