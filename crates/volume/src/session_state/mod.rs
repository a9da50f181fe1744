//! What a volume remembers of its session and of others, and what it reads of their data.
//!
//! Why:        the volume keeps it; what is done with it stands above the volume (sessions).
//! Invariants: once fenced, every commit is refused until there is a new session.
//! Locking:    leaf locks, never held over a call of the engine.
//! Not here:   the rows (sessions).

mod readers;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_meta::RowVersion;
use margay_rows::Ino;
use parking_lot::Mutex;

pub use self::readers::ReaderGuard;
pub(crate) use self::readers::Readers;
use crate::api::Error;

/// Who a session is, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionName {
    pub host: String,
    pub pid: u32,
    pub program: String,
}

/// This process's own session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSession {
    pub(crate) number: Ino,
    pub(crate) version: RowVersion,
    pub(crate) beat: u64,
}

/// What is known of another session: its beat, and how many own beats saw it so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    pub(crate) beat: u64,
    pub(crate) seen: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub(crate) own: Mutex<Option<OwnSession>>,
    pub(crate) neighbours: Mutex<HashMap<Ino, Neighbour>>,
    fenced: AtomicBool,
    pub(crate) readers: Arc<Readers>,
}

impl Sessions {
    /// Asked before each commit.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.fenced.load(Ordering::Acquire) { Err(Error::Fenced) } else { Ok(()) }
    }

    /// The number of the own session.
    pub(crate) fn number(&self) -> Result<Ino, Error> {
        self.own.lock().map(|own| own.number).ok_or(Error::Fenced)
    }

    pub(crate) fn begin(&self, own: OwnSession) {
        self.neighbours.lock().clear();
        *self.own.lock() = Some(own);
        self.fenced.store(false, Ordering::Release);
    }

    pub(crate) fn fence(&self) {
        *self.own.lock() = None;
        if !self.fenced.swap(true, Ordering::AcqRel) {
            tracing::error!("another process took this one for dead; it commits nothing until it has a new session");
        }
    }
}
