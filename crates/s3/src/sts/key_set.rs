//! The public keys of an identity provider (JWKS, RFC 7517).
//!
//! Invariants: J1 the algorithm is the one of the key on record, never the one that a token asks for.
//! Not here:   claims (`web_identity`), fetching (the binary).

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;

use super::web_identity::ProviderError;

/// Most keys of a provider.
pub const PROVIDER_KEYS_MAX: usize = 100;

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

#[derive(Debug)]
enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// Uncompressed point.
    P256(Vec<u8>),
}

/// With its id, where it has one.
type Key = (Option<String>, PublicKey);

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

fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(value.as_str()?).ok()
}

impl KeySet {
    /// Reads a JWKS. Keys of other kinds than RSA and P-256 are passed over.
    pub fn parse(json: &[u8]) -> Result<KeySet, ProviderError> {
        let set: Value = serde_json::from_slice(json).map_err(|_| ProviderError::KeySet)?;
        let list = set["keys"].as_array().ok_or(ProviderError::KeySet)?;
        let mut known = Vec::new();
        for key in list.iter().take(PROVIDER_KEYS_MAX) {
            if key["use"].as_str().is_some_and(|purpose| purpose != "sig") {
                continue;
            }
            let public = match (key["kty"].as_str(), key["crv"].as_str()) {
                (Some("RSA"), _) => {
                    let (modulus, exponent) = (bytes_of(&key["n"]), bytes_of(&key["e"]));
                    modulus.zip(exponent).map(|(modulus, exponent)| PublicKey::Rsa { modulus, exponent })
                }
                (Some("EC"), Some("P-256")) => {
                    let (x, y) = (bytes_of(&key["x"]), bytes_of(&key["y"]));
                    let point = x.zip(y).filter(|(x, y)| x.len() == 32 && y.len() == 32);
                    point.map(|(x, y)| PublicKey::P256([&[4][..], &x, &y].concat()))
                }
                _ => continue,
            };
            known.push((key["kid"].as_str().map(str::to_owned), public.ok_or(ProviderError::KeySet)?));
        }
        if known.is_empty() {
            return Err(ProviderError::KeySet);
        }
        Ok(KeySet(known.into()))
    }

    pub(super) fn verify(&self, header: &Value, signed: &[u8], signature: &[u8]) -> Result<(), ProviderError> {
        let (algorithm, kid) = (header["alg"].as_str(), header["kid"].as_str());
        let fits = |(own, _): &&Key| kid.is_none() || own.as_deref() == kid;
        let mut keys = self.0.iter().filter(fits).peekable();
        keys.peek().ok_or(ProviderError::Key)?;
        let mut tried = false;
        for (_, key) in keys {
            let verified = match (key, algorithm) {
                (PublicKey::Rsa { modulus, exponent }, Some("RS256")) => {
                    RsaPublicKeyComponents { n: modulus, e: exponent }.verify(
                        &RSA_PKCS1_2048_8192_SHA256,
                        signed,
                        signature,
                    )
                }
                (PublicKey::P256(point), Some("ES256")) => {
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
                }
                _ => continue,
            };
            tried = true;
            if verified.is_ok() {
                return Ok(());
            }
        }
        Err(if tried { ProviderError::Signature } else { ProviderError::Key })
    }
}
