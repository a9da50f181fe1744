//! Which server takes writes now, and whether what it shows is what all see.
//!
//! Why:        after a fail-over the old server may go on for a while: its Patroni was killed, or it was cut off, or it stood still. What it
//!             shows is old once the new one has taken a commit, and nobody tells those who are connected to it.
//! Invariants: U1 an answer to a read counts only within `LEASE` of the beginning of a commit that the same server has confirmed. That needs
//!                a standby, and none confirms to the old server once one of them has become the new one.
//!             U2 a server of another history is used only `LEASE` after it was found: by then no process reads from the old one (U1). So
//!                no commit is seen at the new one while others may still read the old one.
//!             U3 a connection is of one server and ends with its trust: what is under way there has no outcome, and is asked for.
//! Locking:    a leaf.
//! Not here:   how a server is found and asked (primary); one host in the URL has no other that could take its place: no leases.

use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;
use margay_meta::EngineError;
use parking_lot::Mutex;
use tokio::sync::watch;

/// A commit that writes no row, and waits for the standbys.
pub(crate) const BEAT: &str = "select pg_logical_emit_message(true, 'margay', '')";
/// U1, U2.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Trust {
    clock: Arc<dyn Clock>,
    /// Whether there are several hosts.
    is_leased: bool,
    state: Mutex<State>,
    /// How often a server was lost.
    losses: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    primary: Option<usize>,
    /// Why there is none.
    why: String,
    /// When the last confirmed commit began.
    confirmed: Option<Duration>,
    /// U2.
    usable_from: Duration,
}

/// Where to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Of those that the URL names.
    pub(crate) host: usize,
    /// At that time; a connection ends when there are more.
    pub(crate) losses: u64,
    /// Before it is used (U2).
    pub(crate) wait: Duration,
}

impl Trust {
    pub(crate) fn new(clock: Arc<dyn Clock>, is_leased: bool) -> Trust {
        let why = "PostgreSQL was not asked yet".to_owned();
        let state = State { primary: None, why, confirmed: None, usable_from: Duration::ZERO };
        Trust { clock, is_leased, state: Mutex::new(state), losses: watch::Sender::new(0) }
    }

    pub(crate) fn is_leased(&self) -> bool {
        self.is_leased
    }

    pub(crate) fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn losses(&self) -> watch::Receiver<u64> {
        self.losses.subscribe()
    }

    /// Whether a connection that was opened then has ended, or ends once it makes progress (U3).
    pub(crate) fn is_over(&self, losses: u64) -> bool {
        *self.losses.borrow() != losses
    }

    /// A server that takes writes. `may_be_new`: others may still read from another one.
    pub(crate) fn found(&self, host: usize, may_be_new: bool) {
        let now = self.now();
        let mut state = self.state.lock();
        (state.primary, state.confirmed) = (Some(host), None);
        if may_be_new && self.is_leased {
            state.usable_from = now + LEASE;
        }
    }

    /// It has confirmed a commit that began then.
    pub(crate) fn confirm(&self, began: Duration) {
        let mut state = self.state.lock();
        if state.primary.is_some() {
            state.confirmed = Some(began);
        }
    }

    /// U3.
    pub(crate) fn lose(&self, why: &str) {
        let mut state = self.state.lock();
        (state.primary, state.confirmed) = (None, None);
        why.clone_into(&mut state.why);
        self.losses.send_modify(|losses| *losses += 1);
    }

    /// None is there still.
    pub(crate) fn miss(&self, why: &str) {
        why.clone_into(&mut self.state.lock().why);
    }

    /// None before a commit is confirmed: else all connections would wait at a server that has no standby, and stay there.
    pub(crate) fn place(&self) -> Result<Place, EngineError> {
        let now = self.now();
        let state = self.state.lock();
        let (Some(host), Some(_)) = (state.primary, state.confirmed) else {
            return Err(EngineError::Unavailable(state.why.clone()));
        };
        Ok(Place { host, losses: *self.losses.borrow(), wait: state.usable_from.saturating_sub(now) })
    }

    /// U1, when the answer of a connection is there.
    pub(crate) fn check_read(&self, losses: u64) -> Result<(), EngineError> {
        if !self.is_leased {
            return Ok(());
        }
        let now = self.now();
        let state = self.state.lock();
        let is_fresh = state.confirmed.is_some_and(|began| now.saturating_sub(began) <= LEASE);
        if is_fresh && *self.losses.borrow() == losses {
            return Ok(());
        }
        let why = "PostgreSQL confirms no commits: another server may have taken its place, or no standby is there";
        Err(EngineError::Unavailable(why.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use margay_env::Timestamp;
    use margay_env::sim::SimClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn of(is_leased: bool) -> (Arc<SimClock>, Trust) {
        let clock = Arc::new(SimClock::new(Timestamp(0)));
        (Arc::clone(&clock), Trust::new(clock, is_leased))
    }

    #[test]
    fn a_read_counts_within_the_lease_of_a_commit_of_the_same_server() {
        let (clock, trust) = of(true);
        assert!(trust.place().is_err());
        trust.found(1, false);
        assert!(trust.place().is_err() && trust.check_read(0).is_err(), "nothing is confirmed");
        let began = trust.now();
        clock.advance(SECOND);
        trust.confirm(began);
        let place = trust.place().unwrap();
        assert_eq!((place.host, place.wait), (1, Duration::ZERO));
        clock.advance(LEASE - SECOND);
        trust.check_read(place.losses).unwrap();
        clock.advance(Duration::from_millis(1));
        assert!(trust.check_read(place.losses).is_err(), "it counts from the beginning of the commit");
        trust.confirm(trust.now());
        trust.check_read(place.losses).unwrap();
        trust.lose("it is gone");
        trust.found(0, false);
        trust.confirm(trust.now());
        assert!(trust.check_read(place.losses).is_err(), "an answer of the server before");
        trust.check_read(trust.place().unwrap().losses).unwrap();
    }

    #[test]
    fn a_new_server_is_used_when_nobody_reads_from_the_old_one() {
        let (clock, trust) = of(true);
        trust.found(0, true);
        trust.confirm(trust.now());
        clock.advance(SECOND);
        assert_eq!(trust.place().unwrap().wait, LEASE - SECOND);
        trust.lose("gone");
        // The same one again: the wait goes on.
        trust.found(0, false);
        trust.confirm(trust.now());
        assert_eq!(trust.place().unwrap().wait, LEASE - SECOND);
        clock.advance(LEASE);
        assert_eq!(trust.place().unwrap().wait, Duration::ZERO);
        let (_, trust) = of(false);
        trust.found(0, true);
        trust.confirm(trust.now());
        assert_eq!(trust.place().unwrap().wait, Duration::ZERO);
        trust.check_read(0).unwrap();
    }
}
