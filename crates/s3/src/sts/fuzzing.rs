//! What a fuzz target calls: tokens, keys and session tags as arbitrary bytes.
//!
//! Invariants: what is accepted keeps the limits that it is checked against; an unsigned token is never believed.

use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};

use serde_json::Value;

use super::key_set::KeySet;
use super::tags;
use super::web_identity::{Provider, check};
use crate::route::query::Query;

/// A point that is not on the curve: it verifies nothing.
const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"k",
    "x":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","y":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}]}"#;
const NOW_SECONDS: i64 = 1_700_000_000;

static PROVIDERS: LazyLock<[Provider; 1]> = LazyLock::new(|| {
    let keys = KeySet::parse(KEYS.as_bytes()).expect("the set has a key");
    [Provider::new("https://id.example.com", "margay", Arc::new(keys))]
});

/// The first byte says what follows: a token, a provider's keys, the claims of a token, a form with tags.
pub fn identity_token(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind {
        b'k' => drop(KeySet::parse(bytes)),
        b'c' => {
            let Ok(claims) = serde_json::from_slice::<Value>(bytes) else { return };
            if let Ok(found) = tags::of_claims(&claims) {
                assert!(found.values().all(|values| !values.is_empty()), "a tag has a value");
                let _ = tags::check(&found);
            }
        }
        b'f' => {
            let Some(form) = std::str::from_utf8(bytes).ok().and_then(|text| Query::parse(text).ok()) else { return };
            if let Ok(found) = tags::of_form(&form)
                && tags::check(&found).is_ok()
            {
                let bytes: usize = found.iter().map(|(name, values)| name.len() + values.concat().len()).sum();
                assert!(found.len() <= 50 && bytes <= 2048, "the limits of docs/limits.md");
            }
        }
        _ => {
            let Ok(token) = std::str::from_utf8(bytes) else { return };
            let outcome = pin!(check(&*PROVIDERS, token, NOW_SECONDS)).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(outcome, Poll::Ready(Err(_))), "nobody signed it");
        }
    }
}
