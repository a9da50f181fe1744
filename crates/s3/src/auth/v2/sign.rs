//! Signing requests with Signature Version 2: the client's half.
//!
//! Invariants: S1 `Verifier` accepts what `Signer` signs.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, DATE};
use http::{HeaderMap, HeaderValue};
use margay_env::Timestamp;
use ring::hmac;

use super::super::Head;
use super::super::canonical::{Plus, Slash, reencode};
use super::super::date::AmzDate;
use super::super::key::Secret;
use super::super::sign::{SignError, Target};
use super::canonical::{Canonical, Reading};

/// Signs requests with one access key; may be shared by threads.
pub struct Signer {
    access_key: String,
    key: hmac::Key,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Signer").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Signer {
    pub fn new(access_key: &str, secret: &Secret) -> Signer {
        Signer { access_key: access_key.to_owned(), key: super::key(secret) }
    }

    /// Adds `Date` and `Authorization`; every other header must be present already. `host_bucket` is the bucket if the
    /// host names it.
    pub fn sign(
        &self,
        target: Target<'_>,
        host_bucket: Option<&str>,
        headers: &mut HeaderMap,
        now: Timestamp,
    ) -> Result<(), SignError> {
        let date = AmzDate::from_timestamp(now).http();
        headers.insert(DATE, HeaderValue::from_str(&date).map_err(|_| SignError::Unprintable("the date"))?);
        let signature = self.signature(target, host_bucket, headers, &date, false)?;
        let authorization = HeaderValue::from_str(&format!("AWS {}:{signature}", self.access_key));
        headers.insert(AUTHORIZATION, authorization.map_err(|_| SignError::Unprintable("the access key"))?);
        Ok(())
    }

    /// The query of a presigned URL that expires at this moment, in seconds since 1970: `target.query` and the
    /// signature's parameters.
    pub fn presign(
        &self,
        target: Target<'_>,
        host_bucket: Option<&str>,
        headers: &HeaderMap,
        expires: i64,
    ) -> Result<String, SignError> {
        let expires = expires.to_string();
        let signature = self.signature(target, host_bucket, headers, &expires, true)?;
        let mut query = target.query.as_bytes().to_vec();
        for (name, value) in [("AWSAccessKeyId", &self.access_key), ("Expires", &expires), ("Signature", &signature)] {
            if !query.is_empty() {
                query.push(b'&');
            }
            query.extend_from_slice(name.as_bytes());
            query.push(b'=');
            reencode(&value.replace('%', "%25"), Plus::Itself, Slash::Encoded, &mut query);
        }
        Ok(String::from_utf8(query).expect("a query and percent escapes are text"))
    }

    /// The field `signature` of a browser's form, given its field `policy`.
    pub fn sign_policy(&self, policy: &str) -> String {
        STANDARD.encode(hmac::sign(&self.key, policy.as_bytes()))
    }

    fn signature(
        &self,
        target: Target<'_>,
        host_bucket: Option<&str>,
        headers: &HeaderMap,
        date_line: &str,
        in_query: bool,
    ) -> Result<String, SignError> {
        let Target { method, path, query } = target;
        let head = Head { method, path, query, headers, host: "", host_bucket, body_sha256: None };
        let mut text = Vec::with_capacity(256);
        Canonical { head: &head, in_query, date_line }.write(Reading::DOCUMENTED, &mut text)?;
        Ok(STANDARD.encode(hmac::sign(&self.key, &text)))
    }
}
