//! Says what a caller may do and why, without a request: "may ann GetObject photos/cat.jpg, and why not?"
//!
//! Why:        whoever writes policies wants the answer of this server before a client gets it, and a console shows only buttons
//!             that work.
//! Invariants: S1 the same code decides as for a request; only what a request alone has (headers, form fields) is missing.
//!             S2 nothing is changed, and no refusal is logged: nobody was refused.
//! Not here:   who may ask (the binary).

use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use margay_env::Timestamp;
use margay_iam::registry::{ChangeError, Identity, Named, ROOT_ACCOUNT, Role, User};
use margay_volume::{RequestRows, Volume};

use super::asked::{Asked, On, of_action};
use super::context::Circumstances;
use super::services::ServiceAsk;
use super::{Access, Ask, Asker, explained};
use crate::error::Code;
use crate::identities::{AccountName, Identities, OrderError};
use crate::percent;
use crate::route::query::Query;
use crate::route::target::Target;

/// Questions of one caller at once.
pub const QUESTIONS_MAX: usize = 500;
const OWN_POWER: &str = "the root keys may do everything";
/// The name of the session of a role that is asked about.
const SESSION: &str = "simulation";

/// The simulated request.
#[derive(Clone, Debug)]
pub struct Given {
    pub peer: IpAddr,
    pub secure: bool,
    /// The prefix of a listing.
    pub prefix: Option<String>,
}

/// One action on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// As policies name it: `s3:GetObject`, `iam:GetUser`, `admin:Status`.
    pub action: String,
    /// `BUCKET`, `BUCKET/KEY` or an ARN.
    pub resource: String,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruling {
    pub allowed: bool,
    /// One line: what allows it, or why nothing does.
    pub because: String,
}

impl Ruling {
    fn of(outcome: Result<String, String>) -> Ruling {
        match outcome {
            Ok(because) => Ruling { allowed: true, because },
            Err(because) => Ruling { allowed: false, because },
        }
    }
}

/// Answers questions about the users of a server.
pub struct Simulation<'s> {
    volume: &'s Volume,
    access: Access,
    region: &'s str,
    now: Timestamp,
}

impl std::fmt::Debug for Simulation<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Simulation").field("region", &self.region).finish_non_exhaustive()
    }
}

impl<'s> Simulation<'s> {
    pub fn new(volume: &'s Volume, identities: Arc<dyn Identities>, region: &'s str, now: Timestamp) -> Simulation<'s> {
        let root = identities.account(AccountName::Id("")).unwrap_or_else(|| super::gone(ROOT_ACCOUNT, ROOT_ACCOUNT));
        Simulation { volume, access: Access { identities, root }, region, now }
    }

    /// The identity of a user (`ann`, `ACCOUNT/ann` or its ARN), a role (`role/NAME` or its ARN) or an access key; `None` for `*`, who
    /// does not sign.
    pub async fn identity(&self, who: &str) -> Result<Option<Arc<Identity>>, OrderError> {
        if who == "*" {
            return Ok(None);
        }
        let refused = OrderError::Refused;
        self.access.identities.catch_up().await.map_err(OrderError::Unanswered)?;
        let registry = self.access.identities.registry();
        if who == "root" {
            return Ok(Some(Arc::new(Identity::root(Arc::clone(&self.access.root)))));
        }
        let (kind, named) = named(who);
        if kind == "role" {
            let role = registry.find_named::<Role>(&named).map_err(refused)?;
            return Ok(registry.session(&role.id, SESSION, None).map(Arc::new));
        }
        let key = registry.keys.get(who);
        let user = match key {
            Some(key) => {
                registry.users.get(&key.user).ok_or_else(|| refused(ChangeError::Absent("user of", who.to_owned())))?
            }
            None => registry.find_named::<User>(&named).map_err(refused)?,
        };
        if key.is_some_and(|key| key.disabled) {
            return Err(refused(ChangeError::InUse(format!("the key {who} is disabled, so it may do nothing"))));
        }
        let identity = registry.user(&user.id);
        let disabled = || ChangeError::InUse(format!("the user {} is disabled, so it may do nothing", user.name));
        identity.map(Some).ok_or_else(|| refused(disabled()))
    }

    /// Answers one question; `None` asks without a signature.
    pub async fn answer(&self, identity: Option<&Identity>, given: &Given, question: &Question) -> Ruling {
        if identity.is_some_and(|identity| identity.is_root() && !identity.is_temporary) {
            return Ruling::of(Ok(OWN_POWER.to_owned()));
        }
        let circumstances = Circumstances {
            peer: given.peer,
            secure: given.secure,
            now: self.now,
            region: self.region,
            signature_version: identity.map(|_| "AWS4-HMAC-SHA256"),
            auth_type: identity.map(|_| "REST-HEADER"),
        };
        let service = question.action.split(':').next().unwrap_or_default().to_ascii_lowercase();
        let headers = HeaderMap::new();
        let of_service = || {
            let unsigned = || "the request is not signed".to_owned();
            identity
                .map(|identity| ServiceAsk { identity, circumstances: &circumstances, headers: &headers })
                .ok_or_else(unsigned)
        };
        let (action, resource) = (&question.action, &question.resource);
        Ruling::of(match service.as_str() {
            "s3" => self.of_s3((identity, circumstances), given, question).await,
            "iam" => of_service().and_then(|ask| ask.of_iam(action, resource)),
            "admin" => of_service().and_then(|ask| ask.of_administration(action, resource)),
            _ => Err(format!("{action} is no action of s3, iam or admin")),
        })
    }

    async fn of_s3(
        &self,
        (identity, circumstances): (Option<&Identity>, Circumstances<'_>),
        given: &Given,
        question: &Question,
    ) -> Result<String, String> {
        let place = question.resource.strip_prefix("arn:aws:s3:::").unwrap_or(&question.resource);
        let (bucket, key) = place.split_once('/').unwrap_or((place, ""));
        let bucket = if bucket == "*" { "" } else { bucket };
        let (op, action, on) = of_action(&question.action, !key.is_empty())
            .ok_or_else(|| format!("no request to this server needs {}", question.action))?;
        match (on, key.is_empty(), bucket.is_empty()) {
            (On::Object(_) | On::Entry | On::Attached, true, _) => {
                return Err(format!("{action} is about an object: ask for BUCKET/KEY"));
            }
            (On::Bucket(_) | On::Service, false, _) => {
                return Err(format!("{action} is about a bucket, not about a key"));
            }
            (On::Bucket(_), _, true) => return Err(format!("{action} is about a bucket: name it")),
            _ => {}
        }
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let target = Target { bucket: bucket.clone(), key: key.clone(), virtual_host: false };
        let asked = Asked { action, on, bucket, key, version: None };
        let mut query = String::new();
        if let Some(prefix) = &given.prefix {
            query.push_str("prefix=");
            percent::encode_into(&mut query, prefix, false);
        }
        let query = Query::parse(&query).unwrap_or_default();
        let (rows, headers) = (RequestRows::default(), HeaderMap::new());
        let asker = Asker { identity, circumstances };
        let (access, volume) = (&self.access, self.volume);
        let call = Ask { access, volume, rows: &rows, asker, op, target: &target, query: &query, headers: &headers };
        if on == On::Service {
            let identity = identity.ok_or_else(|| "the request is not signed".to_owned())?;
            return access.judge_service(&call, identity, &asked, explained).map_err(|refusal| refusal.text);
        }
        match access.decided(&call, &asked, explained).await {
            Ok(outcome) => outcome,
            Err(error) if error.code == Code::NoSuchBucket => Err(format!("there is no bucket {}", asked.bucket)),
            Err(error) => Err(format!("it cannot be said now: {error}")),
        }
    }
}

/// Whether a question about it makes sense: what looks like an action of S3 is one.
pub fn is_asked(action: &str) -> bool {
    let is_s3 = action.split(':').next().is_some_and(|service| service.eq_ignore_ascii_case("s3"));
    !is_s3 || margay_iam::is_action(action)
}

/// The kind of a caller, and its name.
fn named(who: &str) -> (&'static str, Named) {
    let of_arn = who.strip_prefix("arn:aws:iam::").and_then(|rest| rest.split_once(':'));
    let (account, path) = of_arn.unwrap_or(("", who));
    let kind = if path.starts_with("role/") { "role" } else { "user" };
    if of_arn.is_none() && kind == "user" {
        return (kind, Named::from(who));
    }
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let account = if account.is_empty() { ROOT_ACCOUNT } else { account };
    (kind, Named::in_account(account, &name))
}

/// The account that a caller is shown with.
pub fn shown(identity: Option<&Identity>) -> String {
    identity.map_or_else(|| "*".to_owned(), Identity::principal_arn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_named_as_people_and_policies_name_them() {
        let root = |name| Named::in_account(ROOT_ACCOUNT, name);
        for (who, kind, wanted) in [
            ("ann", "user", Named::from("ann")),
            ("123456789012/ann", "user", Named::in_account("123456789012", "ann")),
            ("arn:aws:iam::123456789012:user/team/ann", "user", Named::in_account("123456789012", "ann")),
            ("arn:aws:iam:::user/ann", "user", root("ann")),
            ("role/backup", "role", root("backup")),
            ("arn:aws:iam::000000000000:role/a/backup", "role", root("backup")),
        ] {
            assert_eq!(named(who), (kind, wanted), "{who}");
        }
    }

    #[test]
    fn every_action_of_an_operation_is_found_for_what_it_is_about() {
        let object = |name| of_action(name, true).unwrap().2;
        assert_eq!(object("s3:deleteobject"), On::Entry);
        assert!(matches!(of_action("s3:DeleteObject", false).unwrap().2, On::Bucket(_)));
        assert_eq!(object("s3:BypassGovernanceRetention"), On::Attached);
        assert!(matches!(object("s3:GetObjectVersion"), On::Object(Some(_))));
        assert!(matches!(of_action("s3:ListBucket", false).unwrap().2, On::Bucket(_)));
        assert!(of_action("s3:RestoreObject", true).is_none() && of_action("iam:GetUser", true).is_none());
    }
}
