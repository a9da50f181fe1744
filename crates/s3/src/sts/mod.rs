//! AWS's Security Token Service: temporary keys, on the same endpoint.
//!
//! Why:        programs get keys that expire, and people of an identity provider need no keys at all.
//! Layout:     a request is a form (`POST /`); `web_identity` checks a provider's tokens with its `key_set`; `answer`
//!             writes the XML.
//! Invariants: T1 a role is assumed only if its trust policy allows it to the caller.  T2 a session policy can only
//!                restrict rights.  T3 every refusal is logged with its reason.
//! Not here:   the format of session tokens (margay-accounts).

mod answer;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
#[cfg(test)]
mod hostile_tokens;
mod key_set;
mod provider_error;
mod ring_verifier;
mod tags;
mod web_identity;

use std::borrow::Cow;

use margay_iam::registry::{Entity as _, Identity, Named, Part, Role, SessionTags};
use margay_iam::{Caller, Context, Kind, Lookup, POLICY_BYTES_MAX, Policy, Request, Sources, Who, decide_trust};

use self::answer::Begun;
pub use self::key_set::{KeySet, KeySource, PROVIDER_KEYS_MAX, Waited};
pub use self::provider_error::ProviderError;
pub use self::web_identity::Provider;
use crate::error::{Code, S3Error};
use crate::identities::{Identities, NewSession, caught_up};
use crate::query_api::{invalid, required};
use crate::reply::Reply;
use crate::route::query::Query;

/// Allowed duration of a session, in seconds.
const SECONDS: std::ops::RangeInclusive<u32> = 900..=43_200;
const SECONDS_DEFAULT: u32 = 3600;

/// Actions of this service; all others belong to IAM.
pub(crate) fn is_action(name: &str) -> bool {
    matches!(name, "AssumeRole" | "AssumeRoleWithWebIdentity" | "GetSessionToken" | "GetCallerIdentity")
}

/// Context of a request.
pub(crate) struct Service<'a> {
    pub identities: &'a dyn Identities,
    pub providers: &'a [Provider],
    /// Seconds since 1970.
    pub now: i64,
    pub request_id: &'a str,
}

/// Condition keys for a trust policy.
struct Circumstances<'a> {
    form: &'a Query,
    /// The requested role.
    role: &'a Role,
    /// Claims of a token, named as condition keys.
    claims: &'a [(String, Vec<String>)],
    /// Tags of the requested session.
    tags: &'a SessionTags,
}

/// Texts, or absent if there are none.
fn texts<'a>(values: impl IntoIterator<Item = &'a String>) -> Lookup<'a> {
    let values: Vec<_> = values.into_iter().map(|value| Cow::Borrowed(value.as_str())).collect();
    if values.is_empty() { Lookup::Absent } else { Lookup::Values(values) }
}

impl Context for Circumstances<'_> {
    fn lookup(&self, key: &str) -> Lookup<'_> {
        if let Some((_, values)) = self.claims.iter().find(|(own, _)| own == key) {
            return texts(values);
        }
        if let Some(name) = key.strip_prefix("aws:requesttag/") {
            return texts(self.tags.get(name).into_iter().flatten());
        }
        if let Some(name) = key.strip_prefix("iam:resourcetag/") {
            return Lookup::maybe(self.role.tags.get(name).map(String::as_str));
        }
        match key {
            "aws:tagkeys" => texts(self.tags.keys()),
            "sts:externalid" => Lookup::maybe(self.form.get("ExternalId")),
            "sts:rolesessionname" => Lookup::maybe(self.form.get("RoleSessionName")),
            // Other keys exist only in requests for buckets and objects.
            _ => Lookup::Unknown,
        }
    }
}

impl Service<'_> {
    /// Executes the form. `identity` signed it, unless it is anonymous.
    pub(crate) async fn run(&self, form: &Query, identity: Option<&Identity>) -> Result<Reply, S3Error> {
        if form.get("Action").is_some_and(|action| action.starts_with("AssumeRole")) {
            // Another process may have made the role.
            caught_up(self.identities.catch_up()).await?;
        }
        match (form.get("Action"), identity) {
            (Some("AssumeRoleWithWebIdentity"), _) => self.with_web_identity(form).await,
            (Some("AssumeRole"), Some(identity)) => self.assume_role(form, identity),
            (Some("GetSessionToken"), Some(identity)) => self.session_token(form, identity),
            (Some("GetCallerIdentity"), Some(identity)) => Ok(answer::caller(identity, self.request_id)),
            (Some(_), None) => Err(Code::MissingAuthenticationToken.into()),
            (_, Some(_)) => Err(Code::InvalidAction.into()),
            (None, None) => Err(invalid("Action is missing")),
        }
    }

    fn assume_role(&self, form: &Query, identity: &Identity) -> Result<Reply, S3Error> {
        let role = self.role(form)?;
        let caller = identity.caller();
        let policies = identity.policies.as_deref().ok_or(Code::AccessDenied)?;
        let named: Vec<(&str, &Policy)> =
            policies.iter().map(|(name, policy)| (name.as_str(), policy.as_ref())).collect();
        let sources = Sources {
            is_account: matches!(identity.role, Part::Root | Part::Account { .. }),
            is_own: identity.account.id == role.account,
            identity: &named,
            session: identity.session_policy.as_deref(),
            ..Sources::default()
        };
        let tags = tags::of_form(form)?;
        let circumstances = Circumstances { form, role: &role, claims: &[], tags: &tags };
        self.check_trust(sources, &caller, "sts:AssumeRole", &circumstances)?;
        Ok(answer::role(&self.begin(form, &role, tags)?, self.request_id))
    }

    async fn with_web_identity(&self, form: &Query) -> Result<Reply, S3Error> {
        let token = required(form, "WebIdentityToken")?;
        let role = self.role(form)?;
        let refused = |error: &ProviderError| {
            tracing::info!(target: "margay::access", role = role.name, %error, "a token of an identity provider is refused");
            S3Error::from(match error {
                ProviderError::Expired => Code::ExpiredTokenException,
                ProviderError::NoKeys => Code::IDPCommunicationError,
                _ => Code::InvalidIdentityToken,
            })
        };
        let identified = web_identity::check(self.providers, token, self.now).await.map_err(|error| refused(&error))?;
        let caller = Caller { who: Who::Federated { provider: identified.provider }, account: "", canonical_id: "" };
        let action = "sts:AssumeRoleWithWebIdentity";
        let circumstances = Circumstances { form, role: &role, claims: &identified.claims, tags: &identified.tags };
        self.check_trust(Sources::default(), &caller, action, &circumstances)?;
        let begun = self.begin(form, &role, identified.tags.clone())?;
        Ok(answer::web_identity(&begun, &identified, self.request_id))
    }

    /// A session with the rights of the calling user.
    fn session_token(&self, form: &Query, identity: &Identity) -> Result<Reply, S3Error> {
        let registry = self.identities.registry();
        let user = match &identity.role {
            // A session that could renew itself would never end.
            _ if identity.is_temporary => None,
            Part::User { .. } => Some(identity.id.clone()),
            Part::Account { .. } => registry.user_of_account(&identity.account.id).map(|user| user.id.clone()),
            Part::Root | Part::Session { .. } => None,
        };
        let Some(user) = user else {
            let message = "Cannot call GetSessionToken with session or root credentials";
            return Err(S3Error::new(Code::AccessDenied, message));
        };
        let new = NewSession {
            user: Some(user),
            session: "session".to_owned(),
            seconds: seconds(form)?,
            ..NewSession::default()
        };
        let keys = self.identities.begin_session(&new).ok_or(Code::AccessDenied)?;
        Ok(answer::session_token(&keys, self.request_id))
    }

    fn role(&self, form: &Query) -> Result<Role, S3Error> {
        let arn = required(form, "RoleArn")?;
        let found = arn.strip_prefix("arn:aws:iam::").and_then(|rest| {
            let (account, path) = rest.split_once(":role/")?;
            // Without an account, as Ceph writes it, the only role of that name is meant.
            let account = Some(account.to_owned()).filter(|account| !account.is_empty());
            let named = Named { account, name: path.rsplit('/').next()?.to_owned() };
            self.identities.registry().find_named::<Role>(&named).ok().cloned()
        });
        // The error must not reveal to unauthorized callers which roles exist.
        found.ok_or_else(|| Code::AccessDenied.into())
    }

    /// Whether the role may be assumed and the session may have its tags.
    fn check_trust(
        &self,
        sources: Sources<'_>,
        caller: &Caller<'_>,
        action: &str,
        circumstances: &Circumstances<'_>,
    ) -> Result<(), S3Error> {
        let role = circumstances.role;
        let arn = role.arn();
        let denied = |action: &str, because: &str| {
            tracing::info!(target: "margay::access", who = caller.arn(), action, resource = arn, because, "denied");
            Err(Code::AccessDenied.into())
        };
        let Ok(trust) = Policy::parse_stored(Kind::Trust, role.trust.as_bytes()) else {
            return denied(action, "the role's trust policy cannot be read");
        };
        let trust = trust.owned_by(&role.account);
        let tagging = (!circumstances.tags.is_empty()).then_some("sts:TagSession");
        for action in [action].into_iter().chain(tagging) {
            let request = Request { caller, action, resource: &arn, context: circumstances };
            let decision = decide_trust(&Sources { bucket: Some(&trust), ..sources }, &request);
            if !decision.allowed {
                return denied(action, &decision.reason.to_string());
            }
        }
        Ok(())
    }

    fn begin<'r>(&self, form: &'r Query, role: &'r Role, tags: SessionTags) -> Result<Begun<'r>, S3Error> {
        let session = required(form, "RoleSessionName")?;
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
        if !(2..=64).contains(&session.len()) || !session.bytes().all(fits) {
            return Err(invalid("RoleSessionName has 2 to 64 letters, digits and + = , . @ _ -"));
        }
        let seconds = seconds(form)?;
        if seconds > role.session_seconds_max {
            return Err(invalid(&format!(
                "DurationSeconds is more than the role allows: {}",
                role.session_seconds_max
            )));
        }
        tags::check(&tags)?;
        let policy = form.get("Policy").map(str::to_owned);
        if let Some(policy) = &policy {
            if policy.len() > SESSION_POLICY_BYTES_MAX {
                return Err(S3Error::new(Code::PackedPolicyTooLarge, "the session policy is too long"));
            }
            Policy::parse(Kind::Identity, policy.as_bytes())
                .map_err(|error| S3Error::new(Code::MalformedPolicyDocument, error.to_string()))?;
        }
        let id = Some(role.id.clone());
        let new = NewSession { role: id, user: None, session: session.to_owned(), policy, tags, seconds };
        let keys = self.identities.begin_session(&new).ok_or(Code::AccessDenied)?;
        let arn = format!("arn:aws:sts::{}:assumed-role/{}/{session}", role.account, role.name);
        let arn = match self.identities.registry().accounts.get(&role.account) {
            Some(account) => account.shown_arn(arn),
            None => arn,
        };
        Ok(Begun { role, session, arn, keys })
    }
}

/// Maximum size of a session policy, in bytes: it is sent in a header with every request.
const SESSION_POLICY_BYTES_MAX: usize = 2048;
const _: () = assert!(SESSION_POLICY_BYTES_MAX <= POLICY_BYTES_MAX);

fn seconds(form: &Query) -> Result<u32, S3Error> {
    match form.get("DurationSeconds") {
        None => Ok(SECONDS_DEFAULT),
        Some(text) => text
            .parse()
            .ok()
            .filter(|seconds| SECONDS.contains(seconds))
            .ok_or_else(|| invalid("DurationSeconds lies between 900 and 43200")),
    }
}

#[cfg(test)]
mod tests {
    use margay_env::Timestamp;
    use margay_iam::registry::Account;
    use serde_json::json;

    use super::*;
    use crate::identities::{AccountName, Found};

    struct Nobody;

    impl Identities for Nobody {
        fn find(&self, _: &str, _: Option<&str>, _: Timestamp) -> Found {
            Found::Nobody
        }

        fn account(&self, _: AccountName<'_>) -> Option<std::sync::Arc<Account>> {
            None
        }
    }

    const PROVIDER: &str = "localhost:8080/auth/realms/Demo";

    /// Whether a role with a trust policy that allows these actions under this condition may be assumed.
    fn is_trusted(actions: &[&str], condition: &serde_json::Value, tags: &[(&str, &[&str])]) -> bool {
        let statement = json!({"Effect": "Allow", "Action": actions, "Condition": condition,
            "Principal": {"Federated": format!("arn:aws:iam::000000000000:oidc-provider/{PROVIDER}")}});
        let trust = json!({"Version": "2012-10-17", "Statement": statement}).to_string();
        let role =
            json!({"name": "r", "account": "000000000000", "trust": trust, "tags": {"Site": "north"}, "created": 0});
        let role: Role = serde_json::from_value(role).unwrap();
        let values = |list: &[&str]| list.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
        let tags: SessionTags = tags.iter().map(|(name, list)| ((*name).to_owned(), values(list))).collect();
        let claims = [(margay_iam::normal_key(&format!("{PROVIDER}:azp")), values(&["shop"]))];
        let form = Query::parse("").unwrap();
        let circumstances = Circumstances { form: &form, role: &role, claims: &claims, tags: &tags };
        let caller = Caller { who: Who::Federated { provider: PROVIDER }, account: "", canonical_id: "" };
        let service = Service { identities: &Nobody, providers: &[], now: 0, request_id: "" };
        let action = "sts:AssumeRoleWithWebIdentity";
        service.check_trust(Sources::default(), &caller, action, &circumstances).is_ok()
    }

    #[test]
    fn a_trust_policy_sees_claims_and_tags() {
        const ASSUME: &str = "sts:AssumeRoleWithWebIdentity";
        const BOTH: &[&str] = &[ASSUME, "sts:TagSession"];
        let team: &[(&str, &[&str])] = &[("Team", &["red", "blue"])];
        let equals = |key: &str, value: &str| json!({"StringEquals": {key: value}});

        assert!(is_trusted(&[ASSUME], &equals(&format!("{PROVIDER}:azp"), "shop"), &[]));
        assert!(!is_trusted(&[ASSUME], &equals(&format!("{PROVIDER}:azp"), "else"), &[]));
        assert!(!is_trusted(&[ASSUME], &equals(&format!("{PROVIDER}:sub"), "shop"), &[]));

        assert!(is_trusted(BOTH, &equals("aws:RequestTag/Team", "blue"), team));
        assert!(!is_trusted(BOTH, &equals("aws:RequestTag/Team", "green"), team));
        assert!(!is_trusted(BOTH, &equals("aws:RequestTag/Floor", "blue"), team));
        assert!(is_trusted(BOTH, &equals("aws:TagKeys", "Team"), team));
        assert!(!is_trusted(BOTH, &json!({"ForAllValues:StringEquals": {"aws:RequestTag/Team": "red"}}), team));

        assert!(is_trusted(&[ASSUME], &equals("iam:ResourceTag/Site", "north"), &[]));
        assert!(!is_trusted(&[ASSUME], &equals("iam:ResourceTag/Site", "south"), &[]));

        // Tags need a separate permission; without tags there is nothing to permit.
        assert!(!is_trusted(&[ASSUME], &json!({}), team));
        assert!(is_trusted(&[ASSUME], &json!({}), &[]));
    }
}
