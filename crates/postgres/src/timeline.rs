//! Which history the server's rows are of.
//!
//! Why:        after a fail-over, transactions that the old server had shown may be gone, and their numbers are given again: a row that is
//!             remembered under its version would be taken for another one. PostgreSQL counts such histories as timelines.
//! Invariants: T1 once a connection finds another timeline, nothing is committed until the follower was told to forget everything.
//!             T2 it is told again until it has gone on from another cursor, that is until all is forgotten.
//! Locking:    a leaf.
//! Not here:   what is forgotten (follower of margay-volume).

use margay_meta::{Cursor, EngineError};
use parking_lot::Mutex;

/// The current timeline: the first eight digits of the name of the log's file; null at a standby.
pub(crate) const TIMELINE: &str =
    "select case when not pg_is_in_recovery() then left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) end";

#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    known: Option<String>,
    doubt: Option<Doubt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The follower does not know it.
    Untold,
    /// It was told when it asked for what is after this.
    Told(Cursor),
}

impl Timeline {
    /// A new connection found this one.
    pub(crate) fn found(&self, timeline: &str) {
        let mut state = self.0.lock();
        match &state.known {
            Some(known) if known == timeline => return,
            Some(known) => {
                tracing::warn!(
                    timeline,
                    before = known,
                    "PostgreSQL was failed over or restored: all that is remembered is forgotten"
                );
                state.doubt = Some(Doubt::Untold);
            }
            None => {}
        }
        state.known = Some(timeline.to_owned());
    }

    pub(crate) fn known(&self) -> Option<String> {
        self.0.lock().known.clone()
    }

    /// T1.
    pub(crate) fn check_commit(&self) -> Result<(), EngineError> {
        match self.0.lock().doubt {
            Some(Doubt::Untold) => {
                let why = "PostgreSQL was failed over: what was remembered is being forgotten";
                Err(EngineError::Unavailable(why.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Whether who follows from there has to forget everything (T2).
    pub(crate) fn tells(&self, after: Cursor) -> bool {
        let mut state = self.0.lock();
        match state.doubt {
            None => false,
            Some(Doubt::Told(at)) if at != after => {
                state.doubt = None;
                false
            }
            Some(_) => {
                state.doubt = Some(Doubt::Told(after));
                true
            }
        }
    }

    /// As `tells`, for who only waits.
    pub(crate) fn is_doubted(&self) -> bool {
        self.0.lock().doubt.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_timeline_is_told_until_the_follower_goes_on() {
        let timeline = Timeline::default();
        timeline.found("00000001");
        timeline.found("00000001");
        assert!(!timeline.tells(Cursor(5)) && timeline.check_commit().is_ok());
        timeline.found("00000002");
        assert!(timeline.is_doubted() && timeline.check_commit().is_err());
        assert!(timeline.tells(Cursor(5)) && timeline.check_commit().is_ok(), "it may commit while it forgets");
        assert!(timeline.tells(Cursor(5)), "it has not gone on");
        // A second one meanwhile.
        timeline.found("00000003");
        assert!(timeline.check_commit().is_err() && timeline.tells(Cursor(4)));
        assert!(!timeline.tells(Cursor(6)) && !timeline.is_doubted());
    }
}
