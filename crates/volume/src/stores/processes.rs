//! Ports to the other processes that share a volume's rows.
//!
//! Why:        the file system does not know how their sessions and stores are reached.
//! Not here:   sessions, which are one implementation (session_state), calls to another store.

use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use margay_meta::Cursor;
use margay_rows::Ino;
use margay_segment::{Extent, SegmentError, Segments, StoreNumber};

use crate::api::Error;

/// The processes that share the rows of a volume.
pub trait Processes: Send + Sync + Debug {
    /// The number of this process's session.
    fn session(&self) -> u64;

    /// Whether a session may still commit. An ended or fenced session never may again.
    fn is_live(&self, session: u64) -> Result<bool, Error>;

    /// No live process still reads anything that only rows before this commit refer to: the minimum of the commits that
    /// the processes published, from [`crate::Volume::advance_readers`].
    fn oldest_reader(&self) -> Result<Cursor, Error>;
}

/// There is no other process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Alone;

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

/// Lets bytes go that another store has too.
pub trait Evict: Send + Sync + Debug {
    /// Whether so many bytes are only here that no content should be added before the other store has some of them.
    fn is_full(&self) -> bool;

    /// About so many of them; may wait until the other store has some that are only here. False: none went, and waiting was
    /// in vain.
    fn evict(&self, bytes: u64) -> bool;
}

/// Knows what another store has that is not here.
pub trait Absences: Send + Sync + Debug {
    /// `Err`: whether a name that is not in this directory is there is not known, and why.
    fn known(&self, directory: Ino) -> Result<(), String>;
}

/// Stores of other processes.
pub trait Peers: Send + Sync + Debug {
    /// `None` if it cannot be reached now.
    fn store(&self, number: StoreNumber) -> Option<Arc<dyn Segments>>;

    /// Reads from a store; when it is silent for a moment, another one is asked too (`spare`), and the first good answer counts. `None`:
    /// each store is asked by itself.
    fn read_first(
        &self,
        _first: StoreNumber,
        _spare: &dyn Fn() -> Option<StoreNumber>,
        _what: (&Extent, u64, u64),
    ) -> Option<Result<Bytes, SegmentError>> {
        None
    }

    /// Whether it did not answer a moment ago, so that others are asked before it.
    fn is_doubted(&self, _number: StoreNumber) -> bool {
        false
    }
}
