//! Limits failed sign-ins, by peer, by access key, and by both.
//!
//! Why:        secrets that people choose can be guessed if guesses are free. Behind a proxy all people are one peer: who fails again and
//!             again with one key must not keep the others out.
//! Invariants: T1 within `WINDOW` a peer has `FAILURES_PER_PAIR_MAX` failures with one key, and `FAILURES_PER_PEER_MAX` with all; a key
//!                has `FAILURES_PER_KEY_MAX` from everywhere.
//!             T2 at most `REMEMBERED_MAX` of them are remembered: then the oldest goes.
//! Locking:    one mutex, held for look-ups in memory.
//! Not here:   who is right (`sign_in`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

/// For how long a failure counts.
pub const WINDOW: Duration = Duration::from_secs(60);
pub const FAILURES_PER_PAIR_MAX: u32 = 10;
pub const FAILURES_PER_PEER_MAX: u32 = 100;
/// More than of a peer: a stranger should not be able to keep a user out by a few guesses.
pub const FAILURES_PER_KEY_MAX: u32 = 50;
const REMEMBERED_MAX: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Pair(Option<IpAddr>, String),
    Peer(Option<IpAddr>),
    Key(String),
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    since: Duration,
    count: u32,
}

/// Failures of late; times are of the monotonic clock.
#[derive(Debug, Default)]
pub struct Throttle {
    failures: Mutex<HashMap<Who, Failures>>,
}

impl Throttle {
    /// `Err` is how long the peer has to wait.
    pub fn check(&self, peer: Option<IpAddr>, access_key: &str, now: Duration) -> Result<(), Duration> {
        let failures = self.failures.lock();
        for (who, max) in limits(peer, access_key) {
            if let Some(found) = failures.get(&who) {
                let passed = now.saturating_sub(found.since);
                if passed < WINDOW && found.count >= max {
                    return Err(WINDOW.saturating_sub(passed));
                }
            }
        }
        Ok(())
    }

    /// Takes back one failure that was counted before it was known to be none.
    pub fn was_right(&self, peer: Option<IpAddr>, access_key: &str) {
        let mut failures = self.failures.lock();
        for (who, _) in limits(peer, access_key) {
            if let Some(found) = failures.get_mut(&who) {
                found.count = found.count.saturating_sub(1);
            }
        }
    }

    pub fn failed(&self, peer: Option<IpAddr>, access_key: &str, now: Duration) {
        let mut failures = self.failures.lock();
        for (who, _) in limits(peer, access_key) {
            if failures.len() >= REMEMBERED_MAX && !failures.contains_key(&who) {
                failures.retain(|_, found| now.saturating_sub(found.since) < WINDOW);
                make_room(&mut failures);
            }
            let found = failures.entry(who).or_insert(Failures { since: now, count: 0 });
            if now.saturating_sub(found.since) >= WINDOW {
                *found = Failures { since: now, count: 0 };
            }
            found.count = found.count.saturating_add(1);
        }
    }
}

fn make_room(failures: &mut HashMap<Who, Failures>) {
    if failures.len() < REMEMBERED_MAX {
        return;
    }
    let oldest = failures.iter().min_by_key(|(_, found)| found.since).map(|(who, _)| who.clone());
    if let Some(oldest) = oldest {
        failures.remove(&oldest);
    }
}

fn limits(peer: Option<IpAddr>, access_key: &str) -> [(Who, u32); 3] {
    [
        (Who::Pair(peer, access_key.to_owned()), FAILURES_PER_PAIR_MAX),
        (Who::Peer(peer), FAILURES_PER_PEER_MAX),
        (Who::Key(access_key.to_owned()), FAILURES_PER_KEY_MAX),
    ]
}
