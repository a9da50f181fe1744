//! Signing requests: the client's half of Signature Version 4.
//!
//! Why:        benchmarks, clients and tests need requests that any S3 server accepts, in all five payload forms and as
//!             presigned URLs, at a cost far below what is measured.
//! Invariants: S1 `Verifier` accepts what `Signer` signs.
//! Not here:   the chunk framing (`body::ChunkEncoder`).
//!
//! Put every header on the request first, then sign, then send exactly these bytes:
//!
//! ```
//! use http::{HeaderMap, HeaderValue, Method};
//! use margay_s3::auth::sign::{Signer, Target};
//! use margay_s3::auth::{PayloadForm, Secret};
//!
//! let signer = Signer::new("access", Secret::new("secret"), "us-east-1");
//! let mut headers = HeaderMap::new();
//! headers.insert("host", HeaderValue::from_static("127.0.0.1:9000"));
//! let target = Target { method: &Method::GET, path: "/bucket/a%20key", query: "" };
//! let now = margay_env::Timestamp(1_369_353_600_000_000_000);
//! signer.sign(target, &mut headers, PayloadForm::Unsigned, now).unwrap();
//! assert!(headers.contains_key("authorization"));
//! ```

use std::sync::Arc;

use http::header::{AUTHORIZATION, CONTENT_ENCODING, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use margay_env::Timestamp;
use parking_lot::Mutex;

use super::canonical::{Canonical, Plus, Reading, Slash, reencode};
use super::date::AmzDate;
use super::key::{SERVICE, Scope, Secret, SigningKey};
use super::v4::string_to_sign;
use super::{AuthError, CONTENT_SHA256, ChunkChain, EXPIRES_SECONDS_MAX, PayloadForm, hex};

/// Headers that proxies and HTTP libraries add or change, so they are left out of a signature.
const UNSIGNED_HEADERS: [&str; 9] = [
    "accept-encoding",
    "authorization",
    "connection",
    "expect",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "x-amzn-trace-id",
];

/// Why a request could not be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    #[error("the request has no Host header")]
    NoHost,
    /// The access key, the region or the session token is not valid in a header.
    #[error("{0} holds bytes that a header cannot carry")]
    Unprintable(&'static str),
    #[error("a presigned URL can be valid for at most {EXPIRES_SECONDS_MAX} seconds")]
    ExpiresTooLate,
    #[error(transparent)]
    Canonical(#[from] AuthError),
}

/// The target of a request: method, percent-encoded path and percent-encoded query, exactly as they will be sent.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    pub method: &'a Method,
    pub path: &'a str,
    /// Without the question mark; empty when there is none.
    pub query: &'a str,
}

/// Signs requests with one access key for one region; may be shared by threads.
#[derive(Debug)]
pub struct Signer {
    access_key: String,
    secret: Secret,
    region: String,
    service: &'static str,
    /// The key of the most recent day.
    key: Mutex<Option<Arc<SigningKey>>>,
}

impl Signer {
    pub fn new(access_key: &str, secret: Secret, region: &str) -> Signer {
        let (access_key, region) = (access_key.to_owned(), region.to_owned());
        Signer { access_key, secret, region, service: SERVICE, key: Mutex::new(None) }
    }

    /// A signer for another service: `iam` or `sts`.
    #[must_use]
    pub fn for_service(self, service: &'static str) -> Signer {
        Signer { service, key: Mutex::new(None), ..self }
    }

    fn key(&self, date: &AmzDate) -> Arc<SigningKey> {
        let mut held = self.key.lock();
        match &*held {
            Some(key) if key.scope().day().as_bytes() == date.day() => Arc::clone(key),
            _ => {
                let scope = Scope::of_service(date.day(), &self.region, self.service);
                let key = Arc::new(SigningKey::derive(&self.secret, scope));
                *held = Some(Arc::clone(&key));
                key
            }
        }
    }

    /// Adds `x-amz-date`, `x-amz-content-sha256` and `Authorization`. The host must be among the headers, and for
    /// chunked forms what [`announce_chunks`] adds. Returns the chain that signs the chunks, if the form has signed
    /// chunks.
    pub fn sign(
        &self,
        target: Target<'_>,
        headers: &mut HeaderMap,
        payload: PayloadForm,
        now: Timestamp,
    ) -> Result<Option<ChunkChain>, SignError> {
        let date = AmzDate::from_timestamp(now);
        let payload_line = payload.header_value();
        headers.insert("x-amz-date", value(date.text(), "the date")?);
        headers.insert(CONTENT_SHA256, value(&payload_line, "the payload form")?);
        let signed_headers = signed_headers(headers)?;
        let key = self.key(&date);
        let signature = self.signature(&key, &date, target, headers, &signed_headers, &payload_line)?;
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{},SignedHeaders={signed_headers},Signature={}",
            self.access_key,
            key.scope(),
            hex::text(&signature),
        );
        headers.insert(AUTHORIZATION, value(&authorization, "the access key or the region")?);
        Ok(payload.has_signed_chunks().then(|| ChunkChain::new(key, &date, &signature)))
    }

    /// The query of a presigned URL: `target.query` and the signature's parameters. A user of the URL must send exactly
    /// these headers, of which only the host is required; the payload is unsigned.
    pub fn presign(
        &self,
        target: Target<'_>,
        headers: &HeaderMap,
        expires_seconds: u64,
        now: Timestamp,
    ) -> Result<String, SignError> {
        if expires_seconds > EXPIRES_SECONDS_MAX {
            return Err(SignError::ExpiresTooLate);
        }
        let date = AmzDate::from_timestamp(now);
        let key = self.key(&date);
        let signed_headers = signed_headers(headers)?;
        let mut query = target.query.as_bytes().to_vec();
        let credential = format!("{}/{}", self.access_key, key.scope());
        let expires = expires_seconds.to_string();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", date.text()),
            ("X-Amz-Expires", &expires),
            ("X-Amz-SignedHeaders", &signed_headers),
        ] {
            if !query.is_empty() {
                query.push(b'&');
            }
            query.extend_from_slice(name.as_bytes());
            query.push(b'=');
            // The value has no percent sign that could pass for an escape, except in a strange access key.
            reencode(&value.replace('%', "%25"), Plus::Itself, Slash::Encoded, &mut query);
        }
        let mut query = String::from_utf8(query).expect("a query and percent escapes are text");
        let target = Target { query: &query, ..target };
        let signature = self.signature(&key, &date, target, headers, &signed_headers, "UNSIGNED-PAYLOAD")?;
        query.push_str("&X-Amz-Signature=");
        query.push_str(&hex::text(&signature));
        Ok(query)
    }

    /// Fields that a browser form needs and its policy must name.
    pub fn form_fields(&self, now: Timestamp) -> [(&'static str, String); 3] {
        let date = AmzDate::from_timestamp(now);
        [
            ("x-amz-algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("x-amz-credential", format!("{}/{}", self.access_key, self.key(&date).scope())),
            ("x-amz-date", date.text().to_owned()),
        ]
    }

    /// The form field `x-amz-signature` for this `policy` field.
    pub fn sign_policy(&self, policy: &str, now: Timestamp) -> String {
        hex::text(&self.key(&AmzDate::from_timestamp(now)).sign(policy.as_bytes()))
    }

    fn signature(
        &self,
        key: &SigningKey,
        date: &AmzDate,
        target: Target<'_>,
        headers: &HeaderMap,
        signed_headers: &str,
        payload: &str,
    ) -> Result<[u8; 32], SignError> {
        let Target { method, path, query } = target;
        let method = method.as_str();
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).ok_or(SignError::NoHost)?.trim();
        let canonical = Canonical { method, path, query, headers, host, signed_headers, payload };
        let mut text = Vec::with_capacity(1024);
        canonical.write(Reading::DOCUMENTED, &mut text)?;
        Ok(key.sign(&string_to_sign(date.text(), key.scope(), &text)))
    }
}

/// Adds the headers of a chunked body: `x-amz-decoded-content-length` (payload bytes), `Content-Encoding: aws-chunked`
/// before any existing encoding, and `x-amz-trailer` when a trailer will follow.
pub fn announce_chunks(headers: &mut HeaderMap, payload_bytes: u64, trailer: Option<&HeaderName>) {
    headers.insert("x-amz-decoded-content-length", HeaderValue::from(payload_bytes));
    let encoding = match headers.get(CONTENT_ENCODING) {
        None => HeaderValue::from_static("aws-chunked"),
        Some(other) => HeaderValue::from_bytes(&[b"aws-chunked,", other.as_bytes()].concat())
            .expect("two header values with a comma between them are a header value"),
    };
    headers.insert(CONTENT_ENCODING, encoding);
    if let Some(name) = trailer {
        headers.insert("x-amz-trailer", HeaderValue::from(name.clone()));
    }
}

fn value(text: &str, what: &'static str) -> Result<HeaderValue, SignError> {
    HeaderValue::from_str(text).map_err(|_| SignError::Unprintable(what))
}

fn signed_headers(headers: &HeaderMap) -> Result<String, SignError> {
    if !headers.contains_key(HOST) {
        return Err(SignError::NoHost);
    }
    let mut names: Vec<&str> =
        headers.keys().map(HeaderName::as_str).filter(|name| !UNSIGNED_HEADERS.contains(name)).collect();
    names.sort_unstable();
    Ok(names.join(";"))
}
