//! Authorization of IAM actions.
//!
//! Invariants: R1 nothing is allowed without an allow, except to the user that represents the account, and to root in
//!                root's own account.
//!             R2 temporary keys of a user's session have no rights here: they could create keys that outlive the
//!                session.
//!             R3 every denial is logged with its reason, which the client is not told.
//! Not here:   the meaning of policies (margay-iam).

use margay_iam::registry::{Entity, Group, Kind, Named, Role, StoredPolicy, User, provider_name};

use super::action::On;
use super::{Call, Work};
use crate::access::services::ServiceAsk;
use crate::error::{Code, S3Error};
use crate::query_api;

/// The field that names an entity of this kind.
fn field(kind: Kind) -> &'static str {
    match kind {
        Kind::Group => "GroupName",
        Kind::Role => "RoleName",
        Kind::Policy => "PolicyName",
        _ => "UserName",
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Group => Group::ARN_WORD,
        Kind::Role => Role::ARN_WORD,
        Kind::Policy => StoredPolicy::ARN_WORD,
        _ => User::ARN_WORD,
    }
}

impl Work<'_> {
    fn arn(&self, kind: Kind, path: &str, name: &str) -> String {
        format!("arn:aws:iam::{}:{}{path}{name}", self.account(), word(kind))
    }

    /// The ARN of an entity; a missing one counts as having the path `/`.
    fn arn_of(&self, kind: Kind, name: &str) -> String {
        let named = Named::in_account(self.account(), name);
        let registry = &self.registry;
        let found = match kind {
            Kind::Group => registry.find_named::<Group>(&named).map(Entity::arn),
            Kind::Role => registry.find_named::<Role>(&named).map(Entity::arn),
            Kind::Policy => registry.find_named::<StoredPolicy>(&named).map(Entity::arn),
            _ => registry.find_named::<User>(&named).map(Entity::arn),
        };
        found.unwrap_or_else(|_| self.arn(kind, "/", name))
    }

    /// The resources of the action.
    pub(super) fn resources(&self) -> Result<Vec<String>, S3Error> {
        let one = |kind| self.required(field(kind)).map(|name| self.arn_of(kind, name));
        match self.action.on {
            On::Caller if self.get("UserName").is_none() => Ok(vec![self.call.identity.principal_arn()]),
            On::Caller => Ok(vec![one(Kind::User)?]),
            On::One(kind) => Ok(vec![one(kind)?]),
            On::New(kind) => Ok(vec![self.arn(kind, &self.path(), self.required(field(kind))?)]),
            On::Moved(kind) => {
                let old = one(kind)?;
                let path_end = old.rfind('/').map_or(old.len(), |at| at + 1);
                let (new_name, new_path) = match kind {
                    Kind::Group => (self.get("NewGroupName"), self.get("NewPath")),
                    _ => (self.get("NewUserName"), self.get("NewPath")),
                };
                let name = new_name.unwrap_or(&old[path_end..]);
                let new = match new_path {
                    Some(path) => self.arn(kind, path, name),
                    None => format!("{}{name}", &old[..path_end]),
                };
                Ok(vec![old, new])
            }
            On::All(kind) => Ok(vec![self.arn(kind, "/", "")]),
            On::Arn(field) => Ok(vec![self.with_account(self.required(field)?)]),
            On::NewProvider => {
                let name = provider_name(self.required("Url")?);
                Ok(vec![format!("arn:aws:iam::{}:oidc-provider/{name}", self.account())])
            }
            On::Account => Ok(vec![format!("arn:aws:iam::{}:root", self.account())]),
        }
    }

    /// Allows or refuses the action on a resource.
    pub(super) fn require(&self, resource: &str) -> Result<(), S3Error> {
        let identity = self.call.identity;
        let denied = |because: &str| {
            let (who, action) = (identity.caller().arn(), self.action.name);
            let peer = self.call.circumstances.peer;
            tracing::info!(target: "margay::access", who, action, resource, %peer, because, "denied");
            Err(Code::AccessDenied.into())
        };
        let Call { circumstances, headers, .. } = *self.call;
        let ask = ServiceAsk { identity, circumstances, headers };
        match ask.of_iam(&format!("iam:{}", self.action.name), resource) {
            Ok(_) => Ok(()),
            Err(because) => denied(&because),
        }
    }

    /// An ARN, with the caller's account filled in where it names none.
    pub(super) fn with_account(&self, arn: &str) -> String {
        match arn.strip_prefix("arn:aws:iam:::") {
            Some(rest) => format!("arn:aws:iam::{}:{rest}", self.account()),
            None => arn.to_owned(),
        }
    }

    /// The part after the account in an ARN of the caller's account, such as `oidc-provider/...`.
    pub(super) fn own_arn<'r>(&self, arn: &'r str, word: &str) -> Result<&'r str, S3Error> {
        let rest = arn.strip_prefix("arn:aws:iam::").ok_or_else(|| query_api::invalid("that is no ARN"))?;
        let rest = rest.strip_prefix(self.account()).unwrap_or(rest);
        let own = rest.strip_prefix(':').and_then(|rest| rest.strip_prefix(word));
        own.and_then(|rest| rest.strip_prefix('/')).ok_or_else(|| Code::NoSuchEntity.into())
    }
}
