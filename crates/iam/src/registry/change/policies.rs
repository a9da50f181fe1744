//! Orders about policies, and about policies and tags attached to users, groups and roles.

use std::collections::BTreeMap;

use super::{
    ATTACHED_MAX, ChangeError, INLINE_BYTES_MAX, Outcome, TAGS_MAX, check_description, check_name, check_tags,
};
use crate::document::{Kind as PolicyKind, Policy};
use crate::registry::{
    Change, Entity, FIRST_VERSION, Group, Inline, Kind, Named, PolicyId, ROOT_ACCOUNT, Record, Registry, Role,
    StoredPolicy, Tags, User, managed,
};

/// A policy to create or replace.
pub(super) struct Put {
    pub id: String,
    pub policy: Named,
    pub path: String,
    pub description: String,
    pub document: String,
    pub new: bool,
}

/// A user, group or role: it has policies and tags.
enum Holder {
    User(User),
    Group(Group),
    Role(Role),
}

impl Holder {
    fn name(&self) -> &str {
        match self {
            Holder::User(user) => &user.name,
            Holder::Group(group) => &group.name,
            Holder::Role(role) => &role.name,
        }
    }

    fn account(&self) -> &str {
        match self {
            Holder::User(user) => &user.account,
            Holder::Group(group) => &group.account,
            Holder::Role(role) => &role.account,
        }
    }

    fn attached(&mut self) -> &mut Vec<PolicyId> {
        match self {
            Holder::User(user) => &mut user.policies,
            Holder::Group(group) => &mut group.policies,
            Holder::Role(role) => &mut role.policies,
        }
    }

    fn inline(&mut self) -> &mut Inline {
        match self {
            Holder::User(user) => &mut user.inline,
            Holder::Group(group) => &mut group.inline,
            Holder::Role(role) => &mut role.inline,
        }
    }

    fn tags(&mut self) -> Result<&mut Tags, ChangeError> {
        match self {
            Holder::User(user) => Ok(&mut user.tags),
            Holder::Role(role) => Ok(&mut role.tags),
            Holder::Group(_) => Err(ChangeError::Value("groups have no tags".to_owned())),
        }
    }

    fn put(self) -> Outcome {
        Ok(vec![Change::Put(match self {
            Holder::User(user) => Record::User(user),
            Holder::Group(group) => Record::Group(group),
            Holder::Role(role) => Record::Role(role),
        })])
    }
}

impl Registry {
    fn holder(&self, kind: Kind, named: &Named) -> Result<Holder, ChangeError> {
        match kind {
            Kind::User => self.find_named::<User>(named).cloned().map(Holder::User),
            Kind::Group => self.find_named::<Group>(named).cloned().map(Holder::Group),
            Kind::Role => self.find_named::<Role>(named).cloned().map(Holder::Role),
            _ => Err(ChangeError::Value(format!("no policy hangs on an {}", kind.word()))),
        }
    }

    pub(super) fn put_policy(&self, put: Put, now: i64) -> Outcome {
        let Put { id, policy, path, description, document, new } = put;
        check_name(Kind::Policy, &policy.name)?;
        check_description(&description)?;
        Policy::parse(PolicyKind::Identity, document.as_bytes())?;
        let account = policy.account.as_deref().unwrap_or(ROOT_ACCOUNT);
        let here = Named::in_account(account, &policy.name);
        let policy = match self.find_named::<StoredPolicy>(&here) {
            Ok(old) if !new => StoredPolicy { document, updated: now, ..old.clone() },
            _ => {
                self.check_new::<StoredPolicy>(&id, &here.name, &path, account)?;
                self.check_account_is_there_or_root(account)?;
                StoredPolicy {
                    id,
                    name: here.name,
                    path,
                    account: account.to_owned(),
                    description,
                    document,
                    created: now,
                    updated: now,
                    version: FIRST_VERSION,
                    newest: FIRST_VERSION,
                    others: BTreeMap::new(),
                }
            }
        };
        Ok(vec![Change::Put(Record::Policy(policy))])
    }

    /// The account of the root keys exists without a record.
    fn check_account_is_there_or_root(&self, account: &str) -> Result<(), ChangeError> {
        if account == ROOT_ACCOUNT { Ok(()) } else { self.check_account_is_there(account) }
    }

    pub(super) fn delete_policy(&self, policy: &Named, bare: bool) -> Outcome {
        let policy = self.find_named::<StoredPolicy>(policy)?;
        if bare && !policy.others.is_empty() {
            return Err(ChangeError::InUse(format!("{} has other versions; delete them first", policy.name)));
        }
        match self.holders(&policy.id).next() {
            Some((_, _, holder)) => {
                Err(ChangeError::InUse(format!("{} is attached to {holder}; detach it first", policy.name)))
            }
            None => Ok(vec![Change::Remove(Kind::Policy, policy.id.clone())]),
        }
    }

    /// Users, groups and roles that a policy is attached to: kinds, accounts and names.
    fn holders<'r>(&'r self, policy: &'r str) -> impl Iterator<Item = (Kind, &'r str, &'r str)> {
        fn of<E: Entity>(entity: &E) -> (Kind, &str, &str) {
            (E::KIND, entity.account(), entity.name())
        }
        let users = self.users.values().map(|user| (of(user), &user.policies));
        let groups = self.groups.values().map(|group| (of(group), &group.policies));
        let roles = self.roles.values().map(|role| (of(role), &role.policies));
        let all = users.chain(groups).chain(roles);
        all.filter(move |(_, attached)| attached.iter().any(|id| id == policy)).map(|(holder, _)| holder)
    }

    /// Users, groups and roles of an account that a policy is attached to: kinds and names.
    pub fn holders_of<'r>(&'r self, policy: &'r str, account: &'r str) -> impl Iterator<Item = (Kind, &'r str)> {
        let own = self.holders(policy).filter(move |(_, own, _)| *own == account);
        own.map(|(kind, _, name)| (kind, name))
    }

    /// A policy that may be attached in this account: its own, one of the operator's, or a built-in one. Whoever can
    /// change a policy controls everybody whom it is attached to.
    fn policy_for(&self, account: &str, policy: &Named) -> Result<PolicyId, ChangeError> {
        if let Some((name, _)) = managed::find(policy) {
            return Ok(managed::arn(name));
        }
        let found = self.find_named::<StoredPolicy>(policy)?;
        match found.account == account || found.account == ROOT_ACCOUNT {
            true => Ok(found.id.clone()),
            false => Err(ChangeError::Absent("policy", policy.name.clone())),
        }
    }

    pub(super) fn attach(&self, policy: &Named, kind: Kind, to: &Named) -> Outcome {
        let mut holder = self.holder(kind, to)?;
        let policy = self.policy_for(holder.account(), policy)?;
        let attached = holder.attached();
        if !attached.contains(&policy) {
            if attached.len() >= ATTACHED_MAX {
                let message = format!("{} has {ATTACHED_MAX} policies, more are not allowed", holder.name());
                return Err(ChangeError::Limit(message));
            }
            attached.push(policy);
        }
        holder.put()
    }

    pub(super) fn detach(&self, policy: &Named, kind: Kind, from: &Named) -> Outcome {
        let mut holder = self.holder(kind, from)?;
        let id = self.policy_for(holder.account(), policy)?;
        let attached = holder.attached();
        let count = attached.len();
        attached.retain(|own| *own != id);
        if attached.len() == count {
            return Err(ChangeError::Absent("attached policy", policy.name.clone()));
        }
        holder.put()
    }

    pub(super) fn put_inline(&self, kind: Kind, to: &Named, name: String, document: String) -> Outcome {
        let mut holder = self.holder(kind, to)?;
        check_name(Kind::Policy, &name)?;
        Policy::parse(PolicyKind::Identity, document.as_bytes())?;
        let inline = holder.inline();
        inline.insert(name, document);
        if inline.values().map(String::len).sum::<usize>() > INLINE_BYTES_MAX {
            let message = format!("the policies of {} itself have {INLINE_BYTES_MAX} bytes at most", holder.name());
            return Err(ChangeError::Limit(message));
        }
        holder.put()
    }

    pub(super) fn delete_inline(&self, kind: Kind, from: &Named, name: &str) -> Outcome {
        let mut holder = self.holder(kind, from)?;
        match holder.inline().remove(name) {
            Some(_) => holder.put(),
            None => Err(ChangeError::Absent("policy", name.to_owned())),
        }
    }

    pub(super) fn tag(&self, kind: Kind, to: &Named, tags: Tags) -> Outcome {
        let mut holder = self.holder(kind, to)?;
        let own = holder.tags()?;
        own.extend(tags);
        check_tags(own)?;
        holder.put()
    }

    pub(super) fn untag(&self, kind: Kind, from: &Named, keys: &[String]) -> Outcome {
        let mut holder = self.holder(kind, from)?;
        if keys.len() > TAGS_MAX {
            return Err(ChangeError::Limit(format!("there may be {TAGS_MAX} tags")));
        }
        holder.tags()?.retain(|key, _| !keys.contains(key));
        holder.put()
    }
}
