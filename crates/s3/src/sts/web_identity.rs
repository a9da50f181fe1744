//! Tokens of an OpenID Connect provider: signed JSON (JWT) under keys that the provider publishes.
//!
//! Invariants: W1 signature, issuer, audience and both times are verified before any claim is used.
//! Not here:   signatures (`key_set`), which role a token may assume (trust policies).

use std::collections::BTreeMap;
use std::sync::Arc;

use jsonwebtoken::dangerous::insecure_decode_claims;
use jsonwebtoken::{Header, decode_header};
use margay_iam::normal_key;
use margay_iam::registry::SessionTags;
use serde_json::Value;

use super::key_set::KeySource;
use super::provider_error::ProviderError;
use super::tags;

/// Maximum length of a token, in bytes.
pub(super) const TOKEN_BYTES_MAX: usize = 20_000;
/// Tolerated clock difference to the provider, in seconds.
const SKEW_SECONDS_MAX: i64 = 60;

/// A provider whose tokens are accepted.
pub struct Provider {
    issuer: String,
    audience: String,
    keys: Arc<dyn KeySource>,
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Provider({})", self.issuer)
    }
}

/// The verified identity in a token.
#[derive(Debug)]
pub(super) struct Identified<'a> {
    /// The issuer without its scheme, as policies write it.
    pub provider: &'a str,
    pub subject: String,
    pub audience: String,
    /// Condition keys (`PROVIDER:sub`, in lower case) with their values.
    pub claims: Vec<(String, Vec<String>)>,
    /// Tags for the session.
    pub tags: SessionTags,
}

impl Provider {
    /// `issuer` and `audience` as the provider's tokens contain them.
    pub fn new(issuer: &str, audience: &str, keys: Arc<dyn KeySource>) -> Provider {
        Provider { issuer: issuer.trim_end_matches('/').to_owned(), audience: audience.to_owned(), keys }
    }

    /// The issuer without its scheme.
    fn name(&self) -> &str {
        self.issuer.split_once("://").map_or(self.issuer.as_str(), |(_, name)| name)
    }

    async fn verify(&self, header: &Header, token: &str) -> Result<Value, ProviderError> {
        let keys = self.keys.current().await.ok_or(ProviderError::NoKeys)?;
        match keys.verify(header, token) {
            // The provider may use a new key.
            Err(ProviderError::Key) => match self.keys.newer().await {
                Some(keys) => keys.verify(header, token),
                None => Err(ProviderError::Key),
            },
            outcome => outcome,
        }
    }

    /// The identity in the claims of a token that this provider signed; `now` is in seconds since 1970.
    pub(super) fn identify(&self, claims: &Value, now: i64) -> Result<Identified<'_>, ProviderError> {
        let audiences = texts(&claims["aud"]);
        if !audiences.contains(&self.audience) {
            return Err(ProviderError::Audience);
        }
        // A time that is not a number is an error: ignoring it would remove a restriction.
        let seconds = |name: &str| match &claims[name] {
            Value::Null => Ok(None),
            time => time.as_f64().map(|seconds| Some(seconds as i64)).ok_or(ProviderError::Form),
        };
        if seconds("exp")?.ok_or(ProviderError::Form)?.saturating_add(SKEW_SECONDS_MAX) <= now {
            return Err(ProviderError::Expired);
        }
        if seconds("nbf")?.is_some_and(|begins| begins.saturating_sub(SKEW_SECONDS_MAX) > now) {
            return Err(ProviderError::NotYet);
        }
        let subject = claims["sub"].as_str().ok_or(ProviderError::Form)?.to_owned();
        let tags = tags::of_claims(claims)?;
        let (audience, claims) = (self.audience.clone(), self.condition_keys(claims));
        Ok(Identified { provider: self.name(), subject, audience, claims, tags })
    }

    /// Condition keys are case-insensitive, so of claims that differ only in case the lower-case one counts: a person
    /// who may choose a claim's name cannot override `sub` with `Sub`.
    fn condition_keys(&self, claims: &Value) -> Vec<(String, Vec<String>)> {
        let mut keys = BTreeMap::new();
        for (name, value) in claims.as_object().into_iter().flatten().filter(|(name, _)| !name.contains('/')) {
            let key = normal_key(&format!("{}:{name}", self.name()));
            if !name.contains(|character: char| character.is_ascii_uppercase()) || !keys.contains_key(&key) {
                keys.insert(key, texts(value));
            }
        }
        keys.into_iter().filter(|(_, values)| !values.is_empty()).collect()
    }
}

/// Verifies a token and returns its identity; `now` is in seconds since 1970.
pub(super) async fn check<'a>(
    providers: &'a [Provider],
    token: &str,
    now: i64,
) -> Result<Identified<'a>, ProviderError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(ProviderError::Form);
    }
    let header = decode_header(token).map_err(|_| ProviderError::Form)?;
    // Lists extensions that must be understood before the token is accepted (RFC 7515, 4.1.11); none is supported.
    if header.crit.is_some() {
        return Err(ProviderError::Form);
    }
    // Only selects the provider whose keys are used.
    let unproven: Value = insecure_decode_claims(token).map_err(|_| ProviderError::Form)?;
    let issuer = unproven["iss"].as_str().ok_or(ProviderError::Form)?.trim_end_matches('/');
    let provider = providers.iter().find(|provider| provider.issuer == issuer).ok_or(ProviderError::Issuer)?;
    let claims = provider.verify(&header, token).await?;
    provider.identify(&claims, now)
}

/// A text, or all texts of a list.
fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Bool(_) | Value::Number(_) => vec![value.to_string()],
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;
    use crate::sts::KeySet;
    use crate::sts::key_set::Waited;

    // Keys and tokens were created for this test with a Python library; the private keys no longer exist.
    const KEYS: &str = r#"{"keys":[{"kty":"RSA","kid":"r","use":"sig","n":"v3f-EWka2GfLY-khUIYx484aZmio9dvMIqq5V76CBRYzAxg888wgsPpVZ7s5f04un_ZwXxt0umSJ8cEkE1lTiftl-YmEJTU9DyF4IL4IYni3jIrK3_VWng_udZdJ3QsFMr0qqvOPpEQiUHOgNI_vUgGCL0eh8C9O5IPCe44F11exrPmBj6_UvusQxzDOg6CszXjS9IQ253Z18qlBZvcCaWRFxR6fdXb2O1JkThNYmY2Ph4h4juGHNrMTrwUq6uCn4qcnnOF91coy4DlhpWw7u4TiyMr9xSW2Ij5fqDBJlfpEqMgwDVgYnBw3V15HCwSAX0txlWBeL0o5bWFK7og3zQ","e":"AQAB"},{"kty":"EC","crv":"P-256","kid":"e","x":"Th3IGiSGD7IbEtkd2NFBqGL9M-LpoCGm-H1WO_SH4UM","y":"jhwHB4cJGVVnV8tPBNe52eWnTDLXITgdoepTJBzBOdM"},{"kty":"OKP","crv":"Ed25519","kid":"o","x":"AA"}]}"#;
    /// For the issuer https://id.example.com/realms/Main, the audiences other and margay, from 1000 to 2000.
    const RS256: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6InIifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tL3JlYWxtcy9NYWluIiwiYXVkIjpbIm90aGVyIiwibWFyZ2F5Il0sInN1YiI6IkFubiIsImV4cCI6MjAwMCwibmJmIjoxMDAwLCJncm91cHMiOlsiYSIsImIiXX0.TVIIIixOLhqnOf0df6JybQgt7jvu2vCCCtL6h4oD-QfXpgYxtBzdp_sC5w_GRxhW8nADyak8pgynbQQ7WQPRwGpwgG4_cxcA3Q7nn7wQ91__E8-U9m0FsUJ1ylSws9MS9e7fBQUsn_r5sl8hcQx4WuFX7PsqxiSuIITzqNlMG_tsvewAoHk51Ot3H_8JOHoIaHEkQ6Bsd63tNWZF-lFRg7aDK2uY2SiaFNtWp5vp-99OKFRbWDkKDdodHVa_oBdXAkgPp99zLHAJcV-sXkadnCHphpbC8ejsysptSb1gsRvwlZkcbtKUoB5-PdT4oCRbMwR5dzQvxnU595vgYdUjbA";
    const ES256: &str = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImUifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tL3JlYWxtcy9NYWluIiwiYXVkIjpbIm90aGVyIiwibWFyZ2F5Il0sInN1YiI6IkFubiIsImV4cCI6MjAwMCwibmJmIjoxMDAwLCJncm91cHMiOlsiYSIsImIiXX0.RAhFfPAu7YKArYMaX4NAxbowFSl10wIrqiTKWzgxOg-JggDrZv5061RRr8at4yJMjQpX_NC215j5XQqhj-5GBw";
    /// An unsigned token, and one signed with the public key as an HMAC secret.
    const NONE: &str = "eyJhbGciOiJub25lIiwia2lkIjoiciJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tL3JlYWxtcy9NYWluIiwiYXVkIjpbIm90aGVyIiwibWFyZ2F5Il0sInN1YiI6IkFubiIsImV4cCI6MjAwMCwibmJmIjoxMDAwLCJncm91cHMiOlsiYSIsImIiXX0.";
    const HS256: &str = "eyJhbGciOiJIUzI1NiIsImtpZCI6InIifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUuY29tL3JlYWxtcy9NYWluIiwiYXVkIjpbIm90aGVyIiwibWFyZ2F5Il0sInN1YiI6IkFubiIsImV4cCI6MjAwMCwibmJmIjoxMDAwLCJncm91cHMiOlsiYSIsImIiXX0.NA2-PvXar8ozsFNc5BejU-m_7JjVPT5_XlkxF2TUB-o";

    fn provider(issuer: &str, audience: &str) -> Vec<Provider> {
        vec![Provider::new(issuer, audience, Arc::new(KeySet::parse(KEYS.as_bytes()).unwrap()))]
    }

    const ISSUER: &str = "https://id.example.com/realms/Main";

    #[tokio::test]
    async fn tokens_are_believed_for_their_issuer_audience_and_time() {
        let providers = provider(ISSUER, "margay");
        for token in [RS256, ES256] {
            let identified = check(&providers, token, 1500).await.unwrap();
            assert_eq!((identified.provider, identified.subject.as_str()), ("id.example.com/realms/Main", "Ann"));
            let claim = |name: &str| {
                let key = normal_key(&format!("id.example.com/realms/Main:{name}"));
                identified.claims.iter().find(|(own, _)| *own == key).map(|(_, values)| values.clone())
            };
            assert_eq!(claim("sub").unwrap(), ["Ann"]);
            assert_eq!(claim("groups").unwrap(), ["a", "b"]);
            assert_eq!(check(&providers, token, 2060).await.unwrap_err(), ProviderError::Expired);
            assert_eq!(check(&providers, token, 900).await.unwrap_err(), ProviderError::NotYet);
            assert_eq!(check(&provider(ISSUER, "else"), token, 1500).await.unwrap_err(), ProviderError::Audience);
            assert_eq!(
                check(&provider("https://else", "margay"), token, 1500).await.unwrap_err(),
                ProviderError::Issuer
            );
        }
    }

    #[test]
    fn no_claim_stands_for_another_by_its_case() {
        let claims = |text: &str| {
            let claims = serde_json::from_str(text).unwrap();
            let [provider] = provider("https://a", "margay").try_into().unwrap();
            provider.identify(&claims, 1500).map(|identified| identified.claims)
        };
        let found = claims(r#"{"SUB":"root","sub":"Ann","Sub":"root","aud":"margay","AUD":"x","exp":2000,"Team":"a"}"#);
        let values = |text: &str| vec![text.to_owned()];
        let expected = [("a:aud", "margay"), ("a:exp", "2000"), ("a:sub", "Ann"), ("a:team", "a")];
        assert_eq!(found.unwrap(), expected.map(|(key, value)| (key.to_owned(), values(value))));
    }

    #[tokio::test]
    async fn no_other_algorithm_and_no_changed_token_is_believed() {
        let providers = provider(ISSUER, "margay");
        assert_eq!(check(&providers, NONE, 1500).await.unwrap_err(), ProviderError::Form);
        assert_eq!(check(&providers, HS256, 1500).await.unwrap_err(), ProviderError::Key);
        for token in [RS256, ES256] {
            for at in 0..token.len() {
                let mut broken = token.as_bytes().to_vec();
                broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
                let broken = String::from_utf8(broken).unwrap();
                // The last character of a part may contain unused bits; base64 refuses them.
                assert!(check(&providers, &broken, 1500).await.is_err(), "{at}");
            }
        }
        for bad in ["", ".", "..", "a.b.c", "a.b.c.d", "e30.e30.", "bnVsbA.bnVsbA.AA"] {
            assert_eq!(check(&providers, bad, 1500).await.unwrap_err(), ProviderError::Form, "{bad}");
        }
        for keys in [
            "",
            "{}",
            "5",
            "null",
            r#"["keys"]"#,
            r#"{"keys":{"0":5}}"#,
            r#"{"keys":[5,"x",null]}"#,
            r#"{"keys":[]}"#,
            r#"{"keys":[{"kty":"RSA","n":"AA"}]}"#,
            r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#,
        ] {
            assert_eq!(KeySet::parse(keys.as_bytes()).unwrap_err(), ProviderError::KeySet, "{keys}");
        }
    }

    /// First no keys, then the keys of another provider, then the right ones.
    #[derive(Debug)]
    struct Turning {
        current: Option<KeySet>,
        newer: Option<KeySet>,
    }

    impl KeySource for Turning {
        fn current(&self) -> Waited<'_> {
            Box::pin(ready(self.current.clone()))
        }

        fn newer(&self) -> Waited<'_> {
            Box::pin(ready(self.newer.clone()))
        }
    }

    #[tokio::test]
    async fn newer_keys_are_asked_for_when_a_key_is_not_known() {
        let all = KeySet::parse(KEYS.as_bytes()).unwrap();
        let other = KeySet::parse(KEYS.replace(r#""kid":"r""#, r#""kid":"x""#).as_bytes()).unwrap();
        let outcome = async |current: Option<&KeySet>, newer: Option<&KeySet>| {
            let source = Turning { current: current.cloned(), newer: newer.cloned() };
            let providers = [Provider::new(ISSUER, "margay", Arc::new(source))];
            check(&providers, RS256, 1500).await.map(|identified| identified.subject)
        };
        assert_eq!(outcome(Some(&other), Some(&all)).await, Ok("Ann".to_owned()));
        assert_eq!(outcome(Some(&other), Some(&other)).await, Err(ProviderError::Key));
        assert_eq!(outcome(Some(&other), None).await, Err(ProviderError::Key));
        assert_eq!(outcome(None, Some(&all)).await, Err(ProviderError::NoKeys));
    }
}
