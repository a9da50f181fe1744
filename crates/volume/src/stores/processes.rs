//! What a volume asks about the other processes that share its rows.
//!
//! Why:        sessions and the stores of others are reached in ways that the file system does not know.
//! Not here:   how a session is kept alive, how another store is called.

use std::fmt::Debug;
use std::sync::Arc;

use margay_meta::Cursor;
use margay_segment::{Segments, StoreNumber};

use crate::api::Error;

/// The processes that share the rows of a volume.
pub trait Processes: Send + Sync + Debug {
    /// The number of this process's session.
    fn session(&self) -> u64;

    /// Whether a session may still commit. One that ended, or that was fenced, may not, and never again.
    fn is_live(&self, session: u64) -> Result<bool, Error>;

    /// No live process still reads what no row of this commit or a later one leads to: the least of what each has
    /// published, which it takes from [`crate::Volume::advance_readers`].
    fn oldest_reader(&self) -> Result<Cursor, Error>;
}

/// No other process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Processes for Alone {
    fn session(&self) -> u64 {
        0
    }

    fn is_live(&self, session: u64) -> Result<bool, Error> {
        Ok(session == self.session())
    }

    fn oldest_reader(&self) -> Result<Cursor, Error> {
        Ok(Cursor(u64::MAX))
    }
}

/// Stores of other processes.
pub trait Peers: Send + Sync + Debug {
    /// `None`: it cannot be reached now.
    fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>>;
}
