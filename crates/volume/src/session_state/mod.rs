//! This process's session, the other sessions of a shared engine, and what it knows of them in memory.
//!
//! Why:        the store is attached under a session, before there is a volume; and the volume owns this state, which
//!             code in a higher module uses (sessions).
//! Invariants: F1 after fencing, every commit is refused until there is a new session.
//!             F2 a session without a row never has one again, so its death is remembered.
//!             F3 what only a pin keeps is named under the session of the pin (`draft::stored_runs`).
//! Locking:    leaf locks, never held during a call of the engine.
//! Not here:   leases and the volume's own calls (sessions), readers (stores).

mod beat;
mod mount_lease;

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_meta::{Cursor, Engine, RowVersion};
use margay_rows::record::SessionRecord;
use margay_rows::{Ino, key};
use parking_lot::Mutex;

pub use self::beat::{Beat, STILL_BEATS_MAX};
pub(crate) use self::mount_lease::{MountLease, MountLeases};
use crate::api::Error;
use crate::draft::Draft;
use crate::stores::Processes;

/// Description of a session for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionName {
    pub host: String,
    pub pid: u32,
    pub program: String,
    /// Where other processes get the bytes of the own store; empty: nowhere.
    pub address: String,
}

/// This process's own session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnSession {
    pub(crate) number: Ino,
    pub(crate) version: RowVersion,
    pub(crate) beat: u64,
    /// The commit that began it.
    pub(crate) since: Cursor,
}

/// Known state of another session: its beat, and the number of own beats with that value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neighbour {
    pub(crate) beat: u64,
    pub(crate) seen: u32,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    engine: Arc<dyn Engine>,
    name: SessionName,
    own: Mutex<Option<OwnSession>>,
    neighbours: Mutex<HashMap<Ino, Neighbour>>,
    /// Sessions that are known to be gone (F2).
    dead: Mutex<HashSet<u64>>,
    fenced: AtomicBool,
    /// Each new session begins with a row that says which identities this process decides by.
    pub(crate) knows_identities: AtomicBool,
    /// The leases of the mounts of this process.
    pub(crate) mounts: MountLeases,
}

impl Sessions {
    pub(crate) fn new(engine: &Arc<dyn Engine>, name: &SessionName) -> Sessions {
        Sessions {
            engine: Arc::clone(engine),
            name: name.clone(),
            own: Mutex::default(),
            neighbours: Mutex::default(),
            dead: Mutex::default(),
            fenced: AtomicBool::new(false),
            knows_identities: AtomicBool::new(false),
            mounts: MountLeases::default(),
        }
    }

    /// Called before each commit.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.fenced.load(Ordering::Acquire) { Err(Error::Fenced) } else { Ok(()) }
    }

    /// The number of the own session.
    pub(crate) fn number(&self) -> Result<Ino, Error> {
        self.own.lock().map(|own| own.number).ok_or(Error::Fenced)
    }

    /// Binds the draft to the session: it commits only while that lives, if it makes a row refer to stored runs (K1 of
    /// `draft::stored_runs`).
    pub(crate) fn bind(&self, draft: &mut Draft) -> Result<(), Error> {
        if !self.engine.is_shared() || !draft.refers_to_stored_runs() {
            return Ok(());
        }
        let session = draft.rests_on().map_or_else(|| self.number(), Ok)?;
        draft.assert_session(session);
        Ok(())
    }

    /// The session that has kept, since then, what a pin at another store keeps; `Fenced` if it began later (K2).
    pub(crate) fn of_pin(&self, since: Cursor) -> Result<Ino, Error> {
        let own = self.own.lock().filter(|own| own.since <= since);
        own.map(|own| own.number).ok_or(Error::Fenced)
    }

    fn begin(&self, own: OwnSession) {
        self.neighbours.lock().clear();
        *self.own.lock() = Some(own);
        self.fenced.store(false, Ordering::Release);
    }

    fn fence(&self) {
        *self.own.lock() = None;
        if !self.fenced.swap(true, Ordering::AcqRel) {
            tracing::error!("another process took this one for dead; it commits nothing until it has a new session");
        }
    }

    /// All sessions except the own one.
    pub(crate) fn others(&self) -> Result<Vec<(Ino, RowVersion, SessionRecord)>, Error> {
        let own = self.number().ok();
        let mut others = Vec::new();
        let mut damaged = None;
        let (start, end) = key::sessions();
        self.engine.scan(&start, &end, &mut |row| {
            let read = key::parse_session(row.key).and_then(|number| Ok((number, SessionRecord::decode(row.value)?)));
            match read {
                Ok((number, _)) if Some(number) == own => {}
                Ok((number, record)) => others.push((number, row.version, record)),
                Err(error) => {
                    damaged = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        match damaged {
            Some(error) => Err(error.into()),
            None => Ok(others),
        }
    }
}

impl Processes for Sessions {
    fn session(&self) -> u64 {
        self.number().map_or(0, |number| number.0)
    }

    fn is_live(&self, session: u64) -> Result<bool, Error> {
        if session == 0 || self.dead.lock().contains(&session) {
            return Ok(false);
        }
        let is_live = self.engine.get(&key::session(Ino(session)))?.value.is_some();
        if !is_live {
            self.dead.lock().insert(session);
        }
        Ok(is_live)
    }

    fn oldest_reader(&self) -> Result<Cursor, Error> {
        let oldest = self.others()?.iter().map(|(.., record)| Cursor(record.oldest)).min();
        Ok(oldest.unwrap_or(Cursor(u64::MAX)))
    }
}
