//! Which identities the processes of a shared engine decide by, so that a change is answered when all of them know it.
//!
//! Why:        a right that was taken away at one process must not be used at another one after the answer.
//! Layout:     rows `j` `i` (docs/format/keys.md).
//! Invariants: N1 a process has its row before it reads identities for the first time: a change that does not see the row was
//!                committed before that read. Its next session has one from the beginning.
//!             N2 the row says what requests are decided by already, never what is still to be read.
//!             N3 a row without its session says nothing, and goes: programs of before these rows remove the session alone.
//!             N4 an engine that is not shared has no such rows, and no cost.
//! Not here:   what identities mean, and how long a change waits (margay-accounts).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use margay_rows::record::{KnownIdentitiesRecord, SessionRecord};
use margay_rows::{Ino, key};

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::error::Refused;
use crate::open::Volume;

/// A process that does not decide by a generation yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BehindSession {
    pub session: u64,
    /// Its host and process id; of a row that is not understood the number of the session.
    pub process: String,
}

impl Volume {
    /// From now on changes of other processes wait until this one knows them (N1). Call it before identities are read.
    pub async fn announce_identities(&self) -> Result<(), Error> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        self.sessions.knows_identities.store(true, Ordering::Release);
        match self.know_identities(0).await {
            // A start that took long: the session is renewed here, since nobody beats yet.
            Err(Error::Fenced) => self.open_session(),
            told => told,
        }
    }

    /// Requests are decided by this generation, or a newer one.
    pub async fn know_identities(&self, generation: u64) -> Result<(), Error> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        let done = self.decide_committed(Seen::default(), |seen| {
            let session = self.sessions.number()?;
            if self.get(&key::session(session), seen)?.is_none() {
                return Err(Error::Fenced.into());
            }
            let mut draft = Draft::default();
            draft.assert_session(session);
            draft.put(key::known_identities(session), KnownIdentitiesRecord { generation }.encode());
            self.finish(draft, ())
        });
        let done = done.await.map(|(value, done)| (value, self.place_of(done)));
        self.answer(done).await
    }

    /// Sessions of other processes that do not decide by this generation yet, or whose row is not understood.
    pub async fn behind_identities(&self, generation: u64) -> Result<Vec<BehindSession>, Error> {
        if !self.engine.is_shared() {
            return Ok(Vec::new());
        }
        let own = self.sessions.number().ok();
        let mut seen = Seen::default();
        let found = self.read_now(&mut seen, |seen| {
            let mut told = Vec::new();
            self.scan(&key::all_known_identities(), seen, |row| {
                let generation = KnownIdentitiesRecord::decode(row.value).map(|known| known.generation);
                told.push((key::parse_session(row.key)?, generation.unwrap_or(0)));
                Ok(ControlFlow::Continue(()))
            })?;
            // Behind that: a session of such a row that is not found now had begun, and is gone.
            let mut live = HashMap::new();
            self.scan(&key::sessions(), seen, |row| {
                live.insert(key::parse_session(row.key)?, SessionRecord::decode(row.value).ok());
                Ok(ControlFlow::Continue(()))
            })?;
            Ok((told, live))
        });
        let found = found.await;
        self.settle(seen.cursor).await?;
        let (told, mut live) = found?;
        let mut behind = Vec::new();
        for (session, known) in told {
            match live.remove(&session) {
                None => self.forget_known_identities(session).await?,
                Some(record) if Some(session) != own && known < generation => {
                    let process = record.map(|one| format!("{} (pid {})", one.host, one.pid));
                    let process = process.unwrap_or_else(|| format!("session {}", session.0));
                    behind.push(BehindSession { session: session.0, process });
                }
                Some(_) => {}
            }
        }
        Ok(behind)
    }

    /// Of a session that is gone, and never comes back (F2 of `session_state`).
    async fn forget_known_identities(&self, session: Ino) -> Result<(), Error> {
        let mut draft = Draft::default();
        draft.delete(key::known_identities(session));
        match self.commit_later(draft).await {
            Ok(_) | Err(Refused::Conflict) => Ok(()),
            Err(Refused::Error(error)) => Err(error),
        }
    }
}
