//! The volume's own session: opened anew after fencing, renewed, ended.
//!
//! Invariants: see `sessions`. A new session takes the store's row over from the last one of this process in the same
//!             batch, unless another process has attached the folder since.
//! Not here:   how a session beats and dies (session_state), the first session (open).

use std::time::Duration;

use margay_meta::Cursor;

use crate::api::Error;
use crate::draft::Draft;
use crate::open::Volume;
use crate::session_state::Beat;

impl Volume {
    /// Opens a session if the engine is shared, after the last one was fenced or ended.
    pub fn open_session(&self) -> Result<(), Error> {
        if !self.engine.is_shared() {
            return Ok(());
        }
        let number = self.new_ino()?;
        let mut draft = Draft::default();
        self.stores.draft_session(&mut draft, number.0)?;
        self.sessions.open(number, self.advance_readers(), draft)?;
        // What was read before is read again, so that its pins count from a moment of this session (K2).
        self.advance_readers();
        self.keep_mounts();
        // Who follows identities reads them again, and says so under the new session (`known_identities`).
        self.followed.identities.notify(usize::MAX);
        Ok(())
    }

    /// Ends the session, so that other processes need not wait until it is declared dead.
    pub fn close_session(&self) -> Result<(), Error> {
        self.sessions.close()
    }

    /// The number of this volume's session; none if the engine is not shared, or after fencing.
    pub fn session(&self) -> Option<u64> {
        self.sessions.number().ok().map(|number| number.0)
    }

    /// Why this volume commits nothing, after another process declared it dead.
    pub fn session_fault(&self) -> Option<String> {
        self.sessions.check().err().map(|error| error.to_string())
    }

    /// The time between two calls of `beat`.
    pub fn beat_every(&self) -> Duration {
        self.options.beat_every
    }

    /// Renews this session and checks the others; blocks this thread. Returns `Fenced` if another process declared this
    /// one dead; then `open_session` starts a new session.
    pub fn beat(&self) -> Result<Beat, Error> {
        if !self.engine.is_shared() {
            return Ok(Beat::default());
        }
        let beat = self.sessions.beat(&|| self.advance_readers())?;
        self.keep_mounts();
        Ok(beat)
    }

    /// The session goes on without: another process may take these mounts over.
    fn keep_mounts(&self) {
        if let Err(error) = self.keep_mount_leases() {
            tracing::warn!(%error, "mounts that write could not be kept for this process; the next beat tries again");
        }
    }

    /// The oldest commit from which this process still reads segments of other stores; only for the session, which
    /// publishes it. Later reads see at least this commit.
    pub fn advance_readers(&self) -> Cursor {
        let now = self.engine.last_cursor();
        self.stores.readers.advance(now)
    }

    /// No other session reads a state older than this; `None` if there is no other session. Call it after the commit
    /// that removed the last reference to bytes, before the bytes are removed.
    pub fn oldest_reader(&self) -> Result<Option<Cursor>, Error> {
        if !self.engine.is_shared() {
            return Ok(None);
        }
        Ok(self.sessions.others()?.iter().map(|(.., record)| Cursor(record.oldest)).min())
    }
}
