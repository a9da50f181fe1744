//! The public keys of an identity provider (JWKS, RFC 7517), and the tokens that they signed.
//!
//! Invariants: J1 the algorithm is the one of the key on record, never the one that a token asks for.
//! Not here:   claims (`web_identity`), arithmetic (`ring_verifier`), fetching (margay-accounts).

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode};
use serde_json::Value;

use super::ring_verifier;
use super::web_identity::ProviderError;

/// Most keys of a provider.
pub const PROVIDER_KEYS_MAX: usize = 100;
/// A coordinate of P-256 is 32 bytes; so many characters of base64 without padding.
const COORDINATE_CHARS: usize = 43;

/// Keys, when they are there.
pub type Waited<'a> = Pin<Box<dyn Future<Output = Option<KeySet>> + Send + 'a>>;

/// Where the keys of a provider come from; bounds the time that it takes itself.
pub trait KeySource: Send + Sync {
    /// The keys as they are known; `None`: they are not to be had.
    fn current(&self) -> Waited<'_>;

    /// Asked when a token names a key that the current ones lack; `None`: there are no others, or it is too soon to
    /// look again.
    fn newer(&self) -> Waited<'_>;
}

/// A key and the one algorithm that it verifies.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The keys of a provider; cheap to clone.
#[derive(Clone, Debug)]
pub struct KeySet(Arc<[Key]>);

/// Keys that never change.
impl KeySource for KeySet {
    fn current(&self) -> Waited<'_> {
        Box::pin(ready(Some(self.clone())))
    }

    fn newer(&self) -> Waited<'_> {
        Box::pin(ready(None))
    }
}

/// The algorithm that a key is for; `None` for those of others.
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

/// Form, algorithm and signature only: the times of claims are checked against the server's clock, not the system's.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

impl KeySet {
    /// Reads a JWKS. Keys of other kinds than RSA and P-256, and for other algorithms than RS256 and ES256, are passed
    /// over.
    pub fn parse(json: &[u8]) -> Result<KeySet, ProviderError> {
        ring_verifier::install();
        let mut set: Value = serde_json::from_slice(json).map_err(|_| ProviderError::KeySet)?;
        let list = set["keys"].as_array_mut().ok_or(ProviderError::KeySet)?;
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

    /// The claims of a token with this header, once its signature is found to be that of one of the keys.
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
