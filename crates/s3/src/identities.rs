//! The port through which the door finds the identity of an access key.
//!
//! Why:        the door does not depend on where identities are stored.
//! Invariants: I1 a temporary key is valid only with its token; a permanent key never has one.
//! Not here:   the signature (auth), what an identity may do (access).

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use margay_env::Timestamp;
use margay_iam::registry::{Account, ChangeError, Identity, Order, Registry, SessionTags};

use crate::auth::{AuthError, Credential, Credentials, Head, Sender, Verified, Verifier};
use crate::error::{Code, S3Error};

/// Result of a lookup by access key.
#[derive(Clone, Debug)]
pub enum Found {
    /// Unknown or disabled.
    Nobody,
    /// Its session has expired.
    Expired,
    Known(Credential, Arc<Identity>),
}

/// The form in which a request names an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountName<'a> {
    Id(&'a str),
    CanonicalId(&'a str),
    Email(&'a str),
}

/// A session to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSession {
    /// The id of the role; without one it is a session of `user`.
    pub role: Option<String>,
    /// Id.
    pub user: Option<String>,
    pub session: String,
    /// JSON of the session policy.
    pub policy: Option<String>,
    pub tags: SessionTags,
    /// Duration.
    pub seconds: u32,
}

/// The keys of a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKeys {
    pub access_key: String,
    pub secret: String,
    pub token: String,
    /// Seconds since 1970.
    pub expires: i64,
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SessionKeys({}, secret hidden)", self.access_key)
    }
}

/// A new access key with its secret, which is stored only encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct NewKey {
    pub id: String,
    pub secret: String,
    /// The encrypted secret to store.
    pub sealed: String,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "NewKey({}, secret hidden)", self.id)
    }
}

/// Why an order failed.
#[derive(Debug)]
pub enum OrderError {
    Refused(ChangeError),
    /// The rows did not answer in time, and the caller may try again; one line that says whether it may be done.
    Unanswered(String),
    /// It could not be stored, or this server stores no identities; one line for the log.
    Failed(String),
}

/// An order in progress.
pub type Ordered<'a> = Pin<Box<dyn Future<Output = Result<(), OrderError>> + Send + 'a>>;

/// A look at what others changed, in progress; an error is one line for the log.
pub type CaughtUp<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// The store of identities; called once per signed request, so it must not block.
pub trait Identities: Send + Sync {
    /// The identity of an access key. `token` accompanies a temporary one.
    fn find(&self, access_key: &str, token: Option<&str>, now: Timestamp) -> Found;

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>>;

    /// A snapshot of all identities.
    fn registry(&self) -> Arc<Registry> {
        Arc::default()
    }

    /// What is known here may be older than what another process has answered: `catch_up` comes before a request is decided.
    fn is_old(&self) -> bool {
        false
    }

    /// From here on `registry` shows what any process of the volume answered before.
    fn catch_up(&self) -> CaughtUp<'_> {
        Box::pin(ready(Ok(())))
    }

    /// As `catch_up` for whoever has a key that is not known here, so it does nothing if very many had one just now.
    fn catch_up_for_stranger(&self) -> CaughtUp<'_> {
        Box::pin(ready(Ok(())))
    }

    /// Executes an order; the next request sees its effect once this returns.
    fn order(&self, _order: Order) -> Ordered<'_> {
        Box::pin(ready(Err(OrderError::Failed("there are no users here".to_owned()))))
    }

    /// A new unique id with this prefix.
    fn new_id(&self, beginning: &str) -> String {
        beginning.to_owned()
    }

    /// A new access key; `None` where identities are not stored.
    fn new_key(&self) -> Option<NewKey> {
        None
    }

    /// Keys of a new session; `None` where sessions are not supported.
    fn begin_session(&self, _new: &NewSession) -> Option<SessionKeys> {
        None
    }
}

/// Treats every key known to the credentials as a root key.
pub(crate) struct RootOnly {
    pub credentials: Arc<dyn Credentials>,
    pub account: Arc<Account>,
}

impl Identities for RootOnly {
    fn find(&self, access_key: &str, _: Option<&str>, _: Timestamp) -> Found {
        match self.credentials.find(access_key) {
            Some(credential) => Found::Known(credential, Arc::new(Identity::root(Arc::clone(&self.account)))),
            None => Found::Nobody,
        }
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        let account = &self.account;
        let is_root = match name {
            AccountName::Id(id) => id.is_empty() || id == account.id,
            AccountName::CanonicalId(id) => id == account.canonical_id,
            AccountName::Email(email) => account.email.as_deref() == Some(email),
        };
        is_root.then(|| Arc::clone(account))
    }
}

/// Verifies a signature and returns the caller's identity; `None` when unsigned. `token` accompanies a temporary key.
pub async fn identify(
    verifier: &Verifier,
    head: &Head<'_>,
    identities: &dyn Identities,
    token: Option<&str>,
    now: Timestamp,
) -> Result<(Verified, Option<Arc<Identity>>), S3Error> {
    let verify = |credentials: &dyn Credentials| verifier.verify(head, credentials, now);
    let (verified, identity) = by_key(identities, token, now, verify).await?;
    let identity = signer(&verified.sender, identity)?;
    Ok((verified, identity))
}

/// As `identify`, for the policy of a form, which `verify` checks.
pub(crate) async fn identify_form(
    identities: &dyn Identities,
    token: Option<&str>,
    now: Timestamp,
    verify: impl Fn(&dyn Credentials) -> Result<Sender, AuthError>,
) -> Result<(Sender, Option<Arc<Identity>>), S3Error> {
    let (sender, identity) = by_key(identities, token, now, verify).await?;
    let identity = signer(&sender, identity)?;
    Ok((sender, identity))
}

/// The result of `verify`, and the identity of the key that it looked up. A key that is not known is looked for once more: another
/// process may have just made it.
async fn by_key<T>(
    identities: &dyn Identities,
    token: Option<&str>,
    now: Timestamp,
    verify: impl Fn(&dyn Credentials) -> Result<T, AuthError>,
) -> Result<(T, Option<Arc<Identity>>), S3Error> {
    let known = || {
        let asked = Asked { identities, token, now, found: OnceLock::new() };
        let verified = verify(&asked);
        (verified, asked.found.into_inner())
    };
    if identities.is_old() {
        caught_up(identities.catch_up()).await?;
    }
    let mut answer = known();
    if matches!(answer, (Err(AuthError::UnknownAccessKey(_)), None)) {
        caught_up(identities.catch_up_for_stranger()).await?;
        answer = known();
    }
    match answer {
        (Err(_), Some(Err(Expired))) => Err(Code::ExpiredToken.into()),
        (Err(error), _) => Err(error.into()),
        (Ok(verified), found) => Ok((verified, found.and_then(Result::ok))),
    }
}

/// While the rows cannot be read nobody knows what a request may do.
pub(crate) async fn caught_up(look: CaughtUp<'_>) -> Result<(), S3Error> {
    look.await.map_err(|cause| {
        tracing::warn!(cause, "a request was given up");
        S3Error::new(Code::ServiceUnavailable, "Users and keys cannot be read now; nothing was done.")
    })
}

/// A signed request has an identity, an unsigned one has none.
fn signer(sender: &Sender, identity: Option<Arc<Identity>>) -> Result<Option<Arc<Identity>>, S3Error> {
    match (sender, identity) {
        (Sender::Anonymous, _) => Ok(None),
        (_, Some(identity)) => Ok(Some(identity)),
        (_, None) => Err(S3Error::internal(&"a signature was believed without an identity")),
    }
}

/// Adapts identities to the signature check of one request; remembers the identity found.
struct Asked<'a> {
    identities: &'a dyn Identities,
    token: Option<&'a str>,
    now: Timestamp,
    found: OnceLock<Result<Arc<Identity>, Expired>>,
}

/// The session has expired.
struct Expired;

impl Credentials for Asked<'_> {
    fn find(&self, access_key: &str) -> Option<Credential> {
        match self.identities.find(access_key, self.token, self.now) {
            Found::Known(credential, identity) => {
                // A request is checked against one key; a second lookup can only find the same one.
                let _ = self.found.set(Ok(identity));
                Some(credential)
            }
            Found::Expired => {
                let _ = self.found.set(Err(Expired));
                None
            }
            Found::Nobody => None,
        }
    }
}
