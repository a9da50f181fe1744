//! Opening a session, its heartbeat, and the removal of dead sessions.
//!
//! Invariants: see `sessions` S1 and S2. An existing row is always the own one, because no other process puts it; so
//!             after a commit with an unknown result the row is read.
//! Not here:   leases of a session that is gone (sessions).

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;

use margay_meta::Cursor;
use margay_rows::record::{KnownIdentitiesRecord, SessionRecord};
use margay_rows::{Ino, key};

use super::{Neighbour, OwnSession, SessionName, Sessions};
use crate::api::Error;
use crate::draft::Draft;
use crate::error::Refused;

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

impl Sessions {
    /// Opens a session of this number together with what `draft` has; at the start, or after the last one was fenced.
    pub(crate) fn open(&self, number: Ino, oldest: Cursor, mut draft: Draft) -> Result<(), Error> {
        draft.assert_absent(key::session(number));
        draft.put(key::session(number), self.record(1, oldest).encode());
        if self.knows_identities.load(Ordering::Acquire) {
            draft.put(key::known_identities(number), KnownIdentitiesRecord::default().encode());
        }
        match draft.commit(&*self.engine) {
            Ok(done) => {
                self.engine.wait_durable(done.cursor)?;
                self.begin(OwnSession { number, version: done.version, beat: 1, since: done.cursor });
                Ok(())
            }
            Err(Refused::Conflict) => Err(Error::Busy),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    /// Ends the session, so that other processes need not wait until it is declared dead.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let Some(own) = self.own.lock().take() else { return Ok(()) };
        let mut draft = Draft::default();
        remove(&mut draft, own.number);
        match draft.commit(&*self.engine) {
            Ok(done) => Ok(self.engine.wait_durable(done.cursor)?),
            Err(Refused::Conflict) => Ok(()),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    /// Renews this session and checks the others; blocks this thread. `oldest` gives the oldest commit that this process
    /// still reads.
    pub(crate) fn beat(&self, oldest: &dyn Fn() -> Cursor) -> Result<Beat, Error> {
        let own = self.own.lock().ok_or(Error::Fenced)?;
        let own = match self.put_beat(own, oldest()) {
            Err(Refused::Conflict) => {
                let found = self.own_row(own)?.ok_or_else(|| {
                    self.fence();
                    Error::Fenced
                })?;
                self.put_beat(found, oldest())
            }
            done => done,
        };
        match own {
            Ok(own) => *self.own.lock() = Some(own),
            // Another thread beats for this session; the next beat shows the result.
            Err(Refused::Conflict) => return Err(Error::Busy),
            Err(Refused::Error(error)) => return Err(error),
        }
        // Nobody takes this one for dead, whatever is wrong with the rows of others.
        Ok(self.look_at_others().unwrap_or_else(|error| {
            tracing::warn!(%error, "whether other processes live is not known; the next beat tries again");
            Beat::default()
        }))
    }

    fn record(&self, beat: u64, oldest: Cursor) -> SessionRecord {
        let SessionName { host, pid, program, address } = self.name.clone();
        SessionRecord { beat, oldest: oldest.0, host, pid, program, address }
    }

    /// The beat counts only once it is durable.
    fn put_beat(&self, own: OwnSession, oldest: Cursor) -> Result<OwnSession, Refused> {
        let beat = own.beat + 1;
        let mut draft = Draft::default();
        draft.assert_version(key::session(own.number), own.version);
        draft.put(key::session(own.number), self.record(beat, oldest).encode());
        let done = draft.commit(&*self.engine)?;
        self.engine.wait_durable(done.cursor)?;
        Ok(OwnSession { version: done.version, beat, ..own })
    }

    fn own_row(&self, own: OwnSession) -> Result<Option<OwnSession>, Error> {
        let Some(row) = self.engine.get(&key::session(own.number))?.value else { return Ok(None) };
        let record = SessionRecord::decode(&row.value)?;
        Ok(Some(OwnSession { version: row.version, beat: record.beat.max(own.beat), ..own }))
    }

    fn look_at_others(&self) -> Result<Beat, Error> {
        let others = self.others()?;
        let dead: Vec<_> = {
            let mut known = self.neighbours.lock();
            let listed: HashSet<Ino> = others.iter().map(|(number, ..)| *number).collect();
            known.retain(|number, _| listed.contains(number));
            others.iter().filter(|(number, _, record)| stands_still(&mut known, *number, record.beat)).collect()
        };
        let mut fenced = Vec::new();
        for (number, version, record) in dead {
            let mut draft = Draft::default();
            draft.assert_version(key::session(*number), *version);
            remove(&mut draft, *number);
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
}

/// A session, and what its process said under it.
fn remove(draft: &mut Draft, session: Ino) {
    draft.delete(key::session(session));
    draft.delete(key::known_identities(session));
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
