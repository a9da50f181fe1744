//! Temporary keys: a session is sealed in its token, so nothing of it is stored.
//!
//! Invariants: T1 a token is valid for one access key, until it expires.  T2 a session has the current rights of its
//!                role or user, not those at its begin; without role or user it has none.

use std::sync::Arc;

use margay_env::{Env, Timestamp};
use margay_iam::registry::{Identity, Registry, SessionTags};
use margay_iam::{Kind, Policy};
use margay_s3::auth::{Credential, Secret};
use margay_s3::identities::{Found, NewSession, SessionKeys};
use serde::{Deserialize, Serialize};

use super::seal::SealKey;
use crate::root_keys;

/// Content of a token.
#[derive(Serialize, Deserialize)]
struct Content {
    key: String,
    secret: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    session: String,
    expires: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    #[serde(default, skip_serializing_if = "SessionTags::is_empty")]
    tags: SessionTags,
}

/// Keys of a new session.
pub(super) fn begin(seal: &SealKey, env: &Env, new: &NewSession) -> SessionKeys {
    let access_key = root_keys::new_access_key(env, "ASIA");
    let secret = root_keys::new_secret(env);
    let expires = env.clock.now().seconds() + i64::from(new.seconds);
    let content = Content {
        key: access_key.clone(),
        secret: secret.clone(),
        role: new.role.clone(),
        user: new.user.clone(),
        session: new.session.clone(),
        expires,
        policy: new.policy.clone(),
        tags: new.tags.clone(),
    };
    let json = serde_json::to_vec(&content).expect("a session is text and numbers");
    SessionKeys { access_key, secret, token: seal.seal_session(env, &json), expires }
}

/// Finds the identity of a temporary key.
pub(super) fn find(seal: &SealKey, registry: &Registry, access_key: &str, token: &str, now: Timestamp) -> Found {
    let content = seal.open_session(token).and_then(|json| serde_json::from_slice::<Content>(&json).ok());
    let Some(content) = content.filter(|content| content.key == access_key) else { return Found::Nobody };
    if now.seconds() >= content.expires {
        return Found::Expired;
    }
    let policy = match &content.policy {
        None => None,
        // This program sealed it, and accepted it then.
        Some(json) => match Policy::parse_stored(Kind::Identity, json.as_bytes()) {
            Ok(policy) => Some(Arc::new(policy)),
            Err(_) => return Found::Nobody,
        },
    };
    let identity = match (&content.role, &content.user) {
        (Some(role), _) => registry.session(role, &content.session, policy),
        (None, Some(user)) => {
            let with = |identity: Arc<Identity>| Identity {
                session_policy: policy,
                is_temporary: true,
                ..Identity::clone(&identity)
            };
            registry.user(user).map(with)
        }
        (None, None) => None,
    };
    match identity {
        Some(mut identity) => {
            identity.tags.extend(content.tags);
            let credential = Credential { secret: Secret::new(&content.secret), session_token: Some(token.into()) };
            Found::Known(credential, Arc::new(identity))
        }
        None => Found::Nobody,
    }
}

#[cfg(test)]
mod tests {
    use margay_iam::registry::{Record, Role};
    use margay_volume::KnownFingerprints;

    use super::*;

    #[test]
    fn a_session_has_the_tags_that_it_began_with_above_those_of_its_role() {
        let folder = tempfile::tempdir().unwrap();
        let env = Env::real();
        let seal = SealKey::load(&env, folder.path(), &KnownFingerprints::default()).unwrap().keys;
        let account = super::super::root_account();
        let role = serde_json::json!({"id": "r", "name": "r", "account": account.id, "trust": "", "created": 0, "tags": {"Team": "none", "Site": "north"}});
        let role: Role = serde_json::from_value(role).unwrap();
        let registry = Registry::new([Record::Account(account), Record::Role(role)]);
        let mut tags = SessionTags::from([("Team".to_owned(), vec!["red".to_owned(), "blue".to_owned()])]);
        let role = Some("r".to_owned());
        let new =
            NewSession { role, session: "s".to_owned(), seconds: 900, tags: tags.clone(), ..NewSession::default() };
        let keys = begin(&seal, &env, &new);
        match find(&seal, &registry, &keys.access_key, &keys.token, env.clock.now()) {
            Found::Known(_, identity) => {
                tags.insert("Site".to_owned(), vec!["north".to_owned()]);
                assert_eq!(identity.tags, tags);
            }
            other => panic!("{other:?}"),
        }
    }
}
