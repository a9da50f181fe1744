//! Sessions of the console: which browser may use which access key, and until when.
//!
//! Why:        a cookie with a random id is all that a browser keeps; it says nothing about the key.
//! Invariants: K1 an id has 256 random bits; only its SHA-256 is kept.
//!             K2 a session ends after `IDLE_TIME_MAX` without a request and `LIFE_TIME_MAX` in any case.
//!             K3 there are at most `SESSIONS_MAX`, and `PER_KEY_MAX` of a key: the one that was idle longest goes.
//! Locking:    one mutex, held for look-ups in memory.
//! Durability: none; a restart ends all sessions.
//! Not here:   cookies (`guard`), whether the key is still valid (each request asks the identities).

use std::collections::HashMap;
use std::time::Duration;

use margay_env::Random;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

/// Sessions at once.
pub const SESSIONS_MAX: usize = 1024;
/// Sessions of one access key at once.
pub const PER_KEY_MAX: usize = 16;
/// Longest time between two requests of a session.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(2 * 3600);
/// Longest life of a session.
pub const LIFE_TIME_MAX: Duration = Duration::from_secs(12 * 3600);
/// Bytes of an id.
const ID_BYTES: usize = 32;

/// Whose requests a session makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub access_key: String,
    /// Of a temporary key.
    pub token: Option<String>,
}

#[derive(Debug)]
struct Held {
    session: Session,
    begun: Duration,
    used: Duration,
}

impl Held {
    fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.used) > IDLE_TIME_MAX || now.saturating_sub(self.begun) > LIFE_TIME_MAX
    }
}

/// All sessions; times are of the monotonic clock.
#[derive(Debug, Default)]
pub struct Sessions {
    held: Mutex<HashMap<[u8; ID_BYTES], Held>>,
}

impl Sessions {
    /// Begins a session and returns its id.
    pub fn begin(&self, session: Session, random: &dyn Random, now: Duration) -> String {
        let mut id = [0; ID_BYTES];
        random.fill(&mut id);
        let id = base16ct::lower::encode_string(&id);
        let mut held = self.held.lock();
        held.retain(|_, held| !held.is_over(now));
        let of_key = held.values().filter(|held| held.session.access_key == session.access_key).count();
        if of_key >= PER_KEY_MAX {
            drop_oldest(&mut held, |held| held.session.access_key == session.access_key);
        }
        if held.len() >= SESSIONS_MAX {
            drop_oldest(&mut held, |_| true);
        }
        held.insert(hash(&id), Held { session, begun: now, used: now });
        assert!(held.len() <= SESSIONS_MAX, "K3: more sessions than allowed");
        id
    }

    /// The session with this id, which is used now.
    pub fn find(&self, id: &str, now: Duration) -> Option<Session> {
        let mut held = self.held.lock();
        let name = hash(id);
        let found = held.get_mut(&name)?;
        if found.is_over(now) {
            held.remove(&name);
            return None;
        }
        found.used = now;
        Some(found.session.clone())
    }

    /// The session with this id, which is not used now.
    pub fn peek(&self, id: &str, now: Duration) -> Option<Session> {
        let held = self.held.lock();
        held.get(&hash(id)).filter(|held| !held.is_over(now)).map(|held| held.session.clone())
    }

    pub fn end(&self, id: &str) {
        self.held.lock().remove(&hash(id));
    }

    pub fn count(&self) -> usize {
        self.held.lock().len()
    }
}

fn drop_oldest(held: &mut HashMap<[u8; ID_BYTES], Held>, of: impl Fn(&Held) -> bool) {
    let oldest = held.iter().filter(|(_, held)| of(held)).min_by_key(|(_, held)| held.used).map(|(id, _)| *id);
    if let Some(oldest) = oldest {
        held.remove(&oldest);
    }
}

fn hash(id: &str) -> [u8; ID_BYTES] {
    let mut bytes = [0; ID_BYTES];
    bytes.copy_from_slice(digest(&SHA256, id.as_bytes()).as_ref());
    bytes
}
