//! A simulated disk, clock and random source, for tests of crashes and time.
//!
//! Why:        the real code over this disk shows what a power loss at any moment leaves behind.
//! Invariants: Z1 synced bytes and names survive every crash.  Z2 what was not synced may be kept, lost or torn,
//!             each change on its own.  Z3 one seed and one order of calls give one outcome.
//! Locking:    one mutex per disk; a call is one step.
//! Not here:   workloads and checkers (sim crate).

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
