//! AWS Signature Version 2: HMAC-SHA1 over a few lines of the request, in a header or in the query.
//!
//! Why:        tools in use (s3cmd with `--signature-v2`, old SDKs, boto3 with `signature_version='s3'`) support
//!             nothing newer, and their users should not have to replace them.
//! Invariants: W1 everything that selects or changes an operation is covered: the path, every parameter in
//!                [`canonical::SUBRESOURCES`], every `x-amz-*` header, `Content-MD5` and `Content-Type`.
//! Not here:   the body, which Version 2 never covers; POST forms (`form`).

mod canonical;
mod header;
mod presigned;
mod sign;

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

pub use self::canonical::SUBRESOURCES;
use self::canonical::{Canonical, Reading};
pub(crate) use self::header::{SCHEME, read as read_header};
pub(crate) use self::presigned::read as read_presigned;
pub use self::sign::Signer;
use super::key::Secret;
use super::v4::check_token;
use super::{AuthError, CredentialSource, Credentials, Head, Mismatch, PayloadForm, Sender, Verified, Version};

/// A signature and everything that it covers besides the request itself.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    given: CredentialSource,
    access_key: Cow<'a, str>,
    /// As the client wrote it, in Base64.
    signature: Cow<'a, str>,
    /// The date line of the string to sign: the header's value; empty with `x-amz-date`; a URL's expiry time.
    date_line: Cow<'a, str>,
    token: Option<Cow<'a, str>>,
}

/// Verifies a claim whose time was already checked.
pub(crate) fn verify(head: &Head<'_>, claim: &Claim<'_>, credentials: &dyn Credentials) -> Result<Verified, AuthError> {
    let access_key: &str = &claim.access_key;
    let credential = credentials.find(access_key).ok_or_else(|| AuthError::UnknownAccessKey(access_key.to_owned()))?;
    check_token(credential.session_token.as_deref(), claim.token.as_deref())?;
    check_signature(head, claim, &key(&credential.secret))?;
    let payload = PayloadForm::without_v4(head.headers)?;
    let sender = Sender::Key { access_key: access_key.to_owned(), version: Version::V2, given: claim.given };
    Ok(Verified { sender, payload, chain: None })
}

/// The key that signs everything of a secret.
pub(crate) fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_str().as_bytes())
}

/// Whether `signature` belongs to the message, in constant time.
pub(crate) fn verifies(key: &hmac::Key, message: &[u8], signature: &[u8]) -> bool {
    hmac::verify(key, message, signature).is_ok()
}

fn check_signature(head: &Head<'_>, claim: &Claim<'_>, key: &hmac::Key) -> Result<(), AuthError> {
    // A signature has a fixed length; a longer one is not decoded.
    let given = match claim.signature.len() {
        28 => STANDARD.decode(claim.signature.as_bytes()).unwrap_or_default(),
        _ => Vec::new(),
    };
    let canonical = Canonical { head, in_query: claim.given == CredentialSource::Query, date_line: &claim.date_line };
    let mut tried: Vec<Vec<u8>> = Vec::new();
    for reading in Reading::ALL {
        let mut text = Vec::with_capacity(256);
        canonical.write(reading, &mut text)?;
        if tried.contains(&text) {
            continue;
        }
        if verifies(key, &text, &given) {
            return Ok(());
        }
        tried.push(text);
    }
    let documented = tried.first().expect("the documented reading is always tried");
    Err(AuthError::Mismatch(Box::new(Mismatch {
        access_key: claim.access_key.to_string(),
        signature_provided: claim.signature.to_string(),
        string_to_sign: String::from_utf8_lossy(documented).into_owned(),
        canonical_request: None,
    })))
}
