//! Public keys of an identity provider: fetched from the provider, and cached.
//!
//! Why:        providers rotate their keys without notice, so a file of keys becomes stale.
//! Layout:     `fetch` asks the provider; this module decides when.
//! Invariants: K1 requests go only to origins that the settings name; redirects are not followed.  K2 fetches are
//!                limited in time, size and frequency, because anybody can cause one with an invalid token.  K3 keys
//!                are valid for `KEYS_AGE_MAX` after the fetch.
//! Locking:    one lock serializes fetches; a caller that finds fresh keys does not take it.
//! Not here:   the use of the keys (margay-s3).

mod fetch;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use margay_env::Clock;
use margay_s3::sts::{KeySet, KeySource, Waited};
use parking_lot::Mutex;

pub use self::fetch::KeyLocation;
use self::fetch::{FETCH_TIME_MAX, fetch};

/// Seconds after which the next token causes a fetch.
const KEYS_FRESH: i64 = 3600;
/// Seconds for which keys are valid when they cannot be fetched again.
const KEYS_AGE_MAX: i64 = 24 * 3600;
/// Seconds after a fetch, successful or not, in which an unknown key causes no other fetch.
const PAUSE_UNKNOWN: i64 = 60;
/// Seconds after a fetch, successful or not, in which the age of keys causes no other fetch.
const PAUSE_FAILED: i64 = 10;

/// The keys of one provider.
#[derive(Debug)]
pub struct ProviderKeys(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: KeyLocation,
    clock: Arc<dyn Clock>,
    /// `FETCH_TIME_MAX`, except in tests.
    time_max: std::time::Duration,
    known: Mutex<Known>,
    turn: tokio::sync::Mutex<()>,
}

/// Times are in seconds since 1970.
#[derive(Debug, Default)]
struct Known {
    keys: Option<(KeySet, i64)>,
    tried: Option<i64>,
}

/// A clock that was set back makes everything expired.
fn is_within(seconds: i64, since: i64, now: i64) -> bool {
    (0..seconds).contains(&(now.saturating_sub(since)))
}

impl Known {
    fn younger_than(&self, seconds: i64, now: i64) -> Option<KeySet> {
        self.keys.as_ref().filter(|(_, fetched)| is_within(seconds, *fetched, now)).map(|(keys, _)| keys.clone())
    }

    fn tried_within(&self, seconds: i64, now: i64) -> bool {
        self.tried.is_some_and(|tried| is_within(seconds, tried, now))
    }
}

impl ProviderKeys {
    pub fn new(place: KeyLocation, clock: Arc<dyn Clock>) -> ProviderKeys {
        ProviderKeys::with_time(place, clock, FETCH_TIME_MAX)
    }

    fn with_time(place: KeyLocation, clock: Arc<dyn Clock>, time_max: std::time::Duration) -> ProviderKeys {
        let (known, turn) = (Mutex::default(), tokio::sync::Mutex::default());
        ProviderKeys(Arc::new(Inner { place, clock, time_max, known, turn }))
    }

    /// Fetches, unless the last fetch was at most `pause` seconds ago. Runs on after the caller is gone, so that a
    /// client that disconnects early cannot prevent the fetch.
    async fn fetch(&self, pause: i64) -> Option<KeySet> {
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move { inner.fetch(pause).await }).await.ok().flatten()
    }
}

impl Inner {
    fn now(&self) -> i64 {
        self.clock.now().seconds()
    }

    async fn fetch(&self, pause: i64) -> Option<KeySet> {
        let _turn = self.turn.lock().await;
        let now = self.now();
        {
            let mut known = self.known.lock();
            if known.tried_within(pause, now) {
                return known.younger_than(KEYS_AGE_MAX, now);
            }
            known.tried = Some(now);
        }
        let fetched = tokio::time::timeout(self.time_max, fetch(&self.place)).await;
        let fetched = fetched.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.time_max)));
        let mut known = self.known.lock();
        match fetched {
            Ok(keys) => known.keys = Some((keys, now)),
            Err(error) => {
                tracing::warn!(place = ?self.place, error, "the keys of the identity provider cannot be fetched")
            }
        }
        known.younger_than(KEYS_AGE_MAX, now)
    }
}

impl KeySource for ProviderKeys {
    fn current(&self) -> Waited<'_> {
        Box::pin(async {
            let fresh = self.0.known.lock().younger_than(KEYS_FRESH, self.0.now());
            match fresh {
                Some(keys) => Some(keys),
                None => self.fetch(PAUSE_FAILED).await,
            }
        })
    }

    fn newer(&self) -> Waited<'_> {
        Box::pin(async {
            let is_soon = self.0.known.lock().tried_within(PAUSE_UNKNOWN, self.0.now());
            if is_soon { None } else { self.fetch(PAUSE_UNKNOWN).await }
        })
    }
}
