//! The key behind a session, looked up at each request.
//!
//! Invariants: Y1 a key that was disabled or deleted signs nothing from the next request on.
//! Not here:   where keys are stored (margay-accounts), sessions (`sessions`).

use std::sync::Arc;

use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request};
use margay_env::Env;
use margay_iam::registry::Identity;
use margay_s3::auth::sign::{Signer, Target};
use margay_s3::auth::{Head, Host, PayloadForm, Secret, Verifier};
use margay_s3::identities::{Found, Identities, identify};

use crate::sessions::Session;

/// The host under which passed requests are signed: it is no domain of buckets.
pub(crate) const HOST_HERE: &str = "console.invalid";

/// The service that a request is signed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    S3,
    Iam,
}

/// A key that is valid now.
#[derive(Debug)]
pub(crate) struct Key {
    pub signer: Signer,
    pub identity: Arc<Identity>,
}

/// Where keys are found.
pub(crate) struct Keys {
    pub identities: Arc<dyn Identities>,
    pub region: String,
    pub env: Env,
    verifier: Verifier,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Keys").field("region", &self.region).finish_non_exhaustive()
    }
}

impl Keys {
    pub(crate) fn new(identities: Arc<dyn Identities>, region: String, env: Env) -> Keys {
        Keys { identities, region, env, verifier: Verifier::new(margay_s3::auth::Options::default()) }
    }

    /// The key of a session, unless it is no longer valid.
    pub(crate) fn of(&self, session: &Session) -> Option<Key> {
        let now = self.env.clock.now();
        match self.identities.find(&session.access_key, session.token.as_deref(), now) {
            Found::Known(credential, identity) => {
                Some(Key { signer: Signer::new(&session.access_key, credential.secret, &self.region), identity })
            }
            Found::Nobody | Found::Expired => None,
        }
    }

    /// Whether the secret belongs to the key: a request signed with it is verified like anybody's.
    pub(crate) async fn verify(&self, session: &Session, secret: &str) -> bool {
        let now = self.env.clock.now();
        let (method, mut headers) = (Method::GET, HeaderMap::new());
        headers.insert(HOST, HeaderValue::from_static(HOST_HERE));
        if let Some(token) = &session.token {
            let Ok(token) = HeaderValue::from_str(token) else { return false };
            headers.insert("x-amz-security-token", token);
        }
        let signer = Signer::new(&session.access_key, Secret::new(secret), &self.region);
        let target = Target { method: &method, path: "/", query: "" };
        if signer.sign(target, &mut headers, PayloadForm::Unsigned, now).is_err() {
            return false;
        }
        let mut request = Request::new(());
        *request.headers_mut() = headers;
        let (parts, ()) = request.into_parts();
        let Ok(host) = Host::of(&parts, false) else { return false };
        let head = Head::of(&parts, &host);
        let known = identify(&self.verifier, &head, &*self.identities, session.token.as_deref(), now).await;
        matches!(known, Ok((_, Some(_))))
    }
}
