//! The public keys of an identity provider (JWKS, RFC 7517), and verification of tokens with them.
//!
//! Invariants: J1 the algorithm is that of the stored key, never the one in the token's header.
//! Not here:   claims (`web_identity`), cryptography (`ring_verifier`), fetching (margay-accounts).

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode};
use serde_json::Value;

use super::provider_error::ProviderError;
use super::ring_verifier;

/// Maximum number of keys of a provider.
pub const PROVIDER_KEYS_MAX: usize = 100;
/// A coordinate of P-256 has 32 bytes: this many characters of base64 without padding.
const COORDINATE_CHARS: usize = 43;

/// Keys that become available later.
pub type Waited<'a> = Pin<Box<dyn Future<Output = Option<KeySet>> + Send + 'a>>;

/// Source of a provider's keys; it limits its own waiting time.
pub trait KeySource: Send + Sync {
    /// The known keys; `None` if they are unavailable.
    fn current(&self) -> Waited<'_>;

    /// Called when a token names a key that the current keys lack; `None` if there are no others, or it is too soon to
    /// fetch again.
    fn newer(&self) -> Waited<'_>;
}

/// A key and the only algorithm that it verifies.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The keys of a provider; cheap to clone.
#[derive(Clone, Debug)]
pub struct KeySet(Arc<[Key]>);

/// Constant keys.
impl KeySource for KeySet {
    fn current(&self) -> Waited<'_> {
        Box::pin(ready(Some(self.clone())))
    }

    fn newer(&self) -> Waited<'_> {
        Box::pin(ready(None))
    }
}

/// The algorithm of a key; `None` for unsupported keys.
fn algorithm_of(key: &Jwk) -> Result<Option<Algorithm>, ProviderError> {
    let algorithm = match &key.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(point) if point.curve == EllipticCurve::P256 => {
            if [&point.x, &point.y].iter().any(|coordinate| coordinate.len() != COORDINATE_CHARS) {
                return Err(ProviderError::KeySet);
            }
            Algorithm::ES256
        }
        _ => return Ok(None),
    };
    let signs = key.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature);
    let is_named = key.common.key_algorithm.is_none_or(|named| named == KeyAlgorithm::from(algorithm));
    Ok((signs && is_named).then_some(algorithm))
}

/// Validates only form, algorithm and signature: the times in claims are compared with the server's clock port, not the
/// system's.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

impl KeySet {
    /// Parses a JWKS. Ignores keys other than RSA and P-256, and keys for algorithms other than RS256 and ES256.
    pub fn parse(json: &[u8]) -> Result<KeySet, ProviderError> {
        ring_verifier::install();
        let mut set: Value = serde_json::from_slice(json).map_err(|_| ProviderError::KeySet)?;
        let list = set.get_mut("keys").and_then(Value::as_array_mut).ok_or(ProviderError::KeySet)?;
        let mut known = Vec::new();
        for key in list.iter_mut().take(PROVIDER_KEYS_MAX) {
            let Ok(jwk) = serde_json::from_value::<Jwk>(key.take()) else { continue };
            let Some(algorithm) = algorithm_of(&jwk)? else { continue };
            let key = DecodingKey::from_jwk(&jwk).map_err(|_| ProviderError::KeySet)?;
            known.push(Key { id: jwk.common.key_id, algorithm, key });
        }
        if known.is_empty() {
            return Err(ProviderError::KeySet);
        }
        Ok(KeySet(known.into()))
    }

    /// Returns the claims of a token with this header, after verifying its signature with one of the keys.
    pub(super) fn verify(&self, header: &Header, token: &str) -> Result<Value, ProviderError> {
        let is_meant = |key: &&Key| header.kid.is_none() || key.id == header.kid;
        let mut refused = ProviderError::Key;
        for key in self.0.iter().filter(is_meant).filter(|key| key.algorithm == header.alg) {
            match decode(token, &key.key, &signature_only(key.algorithm)) {
                Ok(verified) => return Ok(verified.claims),
                Err(error) if *error.kind() == ErrorKind::InvalidSignature => refused = ProviderError::Signature,
                Err(_) => return Err(ProviderError::Form),
            }
        }
        Err(refused)
    }
}
