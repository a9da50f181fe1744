//! The actions of the IAM API, and the resource of each.
//!
//! Why:      one table maps an action to the ARN that policies are evaluated for.
//! Not here: authorization (`rights`), execution (one file per kind of entity).

use std::future::Future;
use std::pin::Pin;

use margay_iam::registry::Kind;

use super::{
    Work, access_keys, account_summary, attached_policies, groups, inline_policies, policies, policy_versions,
    providers, roles, tags, users,
};
use crate::error::S3Error;
use crate::reply::Reply;

pub(super) type Outcome<'a> = Pin<Box<dyn Future<Output = Result<Reply, S3Error>> + Send + 'a>>;

/// The resource of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    /// The user in `UserName`, or else the caller.
    Caller,
    /// The entity that the field of its kind names (`UserName`, `GroupName`, `RoleName`).
    One(Kind),
    /// An entity to be created, named by the field of its kind, at `Path`.
    New(Kind),
    /// The entity and its new name.
    Moved(Kind),
    /// All entities of a kind.
    All(Kind),
    /// The policy, or identity provider, whose ARN is in this field.
    Arn(&'static str),
    /// The identity provider with the URL in `Url`.
    NewProvider,
    /// The account.
    Account,
}

pub(super) struct Action {
    pub name: &'static str,
    pub on: On,
    pub run: for<'a> fn(&'a Work<'a>) -> Outcome<'a>,
}

pub(super) fn find(name: &str) -> Option<&'static Action> {
    ACTIONS.iter().find(|action| action.name == name)
}

/// The names of all actions.
pub fn names() -> impl Iterator<Item = &'static str> {
    ACTIONS.iter().map(|action| action.name)
}

macro_rules! actions {
    ($($name:literal $on:expr => $run:expr;)*) => {
        static ACTIONS: &[Action] = &[$(Action { name: $name, on: $on, run: |work| Box::pin($run(work)) }),*];
    };
}

use self::On::{Account, All, Arn, Caller, Moved, New, One};
use Kind::{Group, Policy, Role, User};

actions! {
    "CreateUser" New(User) => users::create;
    "GetUser" Caller => users::get;
    "ListUsers" All(User) => users::list;
    "UpdateUser" Moved(User) => users::update;
    "DeleteUser" One(User) => users::delete;

    "CreateAccessKey" Caller => access_keys::create;
    "ListAccessKeys" Caller => access_keys::list;
    "UpdateAccessKey" Caller => access_keys::update;
    "DeleteAccessKey" Caller => access_keys::delete;

    "CreateGroup" New(Group) => groups::create;
    "GetGroup" One(Group) => groups::get;
    "ListGroups" All(Group) => groups::list;
    "ListGroupsForUser" One(User) => groups::list_for_user;
    "UpdateGroup" Moved(Group) => groups::update;
    "DeleteGroup" One(Group) => groups::delete;
    "AddUserToGroup" One(Group) => groups::add_user;
    "RemoveUserFromGroup" One(Group) => groups::remove_user;

    "CreateRole" New(Role) => roles::create;
    "GetRole" One(Role) => roles::get;
    "ListRoles" All(Role) => roles::list;
    "UpdateRole" One(Role) => roles::update;
    "UpdateAssumeRolePolicy" One(Role) => roles::update_trust;
    "DeleteRole" One(Role) => roles::delete;

    "PutUserPolicy" One(User) => |work| inline_policies::put(work, User);
    "GetUserPolicy" One(User) => |work| inline_policies::get(work, User);
    "ListUserPolicies" One(User) => |work| inline_policies::list(work, User);
    "DeleteUserPolicy" One(User) => |work| inline_policies::delete(work, User);
    "PutGroupPolicy" One(Group) => |work| inline_policies::put(work, Group);
    "GetGroupPolicy" One(Group) => |work| inline_policies::get(work, Group);
    "ListGroupPolicies" One(Group) => |work| inline_policies::list(work, Group);
    "DeleteGroupPolicy" One(Group) => |work| inline_policies::delete(work, Group);
    "PutRolePolicy" One(Role) => |work| inline_policies::put(work, Role);
    "GetRolePolicy" One(Role) => |work| inline_policies::get(work, Role);
    "ListRolePolicies" One(Role) => |work| inline_policies::list(work, Role);
    "DeleteRolePolicy" One(Role) => |work| inline_policies::delete(work, Role);

    "AttachUserPolicy" One(User) => |work| attached_policies::attach(work, User);
    "DetachUserPolicy" One(User) => |work| attached_policies::detach(work, User);
    "ListAttachedUserPolicies" One(User) => |work| attached_policies::list(work, User);
    "AttachGroupPolicy" One(Group) => |work| attached_policies::attach(work, Group);
    "DetachGroupPolicy" One(Group) => |work| attached_policies::detach(work, Group);
    "ListAttachedGroupPolicies" One(Group) => |work| attached_policies::list(work, Group);
    "AttachRolePolicy" One(Role) => |work| attached_policies::attach(work, Role);
    "DetachRolePolicy" One(Role) => |work| attached_policies::detach(work, Role);
    "ListAttachedRolePolicies" One(Role) => |work| attached_policies::list(work, Role);

    "CreatePolicy" New(Policy) => policies::create;
    "GetPolicy" Arn("PolicyArn") => policies::get;
    "GetPolicyVersion" Arn("PolicyArn") => policy_versions::get;
    "ListPolicies" All(Policy) => policies::list;
    "ListPolicyVersions" Arn("PolicyArn") => policy_versions::list;
    "CreatePolicyVersion" Arn("PolicyArn") => policy_versions::create;
    "SetDefaultPolicyVersion" Arn("PolicyArn") => policy_versions::set_default;
    "DeletePolicyVersion" Arn("PolicyArn") => policy_versions::delete;
    "ListEntitiesForPolicy" Arn("PolicyArn") => policies::list_entities;
    "DeletePolicy" Arn("PolicyArn") => policies::delete;

    "TagUser" One(User) => |work| tags::tag(work, User);
    "UntagUser" One(User) => |work| tags::untag(work, User);
    "ListUserTags" One(User) => |work| tags::list(work, User);
    "TagRole" One(Role) => |work| tags::tag(work, Role);
    "UntagRole" One(Role) => |work| tags::untag(work, Role);
    "ListRoleTags" One(Role) => |work| tags::list(work, Role);

    "CreateOpenIDConnectProvider" On::NewProvider => providers::create;
    "GetOpenIDConnectProvider" Arn("OpenIDConnectProviderArn") => providers::get;
    "ListOpenIDConnectProviders" Account => providers::list;
    "AddClientIDToOpenIDConnectProvider" Arn("OpenIDConnectProviderArn") => providers::add_client;
    "RemoveClientIDFromOpenIDConnectProvider" Arn("OpenIDConnectProviderArn") => providers::remove_client;
    "UpdateOpenIDConnectProviderThumbprint" Arn("OpenIDConnectProviderArn") => providers::update_thumbprints;
    "DeleteOpenIDConnectProvider" Arn("OpenIDConnectProviderArn") => providers::delete;

    "GetAccountSummary" Account => account_summary::get;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_stands_once() {
        let mut all: Vec<_> = names().collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
