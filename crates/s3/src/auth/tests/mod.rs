//! Tests of signatures: AWS's published examples, refusals, and what the signer and the verifier owe each other.

mod form_policies;
mod refusals;
mod roundtrip;
mod vectors;
mod version_2;

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use margay_env::Timestamp;

use super::*;

pub(super) const ACCESS_KEY: &str = "AKIAIOSFODNN7EXAMPLE";
pub(super) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
pub(super) const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";
pub(super) const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// 2013-05-24T00:00:00Z, when all published examples were signed.
pub(super) const THEN: Timestamp = Timestamp(1_369_353_600_000_000_000);

pub(super) fn after(seconds: i64) -> Timestamp {
    Timestamp(THEN.0 + seconds * 1_000_000_000)
}

/// The example's key, and a temporary one.
pub(super) struct Keys;

impl Credentials for Keys {
    fn find(&self, access_key: &str) -> Option<Credential> {
        match access_key {
            ACCESS_KEY => Some(Credential { secret: Secret::new(SECRET), session_token: None }),
            "with/slash" => Some(Credential { secret: Secret::new("s"), session_token: None }),
            "temporary" => Some(Credential { secret: Secret::new("t"), session_token: Some("token".into()) }),
            _ => None,
        }
    }
}

/// A request head that owns its parts.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
}

impl Request {
    pub(super) fn new(method: Method, path: &str, query: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request { method, path: path.to_owned(), query: query.to_owned(), headers: HeaderMap::new() };
        for (name, value) in headers {
            request.add(name, value);
        }
        request
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        self.headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.headers.remove(name);
        self.add(name, value);
    }

    pub(super) fn head(&self) -> Head<'_> {
        let Request { method, path, query, headers } = self;
        let host = headers.get("host").map_or("", |host| host.to_str().unwrap());
        Head { method, path, query, headers, host, host_bucket: None, body_sha256: None }
    }

    pub(super) fn verify_at(&self, now: Timestamp) -> Result<Verified, AuthError> {
        Verifier::new(Options::default()).verify(&self.head(), &Keys, now)
    }

    pub(super) fn verify(&self) -> Result<Verified, AuthError> {
        self.verify_at(THEN)
    }
}

pub(super) fn authorization(signed_headers: &str, signature: &str) -> String {
    format!("AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE},SignedHeaders={signed_headers},Signature={signature}")
}

/// AWS's example "GET Object".
pub(super) fn get_object() -> Request {
    let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
    Request::new(
        Method::GET,
        "/test.txt",
        "",
        &[
            ("Host", "examplebucket.s3.amazonaws.com"),
            ("Authorization", &authorization("host;range;x-amz-content-sha256;x-amz-date", signature)),
            ("Range", "bytes=0-9"),
            ("x-amz-content-sha256", EMPTY),
            ("x-amz-date", "20130524T000000Z"),
        ],
    )
}
