//! Authentication: AWS Signature Versions 4 and 2 in headers, presigned URLs and forms, verified and created.
//!
//! Why:        every byte that decides what a request does must be covered by its signature.
//! Invariants: A1 `x-amz-*` headers and the host (in Version 2 its bucket) are signed, or the request is refused.
//!             A2 signatures are compared in constant time; an error never shows the expected one.
//!             A3 nothing here reads the body; `body` verifies it against `Verified`.
//! Not here:   authorization.

mod canonical;
mod chain;
mod claim;
mod code;
mod date;
mod error;
mod form;
mod header;
pub(crate) mod hex;
pub(crate) mod hoisted;
mod host;
mod key;
mod payload;
pub(crate) mod presigned;
pub mod sign;
#[cfg(test)]
mod tests;
pub mod v2;
mod v4;

use std::sync::Arc;

use http::HeaderMap;
use margay_env::Timestamp;

pub(crate) use canonical::decode;
pub use chain::ChunkChain;
pub use claim::{ACCESS_KEY_BYTES_MAX, REGION_BYTES_MAX, SIGNED_HEADERS_MAX};
pub use code::Code;
pub use error::{AuthError, CredentialSource, Mismatch};
pub use host::{Host, HostError};
pub use key::{KEY_SLOTS, Scope, Secret, SigningKey};
pub use payload::PayloadForm;
pub use presigned::EXPIRES_SECONDS_MAX;

/// Default tolerance for a client's clock, in seconds.
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
    /// The request's only host, as the client wrote it.
    pub host: &'a str,
    /// The bucket that the host names (virtual-host style), in lower case.
    pub host_bucket: Option<&'a str>,
    /// The SHA-256 of the body in hex, if the whole body was read before the signature is verified.
    pub body_sha256: Option<&'a str>,
}

impl<'a> Head<'a> {
    /// The head of a request that hyper received.
    pub fn of(parts: &'a http::request::Parts, host: &'a Host) -> Head<'a> {
        Head {
            method: &parts.method,
            path: parts.uri.path(),
            query: parts.uri.query().unwrap_or(""),
            headers: &parts.headers,
            host: host.as_written(),
            host_bucket: None,
            body_sha256: None,
        }
    }

    /// The same head with the bucket that its host names.
    pub fn with_host_bucket(self, host_bucket: Option<&'a str>) -> Head<'a> {
        Head { host_bucket, ..self }
    }
}

/// The stored secret of an access key.
#[derive(Clone, Debug)]
pub struct Credential {
    pub secret: Secret,
    /// The token that must accompany a temporary key; `None` for a permanent one.
    pub session_token: Option<Arc<str>>,
}

/// Lookup of access keys; called once per signed request, so it must not block.
pub trait Credentials: Send + Sync {
    /// The credential of an access key; `None` when it is unknown or disabled.
    fn find(&self, access_key: &str) -> Option<Credential>;
}

/// Options of verification.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Tolerance for the time of a request, in seconds.
    pub skew_seconds_max: u32,
    /// Whether Signature Version 2 is accepted.
    pub version_2: bool,
    /// The service that signatures must name: `s3`, `sts` or `iam`.
    pub service: &'static str,
}

impl Default for Options {
    fn default() -> Options {
        Options { skew_seconds_max: SKEW_SECONDS_MAX, version_2: true, service: key::SERVICE }
    }
}

/// The version of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V2,
    V4,
}

/// The authenticated sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// There was no signature.
    Anonymous,
    /// The holder of this access key.
    Key { access_key: String, version: Version, given: CredentialSource },
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

/// A request whose signature, if any, is valid.
#[derive(Clone, Debug)]
pub struct Verified {
    pub sender: Sender,
    /// The framing and integrity form of the body.
    pub payload: PayloadForm,
    /// Present if and only if the chunks of the body are signed.
    pub chain: Option<ChunkChain>,
}

/// Verifies signatures; one per server, shared by all requests.
#[derive(Debug)]
pub struct Verifier {
    options: Options,
    keys: key::KeyCache,
}

impl Verifier {
    pub fn new(options: Options) -> Verifier {
        Verifier { options, keys: key::KeyCache::new() }
    }

    /// Authenticates a request, or refuses it with the reason.
    pub fn verify(
        &self,
        head: &Head<'_>,
        credentials: &dyn Credentials,
        now: Timestamp,
    ) -> Result<Verified, AuthError> {
        let mut authorizations = head.headers.get_all(http::header::AUTHORIZATION).iter();
        let authorization = authorizations.next();
        let in_query = presigned::version(head.query);
        if authorizations.next().is_some() || (authorization.is_some() && in_query.is_some()) {
            return Err(AuthError::TwoMechanisms);
        }
        let now = date::AmzDate::from_timestamp(now);
        let claim = match (authorization, in_query) {
            (Some(value), _) => match header::scheme(value)? {
                (v2::SCHEME, rest) => {
                    self.check_version_2()?;
                    return v2::verify(head, &v2::read_header(rest, head, &self.options, &now)?, credentials);
                }
                (scheme, rest) => header::read(scheme, rest, head, &self.options, &now)?,
            },
            (None, Some(Version::V4)) => presigned::read(head, &self.options, &now)?,
            (None, Some(Version::V2)) => {
                self.check_version_2()?;
                return v2::verify(head, &v2::read_presigned(head, &now)?, credentials);
            }
            (None, None) => {
                let payload = PayloadForm::without_v4(head.headers)?;
                return Ok(Verified { sender: Sender::Anonymous, payload, chain: None });
            }
        };
        v4::verify(self, head, &claim, credentials)
    }

    /// The key of a scope, and whether to cache it, which happens only after a valid signature.
    fn signing_key(&self, access_key: &str, secret: &Secret, day: [u8; 8], region: &str) -> (Arc<SigningKey>, bool) {
        match self.keys.get(access_key, secret, &day, region) {
            Some(key) => (key, false),
            None => {
                let scope = Scope::of_service(day, region, self.options.service);
                (Arc::new(SigningKey::derive(secret, scope)), true)
            }
        }
    }

    fn check_version_2(&self) -> Result<(), AuthError> {
        if self.options.version_2 { Ok(()) } else { Err(AuthError::SignatureV2) }
    }
}
