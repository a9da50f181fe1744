//! Opening a session, its heartbeat, and the removal of dead sessions.
//!
//! Invariants: see `sessions` S1 and S2. An existing row is always the own one, because no other process puts it; so
//!             after a commit with an unknown result the row is read.
//! Not here:   leases of a session that is gone (lease).

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use margay_meta::{Cursor, RowVersion};
use margay_rows::record::SessionRecord;
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;
use crate::open::Volume;
use crate::seen::Seen;
use crate::session_state::{Neighbour, OwnSession};

/// Number of own acknowledged beats during which another session's beat must not change before that session is declared
/// dead.
pub const STILL_BEATS_MAX: u32 = 5;

/// Result of a beat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// Number of other known live sessions.
    pub others: usize,
    /// Numbers of sessions that were declared dead and removed.
    pub fenced: Vec<u64>,
}

impl Volume {
    /// Opens a session if the engine is shared; at the start, or after the session was fenced.
    pub fn open_session(&self) -> Result<(), Error> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        let number = self.new_ino()?;
        let mut draft = Draft::default();
        draft.assert_absent(key::session(number));
        draft.put(key::session(number), self.session_record(1).encode());
        match draft.commit(&*self.engine) {
            Ok(done) => {
                self.engine.wait_durable(done.cursor)?;
                self.sessions.begin(OwnSession { number, version: done.version, beat: 1 });
                Ok(())
            }
            Err(Refused::Conflict) => Err(Error::Corrupt(format!("the number {} has a session already", number.0))),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    /// Ends the session, so that other processes need not wait until it is declared dead.
    pub fn close_session(&self) -> Result<(), Error> {
        let Some(own) = self.sessions.own.lock().take() else { return Ok(()) };
        let mut draft = Draft::default();
        draft.delete(key::session(own.number));
        match draft.commit(&*self.engine) {
            Ok(done) => Ok(self.engine.wait_durable(done.cursor)?),
            Err(Refused::Conflict) => Ok(()),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    /// The number of this volume's session; none if the engine is not shared, or after fencing.
    pub fn session(&self) -> Option<u64> {
        self.sessions.number().ok().map(|number| number.0)
    }

    /// Why this volume commits nothing, after another process declared it dead.
    pub fn session_fault(&self) -> Option<String> {
        self.sessions.check().err().map(|error| error.to_string())
    }

    /// Renews this session and checks the others; blocks this thread. Returns `Fenced` if another process declared this
    /// one dead; then `open_session` starts a new session.
    pub fn beat(&self) -> Result<Beat, Error> {
        if !self.engine.is_shared() {
            return Ok(Beat::default());
        }
        let own = self.sessions.own.lock().ok_or(Error::Fenced)?;
        let own = match self.put_beat(own) {
            Err(Refused::Conflict) => {
                let found = self.own_row(own)?.ok_or_else(|| {
                    self.sessions.fence();
                    Error::Fenced
                })?;
                self.put_beat(found)
            }
            done => done,
        };
        match own {
            Ok(own) => *self.sessions.own.lock() = Some(own),
            // Another thread beats for this session; the next beat shows the result.
            Err(Refused::Conflict) => return Err(Error::Busy),
            Err(Refused::Error(error)) => return Err(error),
        }
        self.look_at_others()
    }

    fn session_record(&self, beat: u64) -> SessionRecord {
        let name = &self.options.session_name;
        let oldest = self.advance_readers();
        SessionRecord { beat, oldest: oldest.0, host: name.host.clone(), pid: name.pid, program: name.program.clone() }
    }

    /// The beat counts only once it is durable.
    fn put_beat(&self, own: OwnSession) -> Result<OwnSession, Refused> {
        let beat = own.beat + 1;
        let mut draft = Draft::default();
        draft.assert_version(key::session(own.number), own.version);
        draft.put(key::session(own.number), self.session_record(beat).encode());
        let done = draft.commit(&*self.engine)?;
        self.engine.wait_durable(done.cursor)?;
        Ok(OwnSession { version: done.version, beat, ..own })
    }

    fn own_row(&self, own: OwnSession) -> Result<Option<OwnSession>, Error> {
        let Some(row) = self.row(&key::session(own.number))?.value else { return Ok(None) };
        let record = SessionRecord::decode(&row.value)?;
        Ok(Some(OwnSession { version: row.version, beat: record.beat.max(own.beat), ..own }))
    }

    /// All sessions except the own one.
    fn other_sessions(&self) -> Result<Vec<(Ino, RowVersion, SessionRecord)>, Error> {
        let own = self.sessions.number().ok();
        let mut others = Vec::new();
        self.scan(&key::sessions(), &mut Seen::default(), |row| {
            let number = key::parse_session(row.key)?;
            if Some(number) != own {
                others.push((number, row.version, SessionRecord::decode(row.value)?));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(others)
    }

    fn look_at_others(&self) -> Result<Beat, Error> {
        let others = self.other_sessions()?;
        let dead: Vec<_> = {
            let mut known = self.sessions.neighbours.lock();
            let listed: HashSet<Ino> = others.iter().map(|(number, ..)| *number).collect();
            known.retain(|number, _| listed.contains(number));
            others.iter().filter(|(number, _, record)| stands_still(&mut known, *number, record.beat)).collect()
        };
        let mut fenced = Vec::new();
        for (number, version, record) in dead {
            let mut draft = Draft::default();
            draft.assert_version(key::session(*number), *version);
            draft.delete(key::session(*number));
            match draft.commit(&*self.engine) {
                Ok(done) => {
                    self.engine.wait_durable(done.cursor)?;
                    tracing::warn!(
                        session = number.0,
                        host = record.host,
                        pid = record.pid,
                        "a process is taken for dead"
                    );
                    fenced.push(number.0);
                }
                // The session is alive, or another process removed it first.
                Err(Refused::Conflict) => {}
                Err(Refused::Error(error)) => return Err(error),
            }
        }
        Ok(Beat { others: others.len() - fenced.len(), fenced })
    }

    /// No other session reads a state older than this; `None` if there is no other session. Call it after the commit
    /// that removed the last reference to bytes, before the bytes are removed.
    pub fn oldest_reader(&self) -> Result<Option<Cursor>, Error> {
        if !self.engine.is_shared() {
            return Ok(None);
        }
        Ok(self.other_sessions()?.iter().map(|(.., record)| Cursor(record.oldest)).min())
    }
}

/// Counts one more own beat; true if the other session's beat did not change over enough of them (S1).
fn stands_still(known: &mut HashMap<Ino, Neighbour>, number: Ino, beat: u64) -> bool {
    let neighbour = known.entry(number).or_insert(Neighbour { beat, seen: 0 });
    if neighbour.beat != beat {
        *neighbour = Neighbour { beat, seen: 0 };
    }
    neighbour.seen += 1;
    // The number of own beats since the first look is one less than the number of looks.
    neighbour.seen > STILL_BEATS_MAX
}
