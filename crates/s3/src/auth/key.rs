//! Secrets, the signing keys made from them, and a bounded cache of those keys.
//!
//! Why:        a signing key costs four HMACs and changes once a day, so it is computed once per day and client.
//! Invariants: K1 a cached key is used only while the secret that it was derived from is still the stored one.
//!             K2 only a verified request stores a key, so requests with guessed regions cannot flush the cache.
//!             K3 the cache holds at most `KEY_SLOTS` keys.
//! Locking:    one mutex per slot, held for a comparison and a pointer copy.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use ring::hmac;

/// Capacity of the cache; a key takes about 600 bytes.
pub const KEY_SLOTS: usize = 1024;

/// The service of buckets and objects.
pub(crate) const SERVICE: &str = "s3";
/// The last part of every credential scope.
pub(crate) const TERMINATOR: &str = "aws4_request";

/// A secret key; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    pub fn new(secret: &str) -> Secret {
        Secret(secret.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The scope of a signature: a day, a region, and a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    day: [u8; 8],
    region: Box<str>,
    service: &'static str,
}

impl Scope {
    /// For the service `s3`.
    #[cfg(test)]
    pub(crate) fn new(day: [u8; 8], region: &str) -> Scope {
        Scope::of_service(day, region, SERVICE)
    }

    pub(crate) fn of_service(day: [u8; 8], region: &str, service: &'static str) -> Scope {
        Scope { day, region: region.into(), service }
    }

    /// Appends `YYYYMMDD/REGION/SERVICE/aws4_request`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for part in [&self.day[..], self.region.as_bytes(), self.service.as_bytes()] {
            out.extend_from_slice(part);
            out.push(b'/');
        }
        out.extend_from_slice(TERMINATOR.as_bytes());
    }

    /// The region as the client named it.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// `YYYYMMDD`.
    pub fn day(&self) -> &str {
        std::str::from_utf8(&self.day).expect("a scope is made from a checked date")
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{TERMINATOR}", self.day(), self.region, self.service)
    }
}

/// The key that signs requests and chunks of one scope.
#[derive(Clone)]
pub struct SigningKey {
    scope: Scope,
    key: hmac::Key,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("scope", &self.scope).finish_non_exhaustive()
    }
}

impl SigningKey {
    pub(crate) fn derive(secret: &Secret, scope: Scope) -> SigningKey {
        let mut seed = Vec::with_capacity(4 + secret.as_str().len());
        seed.extend_from_slice(b"AWS4");
        seed.extend_from_slice(secret.as_str().as_bytes());
        let mut key = hmac::Key::new(hmac::HMAC_SHA256, &seed);
        for part in [&scope.day[..], scope.region.as_bytes(), scope.service.as_bytes(), TERMINATOR.as_bytes()] {
            key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part).as_ref());
        }
        SigningKey { scope, key }
    }

    pub(crate) fn scope(&self) -> &Scope {
        &self.scope
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 32] {
        hmac::sign(&self.key, message).as_ref().try_into().expect("HMAC-SHA256 gives 32 bytes")
    }

    /// Whether this is the signature of the message, in constant time.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8; 32]) -> bool {
        hmac::verify(&self.key, message, signature).is_ok()
    }
}

struct CachedKey {
    access_key: Box<str>,
    secret: Secret,
    key: Arc<SigningKey>,
}

/// Signing keys of recent scopes.
pub(crate) struct KeyCache {
    slots: Box<[Mutex<Option<CachedKey>>]>,
    hasher: RandomState,
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl KeyCache {
    pub(crate) fn new() -> KeyCache {
        KeyCache { slots: (0..KEY_SLOTS).map(|_| Mutex::new(None)).collect(), hasher: RandomState::new() }
    }

    fn slot(&self, access_key: &str, day: &[u8; 8], region: &str) -> &Mutex<Option<CachedKey>> {
        let hash = self.hasher.hash_one((access_key, day, region));
        &self.slots[(hash % KEY_SLOTS as u64) as usize]
    }

    /// The cached key of a scope, if it was derived from this secret.
    pub(crate) fn get(
        &self,
        access_key: &str,
        secret: &Secret,
        day: &[u8; 8],
        region: &str,
    ) -> Option<Arc<SigningKey>> {
        let slot = self.slot(access_key, day, region).lock();
        let held = slot.as_ref()?;
        let scope = held.key.scope();
        let same =
            *held.access_key == *access_key && held.secret == *secret && scope.day == *day && *scope.region == *region;
        same.then(|| Arc::clone(&held.key))
    }

    /// Stores a key, replacing the content of its slot.
    pub(crate) fn put(&self, access_key: &str, secret: &Secret, key: &Arc<SigningKey>) {
        let scope = key.scope();
        let mut slot = self.slot(access_key, &scope.day, &scope.region).lock();
        *slot = Some(CachedKey { access_key: access_key.into(), secret: secret.clone(), key: Arc::clone(key) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_made_from_an_old_secret_is_not_served() {
        let cache = KeyCache::new();
        let (old, new) = (Secret::new("old"), Secret::new("new"));
        let key = Arc::new(SigningKey::derive(&old, Scope::new(*b"20130524", "r")));
        cache.put("a", &old, &key);
        assert!(cache.get("a", &old, b"20130524", "r").is_some());
        assert!(cache.get("a", &new, b"20130524", "r").is_none());
        assert!(cache.get("b", &old, b"20130524", "r").is_none());
        assert!(cache.get("a", &old, b"20130525", "r").is_none());
        assert!(cache.get("a", &old, b"20130524", "s").is_none());
        assert!(!format!("{key:?} {cache:?} {old:?}").contains("old"));
    }
}
