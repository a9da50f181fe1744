//! A simulated disk, clock and random source, for tests of crashes and time.
//!
//! Why:        the real code over this disk shows the state that a power loss at any moment leaves.
//! Invariants: Z1 synced bytes and names survive every crash.
//!             Z2 each unsynced change may independently be kept, lost or torn.
//!             Z3 one seed and one order of calls give one outcome.
//! Locking:    one mutex per disk; a call is one step.

mod clock;
mod content;
mod crash;
mod disk;
mod file;
mod random;
mod tree;

pub use clock::SimClock;
pub use disk::SimDisk;
pub use random::SimRandom;

#[cfg(test)]
mod tests;
