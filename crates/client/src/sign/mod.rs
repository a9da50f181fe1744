//! Signs outgoing requests: V4 with the server's own code, V2 separately, or not at all.
//!
//! Why:      signing must cost the client as little as possible, so that a benchmark measures the server.
//! Layout:   `v2` is the old scheme, `chunks` frames bodies as aws-chunked.
//! Not here: presigned URLs and trailers; no command uses them.

mod chunks;
mod v2;

use std::sync::Arc;

use http::Request;
use http::header::{HeaderName, HeaderValue};
use margay_env::Clock;
use margay_s3::auth::sign::{self as v4, announce_chunks};
use margay_s3::auth::{PayloadForm, Secret};
use sha2::{Digest, Sha256};

use crate::credentials::Keys;
use crate::error::ClientError;
use crate::payload::Payload;

const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The authentication scheme of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// None; the server must allow that.
    Anonymous,
    /// AWS Signature Version 2, which covers no body.
    V2,
    /// AWS Signature Version 4.
    V4,
}

/// How a V4 signature covers the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadHash {
    /// Not at all: `UNSIGNED-PAYLOAD`.
    Unsigned,
    /// Its SHA-256.
    Sha256([u8; 32]),
    /// aws-chunked, a signature on each chunk.
    SignedChunks,
    /// Framed like signed chunks, but with blank signatures: only a server that does not check chunks accepts them.
    BlankChunks,
}

impl PayloadHash {
    /// Covers these bytes.
    pub fn of(body: &[u8]) -> PayloadHash {
        PayloadHash::Sha256(Sha256::digest(body).into())
    }

    fn form(self) -> PayloadForm {
        match self {
            PayloadHash::Unsigned => PayloadForm::Unsigned,
            PayloadHash::Sha256(digest) => PayloadForm::Sha256(digest),
            PayloadHash::SignedChunks | PayloadHash::BlankChunks => PayloadForm::StreamingSigned,
        }
    }
}

#[derive(Debug)]
enum Signing {
    V2(v2::Signer),
    V4(v4::Signer),
}

#[derive(Debug)]
pub(crate) struct Signer {
    /// `None`: requests are not signed.
    signing: Option<Signing>,
    token: Option<HeaderValue>,
    clock: Arc<dyn Clock>,
}

impl Signer {
    pub(crate) fn new(keys: &Keys, region: &str, scheme: Scheme) -> Signer {
        let pair = &keys.pair;
        let signing = match scheme {
            Scheme::Anonymous => None,
            Scheme::V2 => Some(Signing::V2(v2::Signer::new(&pair.access_key, &pair.secret_key))),
            Scheme::V4 => Some(Signing::V4(v4::Signer::new(&pair.access_key, Secret::new(&pair.secret_key), region))),
        };
        // A token that no header can carry is refused by the store, as any wrong one.
        let token = keys.session_token.as_ref().and_then(|token| HeaderValue::from_str(&token.0).ok());
        let token = token.map(|mut token| {
            token.set_sensitive(true);
            token
        });
        Signer { signing, token, clock: margay_env::Env::real().clock }
    }

    /// Adds the signature's headers, and frames the body where `hash` asks for chunks; nothing may change afterwards.
    /// V2 and anonymous requests ignore `hash`.
    pub(crate) fn sign(&self, request: &mut Request<Payload>, hash: PayloadHash) -> Result<(), ClientError> {
        let refused = |reason: String| ClientError::Usage(format!("the request cannot be signed: {reason}"));
        let Some(signing) = &self.signing else { return Ok(()) };
        if let Some(token) = &self.token {
            request.headers_mut().insert(SESSION_TOKEN, token.clone());
        }
        match signing {
            Signing::V2(signer) => signer.sign(request, self.clock.now()).map_err(|reason| refused(reason.to_owned())),
            Signing::V4(signer) => {
                let form = hash.form();
                if form.is_chunked() {
                    let length = request.body().len();
                    announce_chunks(request.headers_mut(), length, None);
                    chunks::announce(request, form);
                }
                let (method, uri) = (request.method().clone(), request.uri().clone());
                let target = v4::Target { method: &method, path: uri.path(), query: uri.query().unwrap_or("") };
                let chain = signer
                    .sign(target, request.headers_mut(), form, self.clock.now())
                    .map_err(|error| refused(error.to_string()))?;
                if form.is_chunked() {
                    let chain = chain.filter(|_| hash == PayloadHash::SignedChunks);
                    chunks::wrap(request, form, chain);
                }
                Ok(())
            }
        }
    }
}
