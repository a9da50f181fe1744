//! Fuzz entry points: tokens, keys, session tags and the claims of signed tokens, as arbitrary bytes.
//!
//! Invariants: Z1 accepted input keeps its limits; an unsigned token is never accepted; the identity from a signed
//!                token equals its claims.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use margay_iam::normal_key;
use margay_iam::registry::SessionTags;
use serde_json::Value;

use super::key_set::KeySet;
use super::tags;
use super::web_identity::{Provider, check};
use crate::route::query::Query;

/// The point is not on the curve, so it verifies no signature.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"k",
    "x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;
const NOW_SECONDS: i64 = 1_700_000_000;

static PROVIDERS: LazyLock<[Provider; 1]> = LazyLock::new(|| {
    let keys = KeySet::parse(KEYS.as_bytes()).expect("the set has a key");
    [Provider::new("https://id.example.com", "margay", Arc::new(keys))]
});

/// The first byte selects the input: a token, a provider's keys, a form with tags.
pub fn identity_token(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind {
        b'k' => drop(KeySet::parse(bytes)),
        b'f' => {
            let Some(form) = std::str::from_utf8(bytes).ok().and_then(|text| Query::parse(text).ok()) else { return };
            if let Ok(found) = tags::of_form(&form)
                && tags::check(&found).is_ok()
            {
                assert_bounded(&found);
            }
        }
        _ => {
            let Ok(token) = std::str::from_utf8(bytes) else { return };
            let outcome = pin!(check(&*PROVIDERS, token, NOW_SECONDS)).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(outcome, Poll::Ready(Err(_))), "nobody signed it");
        }
    }
}

/// The claims of a token with a valid signature.
pub fn identity_claims(bytes: &[u8]) {
    let Some(claims) = serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object) else { return };
    let [provider] = &*PROVIDERS;
    let Ok(identified) = provider.identify(&claims, NOW_SECONDS) else { return };
    assert_eq!(claims["sub"].as_str(), Some(identified.subject.as_str()), "the subject is the token's");
    assert!(claims["exp"].as_f64().is_some_and(|end| end + 60.0 > NOW_SECONDS as f64), "it has not expired");
    let values = |name: &str| {
        let key = format!("{}:{name}", identified.provider);
        identified.claims.iter().filter(|(own, _)| *own == key).flat_map(|(_, values)| values).collect::<Vec<_>>()
    };
    assert_eq!(values("sub"), [&identified.subject], "a condition sees the subject, and no other one");
    assert!(values("aud").contains(&&identified.audience), "it is for this server");
    for (key, values) in &identified.claims {
        let prefix = format!("{}:", identified.provider);
        assert!(key.starts_with(&prefix) && normal_key(key) == *key, "a claim is named after its provider");
        assert!(!values.is_empty(), "a claim has a value");
    }
    if tags::check(&identified.tags).is_ok() {
        assert!(identified.tags.values().all(|values| !values.is_empty()), "a tag has a value");
        assert_bounded(&identified.tags);
    }
}

fn assert_bounded(tags: &SessionTags) {
    let bytes: usize = tags.iter().map(|(name, values)| name.len() + values.concat().len()).sum();
    assert!(tags.len() <= 50 && bytes <= 2048, "the limits of docs/limits.md");
}
