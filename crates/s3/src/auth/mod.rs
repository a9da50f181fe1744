//! Who sent a request: AWS Signature Version 4 in headers and in presigned URLs, checked and made.
//!
//! Why:        every byte that names what a request does must be covered by its signature before it is believed.
//! Invariants: A1 a header `x-amz-*` and the host are signed or the request is refused.
//!             A2 signatures are compared in constant time; a refusal never shows what would have been right.
//!             A3 nothing here reads the body; `body` checks it against what `Verified` says.
//! Not here:   what the sender may do (policy), Signature Version 2 and POST forms (refused by name so far).

mod canonical;
mod chain;
mod claim;
mod code;
mod date;
mod error;
mod header;
pub(crate) mod hex;
mod key;
mod payload;
mod presigned;
pub mod sign;
#[cfg(test)]
mod tests;
mod v4;

use std::sync::Arc;

use http::HeaderMap;
use margay_env::Timestamp;

pub use chain::ChunkChain;
pub use code::Code;
pub use error::{AuthError, Mismatch, Place};
pub use key::{KEY_SLOTS, Scope, Secret, SigningKey};
pub use payload::PayloadForm;
pub use presigned::EXPIRES_SECONDS_MAX;
pub use v4::{ACCESS_KEY_BYTES_MAX, REGION_BYTES_MAX, SIGNED_HEADERS_MAX};

/// How far a client's clock may be off, in seconds, unless the options say otherwise.
pub const SKEW_SECONDS_MAX: u32 = 15 * 60;

pub(crate) const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// The head of a request, as received.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub method: &'a http::Method,
    /// Exactly as on the wire: still percent-encoded, without the query.
    pub path: &'a str,
    /// Exactly as on the wire, without the question mark; empty when there is none.
    pub query: &'a str,
    pub headers: &'a HeaderMap,
    /// Host and port of the request's target, used when there is no `Host` header (HTTP/2).
    pub authority: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// The head of a request that hyper received.
    pub fn of(parts: &'a http::request::Parts) -> Head<'a> {
        Head {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            headers: &parts.headers,
            authority: parts.uri.authority().map(|authority| authority.as_str()),
        }
    }
}

/// What is on record for an access key.
#[derive(Clone, Debug)]
pub struct Credential {
    pub secret: Secret,
    /// The token that must come with a temporary key; `None` for a lasting one.
    pub session_token: Option<Arc<str>>,
}

/// Where access keys are looked up; called once per signed request, so it must not block.
pub trait Credentials: Send + Sync {
    /// What belongs to an access key; `None` when there is no such key (or it is switched off).
    fn find(&self, access_key: &str) -> Option<Credential>;
}

/// What the checks depend on.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How far the time of a request may lie from the server's, in seconds.
    pub skew_seconds_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { skew_seconds_max: SKEW_SECONDS_MAX }
    }
}

/// Who sent a request, as far as its signature proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// There was no signature.
    Anonymous,
    /// The holder of this access key.
    Key { access_key: String, scope: Scope, place: Place },
}

impl Sender {
    /// The access key that signed, if any did.
    pub fn access_key(&self) -> Option<&str> {
        match self {
            Sender::Anonymous => None,
            Sender::Key { access_key, .. } => Some(access_key),
        }
    }
}

/// A request whose signature, if it has one, is right.
#[derive(Clone, Debug)]
pub struct Verified {
    pub sender: Sender,
    /// How the body is wrapped and vouched for.
    pub payload: PayloadForm,
    /// Present exactly when the chunks of the body are signed.
    pub chain: Option<ChunkChain>,
}

/// Checks signatures; one per server, shared by all requests.
#[derive(Debug)]
pub struct Verifier {
    options: Options,
    keys: key::KeyCache,
}

impl Verifier {
    pub fn new(options: Options) -> Verifier {
        Verifier { options, keys: key::KeyCache::new() }
    }

    /// Says who sent a request, or why it is refused.
    pub fn verify(
        &self,
        head: &Head<'_>,
        credentials: &dyn Credentials,
        now: Timestamp,
    ) -> Result<Verified, AuthError> {
        let mut authorizations = head.headers.get_all(http::header::AUTHORIZATION).iter();
        let authorization = authorizations.next();
        let in_query = presigned::mechanism(head.query);
        if authorizations.next().is_some() || (authorization.is_some() && in_query.is_some()) {
            return Err(AuthError::TwoMechanisms);
        }
        let now = date::AmzDate::from_timestamp(now);
        let claim = match (authorization, in_query) {
            (Some(value), _) => header::read(value, head, &self.options, &now)?,
            (None, Some(presigned::Mechanism::V4)) => presigned::read(head, &self.options, &now)?,
            (None, Some(presigned::Mechanism::V2)) => return Err(AuthError::SignatureV2),
            (None, None) => return anonymous(head),
        };
        v4::verify(self, head, &claim, credentials)
    }
}

fn anonymous(head: &Head<'_>) -> Result<Verified, AuthError> {
    let payload = match head.headers.get(CONTENT_SHA256) {
        None => PayloadForm::Unsigned,
        Some(value) => PayloadForm::parse(value.to_str().map_err(|_| AuthError::BadContentSha256)?)?,
    };
    if payload.has_signed_chunks() {
        return Err(AuthError::AnonymousSignedChunks);
    }
    Ok(Verified { sender: Sender::Anonymous, payload, chain: None })
}
