//! The outside world: disk, clock and randomness, real or simulated.
//!
//! Why:        every crate reaches the outside world only through these ports. So a test can run the real code over a
//!             disk that loses unsynced writes and a clock that the test moves.
//! Invariants: E1 only this crate calls `std::fs`, `SystemTime::now` or a random source (clippy denies it elsewhere).
//!             E2 a port says what is durable: bytes after `File::sync_data`, names after `Disk::sync_dir`.
//! Not here:   the content of files (segment, meta), networking (the doors use tokio directly).
//!
//! A production program calls [`Env::real`]; a test builds an [`Env`] from [`sim::SimDisk`] and [`sim::SimClock`].

pub mod checksum_line;
mod clock;
mod disk;
pub mod fault;
pub mod files;
pub mod output;
pub mod proc;
mod random;
pub mod real;
pub mod sim;
pub mod stream;

use std::sync::Arc;

pub use clock::{Clock, Timestamp};
pub use disk::{DirEntry, Disk, File, LockHandle, OpenMode, Space};
pub use random::Random;
pub use stream::{Front, Written};

/// The ports that a component receives; cheap to clone.
#[derive(Clone, Debug)]
pub struct Env {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Env {
    /// The ports of this machine.
    pub fn real() -> Env {
        Env {
            disk: Arc::new(real::RealDisk),
            clock: Arc::new(real::RealClock::new()),
            random: Arc::new(real::RealRandom),
        }
    }
}
