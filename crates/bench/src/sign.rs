//! Signs the requests of this client with the S3 door's own signer.
//!
//! Why:      one implementation of Signature Version 4 in the house, tested from both sides.
//! Not here: canonical forms and key derivation (`margay_s3::auth::sign`).

use std::sync::Arc;

use http::Request;
use margay_env::Clock;
use margay_s3::auth::sign as v4;
use margay_s3::auth::{PayloadForm, Secret};
use sha2::{Digest, Sha256};

use crate::error::BenchError;
use crate::payload::Payload;
use crate::target::Target;

/// What a signature says about the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadHash {
    /// Nothing: `UNSIGNED-PAYLOAD`.
    Unsigned,
    /// Its SHA-256.
    Sha256([u8; 32]),
}

impl PayloadHash {
    /// Covers these bytes.
    pub fn of(body: &[u8]) -> PayloadHash {
        PayloadHash::Sha256(Sha256::digest(body).into())
    }
}

#[derive(Debug)]
pub(crate) struct Signer {
    signer: v4::Signer,
    clock: Arc<dyn Clock>,
}

impl Signer {
    pub(crate) fn new(target: &Target) -> Signer {
        let keys = &target.credentials;
        Signer {
            signer: v4::Signer::new(&keys.access_key, Secret::new(&keys.secret_key), &target.region),
            clock: margay_env::Env::real().clock,
        }
    }

    /// Adds the headers of a signature; nothing may be changed afterwards.
    pub(crate) fn sign(&self, request: &mut Request<Payload>, hash: PayloadHash) -> Result<(), BenchError> {
        let form = match hash {
            PayloadHash::Unsigned => PayloadForm::Unsigned,
            PayloadHash::Sha256(digest) => PayloadForm::Sha256(digest),
        };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let target = v4::Target { method: &method, path: uri.path(), query: uri.query().unwrap_or("") };
        self.signer
            .sign(target, request.headers_mut(), form, self.clock.now())
            .map_err(|error| BenchError::Usage(format!("the request cannot be signed: {error}")))?;
        Ok(())
    }
}
