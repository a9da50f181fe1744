//! A volume's state in memory of its own session and of other sessions.
//!
//! Why:        the volume owns this state; the code that uses it is in a higher module (sessions).
//! Invariants: F1 after fencing, every commit is refused until there is a new session.
//! Locking:    leaf locks, never held during a call of the engine.
//! Not here:   the rows (sessions), readers (stores).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_meta::RowVersion;
use margay_rows::Ino;
use parking_lot::Mutex;

use crate::api::Error;

/// Description of a session for people.
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

/// Known state of another session: its beat, and the number of own beats with that value.
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
}

impl Sessions {
    /// Called before each commit.
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
