//! Who may administer the server by a signed request: the signature, and the rights of its key.
//!
//! Why:        administration from another machine uses the keys and the policies that S3 and IAM use here, so there is one
//!             place where rights are given and taken.
//! Invariants: G1 a request is admitted only with a V4 signature in its headers that covers the SHA-256 of the whole body.
//!             G2 nothing is allowed without an allow, except to the root keys.
//!             G3 callers of another account than root's have no rights here, whatever their policies say: who owns an account
//!                writes its policies, and would give himself the server.
//!             G4 temporary keys of a user's session are refused: they could make keys that outlive the session.
//! Not here:   the works and the action of each (the binary), the meaning of policies (margay-iam).

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;
use margay_env::Env;
use margay_iam::registry::Identity;

use crate::access::context::Circumstances;
use crate::access::services::ServiceAsk;
use crate::auth::{CredentialSource, Head, Host, Options, PayloadForm, Sender, Verifier};
use crate::error::Code;
use crate::identities::{Found, Identities, identify};

/// The resource of a work that concerns the whole server.
pub const SERVER: &str = "arn:aws:margay:::server";

/// Checks signatures; one per server.
pub struct AdminGate {
    verifier: Verifier,
    identities: Arc<dyn Identities>,
    env: Env,
    region: String,
    /// The connection has TLS.
    secure: bool,
}

impl std::fmt::Debug for AdminGate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("AdminGate").field("secure", &self.secure).finish_non_exhaustive()
    }
}

/// A caller whose signature is valid.
#[derive(Clone, Debug)]
pub struct Admitted {
    identity: Arc<Identity>,
    access_key: String,
    headers: HeaderMap,
    peer: IpAddr,
    now: margay_env::Timestamp,
    region: String,
    secure: bool,
    /// What the signature says the SHA-256 of the body is.
    pub body_sha256: [u8; 32],
}

/// Why a request is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// The request is malformed.
    #[error("{0}")]
    Malformed(String),
    /// Nobody, or nobody who is known.
    #[error("{0}")]
    Unknown(String),
    /// Users and keys cannot be read now.
    #[error("{0}")]
    Late(String),
}

impl AdminGate {
    pub fn new(env: &Env, identities: Arc<dyn Identities>, region: &str, secure: bool) -> AdminGate {
        // G1: V2 covers no body.
        let verifier = Verifier::new(Options { version_2: false, ..Options::default() });
        AdminGate { verifier, identities, env: env.clone(), region: region.to_owned(), secure }
    }

    /// Verifies the signature of a request's head. The caller compares the body with [`Admitted::body_sha256`].
    pub async fn admit(&self, parts: &Parts, peer: IpAddr) -> Result<Admitted, NotAdmitted> {
        let host = Host::of(parts, self.secure).map_err(|error| NotAdmitted::Malformed(error.to_string()))?;
        let head = Head::of(parts, &host);
        let now = self.env.clock.now();
        let identified = identify(&self.verifier, &head, &*self.identities, token_of(&parts.headers), now).await;
        let (verified, identity) = identified.map_err(|error| match error.code {
            Code::InternalError => NotAdmitted::Late("users and keys cannot be read now; try again".to_owned()),
            _ => NotAdmitted::Unknown(error.to_string()),
        })?;
        let unsigned = "administration needs a signature in the headers (AWS Signature Version 4, service s3)";
        let unsigned = || NotAdmitted::Unknown(unsigned.to_owned());
        let identity = identity.ok_or_else(unsigned)?;
        let Sender::Key { access_key, given: CredentialSource::Header, .. } = verified.sender else {
            return Err(unsigned());
        };
        let PayloadForm::Sha256(body_sha256) = verified.payload else {
            let what = "the signature must cover the body: x-amz-content-sha256 must be its SHA-256";
            return Err(NotAdmitted::Unknown(what.to_owned()));
        };
        Ok(Admitted {
            identity,
            access_key,
            headers: parts.headers.clone(),
            peer,
            now,
            region: self.region.clone(),
            secure: self.secure,
            body_sha256,
        })
    }

    /// Whether a caller who was admitted earlier still has a valid key and may do `action`: both may have been taken away.
    pub fn still_permits(&self, admitted: &Admitted, action: &str, resource: &str) -> bool {
        let now = self.env.clock.now();
        match self.identities.find(&admitted.access_key, token_of(&admitted.headers), now) {
            Found::Known(_, identity) => Admitted { identity, now, ..admitted.clone() }.may(action, resource).is_ok(),
            Found::Nobody | Found::Expired => false,
        }
    }
}

impl Admitted {
    /// The ARN of the caller, for the audit log.
    pub fn arn(&self) -> String {
        self.identity.caller().arn()
    }

    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    pub fn is_root(&self) -> bool {
        self.identity.is_root() && !self.identity.is_temporary
    }

    /// Whether the caller may do `action` (`admin:Status`) with a resource. `Err` is the reason, for the audit log: the caller
    /// is told only which action is missing.
    pub fn may(&self, action: &str, resource: &str) -> Result<(), String> {
        let circumstances = Circumstances {
            peer: self.peer,
            secure: self.secure,
            now: self.now,
            region: &self.region,
            signature_version: Some("AWS4-HMAC-SHA256"),
            auth_type: Some("REST-HEADER"),
        };
        let ask = ServiceAsk { identity: &self.identity, circumstances: &circumstances, headers: &self.headers };
        ask.of_administration(action, resource).map(drop)
    }
}

fn token_of(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-amz-security-token").and_then(|token| token.to_str().ok())
}
