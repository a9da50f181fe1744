//! Verification shared by header and presigned signatures.
//!
//! Invariants: V1 the signature covers everything that a client could choose, except the body of an unsigned payload
//!                and headers other than the host and `x-amz-*`.

use std::cell::RefCell;
use std::sync::Arc;

use ring::{digest, hmac};

use super::canonical::{Canonical, Reading};
use super::claim::Claim;
use super::key::{Scope, SigningKey};
use super::{AuthError, ChunkChain, Credentials, Head, Mismatch, Sender, Verified, Verifier, Version, hex};

/// Verifies a claim whose time was already checked.
pub(crate) fn verify(
    verifier: &Verifier,
    head: &Head<'_>,
    claim: &Claim<'_>,
    credentials: &dyn Credentials,
) -> Result<Verified, AuthError> {
    check_coverage(head, &claim.signed_headers)?;
    let access_key: &str = &claim.access_key;
    let credential = credentials.find(access_key).ok_or_else(|| AuthError::UnknownAccessKey(access_key.to_owned()))?;
    check_token(credential.session_token.as_deref(), claim.token.as_deref())?;
    let (key, is_new) = verifier.signing_key(access_key, &credential.secret, claim.date.day(), &claim.region);
    check_signature(head, claim, &key)?;
    if is_new {
        verifier.keys.put(access_key, &credential.secret, &key);
    }
    let chain =
        claim.payload.has_signed_chunks().then(|| ChunkChain::new(Arc::clone(&key), &claim.date, &claim.signature));
    let sender = Sender::Key { access_key: access_key.to_owned(), version: Version::V4, given: claim.given };
    Ok(Verified { sender, payload: claim.payload, chain })
}

/// Every `x-amz-*` header can change a request, so each must be signed.
fn check_coverage(head: &Head<'_>, signed_headers: &str) -> Result<(), AuthError> {
    let is_signed = |name: &str| signed_headers.split(';').any(|signed| signed == name);
    let mut missing = Vec::new();
    for name in head.headers.keys() {
        let name = name.as_str();
        if name.starts_with("x-amz-") && !is_signed(name) {
            missing.push(name.to_owned());
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort_unstable();
    Err(AuthError::HeadersNotSigned(missing))
}

pub(crate) fn check_token(wanted: Option<&str>, given: Option<&str>) -> Result<(), AuthError> {
    let matches = match (wanted, given) {
        (None, None) => true,
        (Some(wanted), Some(given)) => {
            // Comparing HMACs under a key that includes the secret takes the same time wherever the two differ.
            let key = hmac::Key::new(hmac::HMAC_SHA256, wanted.as_bytes());
            hmac::verify(&key, given.as_bytes(), hmac::sign(&key, wanted.as_bytes()).as_ref()).is_ok()
        }
        _ => false,
    };
    if matches { Ok(()) } else { Err(AuthError::BadToken) }
}

/// Buffers for the texts that a signature covers.
#[derive(Default)]
struct Texts {
    canonical: Vec<u8>,
    to_sign: Vec<u8>,
}

impl Texts {
    fn write(
        &mut self,
        canonical: &Canonical<'_>,
        reading: Reading,
        date: &str,
        scope: &Scope,
    ) -> Result<(), AuthError> {
        self.canonical.clear();
        canonical.write(reading, &mut self.canonical)?;
        self.to_sign.clear();
        write_string_to_sign(date, scope, &self.canonical, &mut self.to_sign);
        Ok(())
    }
}

thread_local! {
    /// Nearly every request is signed as documented and is verified without allocating.
    static TEXTS: RefCell<Texts> = RefCell::default();
}

fn check_signature(head: &Head<'_>, claim: &Claim<'_>, key: &SigningKey) -> Result<(), AuthError> {
    let canonical = Canonical {
        method: head.method.as_str(),
        path: head.path,
        query: head.query,
        headers: head.headers,
        host: head.host,
        signed_headers: &claim.signed_headers,
        payload: &claim.payload_line,
    };
    let documented = TEXTS.with_borrow_mut(|texts| {
        texts.write(&canonical, Reading::DOCUMENTED, claim.date.text(), key.scope())?;
        Ok::<_, AuthError>(key.verifies(&texts.to_sign, &claim.signature))
    })?;
    if documented { Ok(()) } else { check_all_readings(&canonical, claim, key) }
}

fn check_all_readings(canonical: &Canonical<'_>, claim: &Claim<'_>, key: &SigningKey) -> Result<(), AuthError> {
    let mut tried: Vec<Texts> = Vec::new();
    for reading in Reading::all() {
        let mut texts = Texts::default();
        texts.write(canonical, reading, claim.date.text(), key.scope())?;
        if tried.iter().any(|earlier| earlier.canonical == texts.canonical) {
            continue;
        }
        if key.verifies(&texts.to_sign, &claim.signature) {
            return Ok(());
        }
        tried.push(texts);
    }
    let documented = tried.first().expect("the documented reading is always tried");
    Err(AuthError::Mismatch(Box::new(Mismatch {
        access_key: claim.access_key.to_string(),
        signature_provided: hex::text(&claim.signature),
        string_to_sign: String::from_utf8_lossy(&documented.to_sign).into_owned(),
        canonical_request: Some(String::from_utf8_lossy(&documented.canonical).into_owned()),
    })))
}

/// The text whose HMAC is the signature of a request.
pub(crate) fn string_to_sign(date: &str, scope: &Scope, canonical: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(192);
    write_string_to_sign(date, scope, canonical, &mut text);
    text
}

fn write_string_to_sign(date: &str, scope: &Scope, canonical: &[u8], text: &mut Vec<u8>) {
    let digest = digest::digest(&digest::SHA256, canonical);
    let digest: &[u8; 32] = digest.as_ref().try_into().expect("SHA-256 gives 32 bytes");
    text.extend_from_slice(b"AWS4-HMAC-SHA256\n");
    text.extend_from_slice(date.as_bytes());
    text.push(b'\n');
    scope.write(text);
    text.push(b'\n');
    text.extend_from_slice(&hex::encode(digest));
}
