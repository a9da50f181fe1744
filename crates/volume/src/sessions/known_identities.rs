//! Which identities the processes of a shared engine decide by, so that a change is answered when all of them know it.
//!
//! Why:        a right that was taken away at one process must not be used at another one after the answer.
//! Layout:     rows `j` `i` (docs/format/keys.md).
//! Invariants: N1 a process has its row before it reads identities for the first time, under each of its sessions: a change
//!                that does not see the row was committed before that read.
//!             N2 the row says what requests are decided by already, never what is still to be read.
//!             N3 the row goes with its session, whoever removes that.
//!             N4 an engine that is not shared has no such rows, and no cost.
//! Not here:   what identities mean, and how long a change waits (margay-accounts).

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use margay_rows::key;
use margay_rows::record::KnownIdentitiesRecord;

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::open::Volume;

impl Volume {
    /// From now on changes of other processes wait until this one knows them (N1). Call it before identities are read.
    pub async fn announce_identities(&self) -> Result<(), Error> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        self.sessions.knows_identities.store(true, Ordering::Release);
        self.know_identities(0).await
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

    /// Sessions of other processes that do not decide by this generation yet.
    pub async fn behind_identities(&self, generation: u64) -> Result<Vec<u64>, Error> {
        if !self.engine.is_shared() {
            return Ok(Vec::new());
        }
        let own = self.sessions.number().ok();
        let mut seen = Seen::default();
        let found = self.read_now(&mut seen, |seen| {
            let mut behind = Vec::new();
            self.scan(&key::all_known_identities(), seen, |row| {
                let session = key::parse_session(row.key)?;
                let known = KnownIdentitiesRecord::decode(row.value)?;
                if Some(session) != own && known.generation < generation {
                    behind.push(session.0);
                }
                Ok(ControlFlow::Continue(()))
            })?;
            Ok(behind)
        });
        let found = found.await;
        self.settle(seen.cursor).await?;
        found
    }
}
