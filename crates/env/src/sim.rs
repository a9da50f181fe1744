//! Simulated disk, clock and randomness: written next.
