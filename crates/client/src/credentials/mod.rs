//! The keys that sign requests: found where AWS's tools find them, renewed before they end.
//!
//! Why:        a mount lives longer than temporary keys do, and keys in files are replaced while it runs.
//! Layout:     `places` is the order; `profile`, `web_identity`, `process`, `container` and `instance` are the places, `http`
//!             asks servers, `keys` and `variables` are values.
//! Invariants: C1 keys that are valid are given without waiting for anything; one task renews them, the others go on.
//!             C2 a store that refuses the keys leads to one look for new ones, and to no more within `RENEW_EVERY`.
//!             C3 no key is written to a file or a log.
//! Locking:    `held` for moments only; `one` while somebody looks for keys, never taken below `held`.
//! Not here:   signatures (`sign`).

mod container;
mod http;
mod instance;
mod keys;
mod places;
mod process;
mod profile;
mod variables;
mod web_identity;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use margay_env::{Env, Timestamp};
use parking_lot::Mutex;

pub use self::keys::{Credentials, Keys, SessionToken};
pub use self::places::Places;
pub use self::profile::{Profile, REGION_DEFAULT};
pub use self::variables::Variables;
use crate::error::ClientError;

/// Keys are renewed this long before they end, or when a fifth of their time is left.
const RENEW_BEFORE_MAX: Duration = Duration::from_secs(300);
/// After a failure, keys that are still valid are used for so long before the next try.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Keys that a store refused are looked for again at most this often.
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Keys that a place gives although they have ended are used for so long: the place may know better.
const ENDED_TIME: Duration = Duration::from_secs(60);
/// A failure is told to all who ask within this time.
const FAILURE_TIME: Duration = Duration::from_secs(1);

/// Gives the keys of the moment; cheap to clone.
#[derive(Clone, Debug)]
pub struct KeyChain(Arc<Kind>);

#[derive(Debug)]
enum Kind {
    Fixed(Arc<Keys>),
    Looked(Box<Looked>),
}

#[derive(Debug)]
struct Looked {
    env: Env,
    places: Places,
    held: Mutex<Held>,
    /// Held by the task that looks for keys.
    one: tokio::sync::Mutex<()>,
}

/// Times of the clock that never goes back, except the ends of keys.
#[derive(Debug, Default)]
struct Held {
    keys: Option<Arc<Keys>>,
    /// Until then they may be used.
    ends: Option<Timestamp>,
    /// From then on others are looked for.
    renew_at: Option<Timestamp>,
    look_at: Option<Duration>,
    /// A failure before then is not repeated.
    not_before: Duration,
    /// When a store last refused the keys.
    refused_at: Option<Duration>,
    failure: Option<(Duration, Missing)>,
}

/// What can be done at once.
enum Now {
    Use(Arc<Keys>),
    /// Valid, and it is time to look for others.
    Renew(Arc<Keys>),
    Look,
    Fail(Missing),
}

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Missing {
    why: String,
    /// Who gives them does not answer, or cannot for now: nothing is wrong with what was set.
    is_late: bool,
}

impl From<String> for Missing {
    /// Something is wrong, and stays so.
    fn from(why: String) -> Missing {
        Missing { why, is_late: false }
    }
}

impl From<Missing> for ClientError {
    fn from(missing: Missing) -> ClientError {
        match missing.is_late {
            true => ClientError::KeysLate(missing.why),
            false => ClientError::NoKeys(missing.why),
        }
    }
}

impl Missing {
    fn late(why: String) -> Missing {
        Missing { why, is_late: true }
    }

    /// With words about the place.
    fn told(self, told: impl FnOnce(String) -> String) -> Missing {
        Missing { why: told(self.why), ..self }
    }
}

impl From<Credentials> for KeyChain {
    fn from(pair: Credentials) -> KeyChain {
        KeyChain::fixed(Keys::permanent(pair, None))
    }
}

impl KeyChain {
    /// These keys, for ever.
    pub fn fixed(keys: Keys) -> KeyChain {
        KeyChain(Arc::new(Kind::Fixed(Arc::new(keys))))
    }

    /// The key pair, if it is fixed.
    pub fn fixed_pair(&self) -> Option<&Credentials> {
        match &*self.0 {
            Kind::Fixed(keys) => Some(&keys.pair),
            Kind::Looked(_) => None,
        }
    }

    /// Keys of the first place that has some; nothing is looked at yet.
    pub fn looked_for(env: &Env, places: Places) -> KeyChain {
        let (env, held, one) = (env.clone(), Mutex::default(), tokio::sync::Mutex::default());
        KeyChain(Arc::new(Kind::Looked(Box::new(Looked { env, places, held, one }))))
    }

    /// The keys of the moment. The error says where was looked.
    pub async fn keys(&self) -> Result<Arc<Keys>, ClientError> {
        let looked = match &*self.0 {
            Kind::Fixed(keys) => return Ok(Arc::clone(keys)),
            Kind::Looked(looked) => looked,
        };
        match looked.now() {
            Now::Use(keys) => return Ok(keys),
            Now::Renew(keys) => {
                let Ok(_one) = looked.one.try_lock() else { return Ok(keys) };
                return Ok(looked.look().await.unwrap_or(keys));
            }
            Now::Fail(_) | Now::Look => {}
        }
        let _one = looked.one.lock().await;
        match looked.now() {
            Now::Use(keys) | Now::Renew(keys) => Ok(keys),
            Now::Fail(missing) => Err(missing.into()),
            Now::Look => Ok(looked.look().await?),
        }
    }

    /// As `keys`, on any thread; blocks.
    pub fn keys_now(&self) -> Result<Arc<Keys>, ClientError> {
        let broken = |what: String| ClientError::NoKeys(format!("keys cannot be looked for: {what}"));
        // A thread of its own, since this one may belong to a runtime.
        let looking = std::thread::scope(|scope| {
            let run = || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.map_err(|error| broken(error.to_string()))?.block_on(self.keys())
            };
            scope.spawn(run).join()
        });
        looking.map_err(|_| broken("the thread ended".to_owned()))?
    }

    /// A store refused `used`. Says whether there are others now, so that the request is worth sending again.
    pub async fn renew(&self, used: &Arc<Keys>) -> bool {
        let Kind::Looked(looked) = &*self.0 else { return false };
        let _one = looked.one.lock().await;
        let now = looked.env.clock.monotonic();
        {
            let mut held = looked.held.lock();
            if held.keys.as_ref().is_some_and(|keys| keys != used) {
                return true;
            }
            if held.refused_at.is_some_and(|at| now.saturating_sub(at) < RENEW_EVERY) {
                return false;
            }
            held.refused_at = Some(now);
        }
        tracing::info!("the store does not take the keys any more: others are looked for");
        looked.look().await.is_ok_and(|keys| keys != *used)
    }
}

impl Looked {
    fn now(&self) -> Now {
        let (wall, now) = (self.env.clock.now(), self.env.clock.monotonic());
        let held = self.held.lock();
        let valid = held.keys.as_ref().filter(|_| held.ends.is_none_or(|ends| wall < ends));
        let Some(keys) = valid else {
            let failure = held.failure.as_ref().filter(|(at, _)| now.saturating_sub(*at) < FAILURE_TIME);
            return failure.map_or(Now::Look, |(_, error)| Now::Fail(error.clone()));
        };
        let is_due = held.look_at.is_some_and(|at| now >= at) || held.renew_at.is_some_and(|at| wall >= at);
        if is_due && now >= held.not_before { Now::Renew(Arc::clone(keys)) } else { Now::Use(Arc::clone(keys)) }
    }

    /// Looks for keys and keeps them; the caller holds `one`. It is rare, so it is boxed: each crate that sends requests would
    /// have a copy of the code of all places (docs/design/0044).
    fn look(&self) -> Pin<Box<dyn Future<Output = Result<Arc<Keys>, Missing>> + Send + '_>> {
        Box::pin(self.look_now())
    }

    async fn look_now(&self) -> Result<Arc<Keys>, Missing> {
        let found = self.places.find(&self.env).await;
        let (wall, now) = (self.env.clock.now(), self.env.clock.monotonic());
        let mut held = self.held.lock();
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                held.not_before = now + RETRY_AFTER;
                held.failure = Some((now, error.clone()));
                if held.keys.is_some() {
                    tracing::warn!(error = error.why, "no new keys");
                }
                return Err(error);
            }
        };
        (held.failure, held.look_at) = (None, found.look_after.map(|after| now + after));
        held.ends = found.keys.expires.map(|ends| ends.max(after(wall, ENDED_TIME)));
        held.renew_at = held.ends.map(|ends| renew_at(wall, ends));
        // The same keys stay the same value, so that nobody makes a new signer.
        let same = held.keys.clone().filter(|keys| **keys == found.keys);
        let keys = same.unwrap_or_else(|| Arc::new(found.keys));
        held.keys = Some(Arc::clone(&keys));
        Ok(keys)
    }
}

fn after(at: Timestamp, length: Duration) -> Timestamp {
    Timestamp(at.0.saturating_add(i64::try_from(length.as_nanos()).unwrap_or(i64::MAX)))
}

fn renew_at(now: Timestamp, ends: Timestamp) -> Timestamp {
    let fifth = ends.0.saturating_sub(now.0) / 5;
    let before = i64::try_from(RENEW_BEFORE_MAX.as_nanos()).unwrap_or(i64::MAX).min(fifth);
    Timestamp(ends.0.saturating_sub(before))
}
