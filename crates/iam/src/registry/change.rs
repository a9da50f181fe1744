//! What an order of an operator changes.
//!
//! Invariants: O1 an order is decided on one registry and gives whole records: all of it happens or nothing.
//!             O2 nothing that is still in use goes: a policy that is attached, a group with users, an account with
//!             other users.

use super::{AccessKey, Account, Group, Kind, Record, Registry, Role, StoredPolicy, User};
use crate::document::{Kind as PolicyKind, Policy, PolicyError};

/// Most records of one kind.
pub const RECORDS_MAX: usize = 10_000;
/// Most access keys of one user.
pub const KEYS_MAX: usize = 8;
/// Most policies attached to one user, group or role.
pub const ATTACHED_MAX: usize = 20;
/// The longest name of a user, group, role or policy, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// What is asked for. Random and secret parts are made by the caller.
#[derive(Clone, Debug)]
pub enum Order {
    CreateUser(NewUser),
    DeleteUser {
        name: String,
    },
    SetUserDisabled {
        name: String,
        disabled: bool,
    },
    CreateGroup {
        name: String,
        account: String,
    },
    DeleteGroup {
        name: String,
    },
    JoinGroup {
        user: String,
        group: String,
    },
    LeaveGroup {
        user: String,
        group: String,
    },
    CreateRole {
        name: String,
        account: String,
        trust: String,
    },
    DeleteRole {
        name: String,
    },
    PutPolicy {
        name: String,
        document: String,
    },
    DeletePolicy {
        name: String,
    },
    Attach {
        policy: String,
        kind: Kind,
        to: String,
    },
    Detach {
        policy: String,
        kind: Kind,
        from: String,
    },
    CreateKey {
        id: String,
        user: String,
        sealed: String,
    },
    DeleteKey {
        id: String,
    },
    SetKeyDisabled {
        id: String,
        disabled: bool,
    },
    /// The key with the id `old` gives way to a new one.
    RotateKey {
        old: String,
        id: String,
        sealed: String,
    },
}

#[derive(Clone, Debug)]
pub struct NewUser {
    pub name: String,
    /// Present: the user is the account that comes with it. Else it joins the account with the id `joins`.
    pub account: Option<Account>,
    pub joins: String,
}

/// One row to write or to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Put(Record),
    Remove(Kind, String),
}

pub type Outcome = Result<Vec<Change>, ChangeError>;

/// Why an order is refused; one line for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error("there is no {0} {1}")]
    Absent(&'static str, String),
    #[error("there is a {0} {1} already")]
    Present(&'static str, String),
    #[error("{0}")]
    InUse(String),
    #[error("{0}")]
    Limit(String),
    #[error("a name has 1 to {NAME_BYTES_MAX} letters, digits and + = , . @ _ -: {0:?}")]
    Name(String),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

fn named(kind: Kind) -> &'static str {
    match kind {
        Kind::Account => "account",
        Kind::User => "user",
        Kind::Group => "group",
        Kind::Role => "role",
        Kind::Policy => "policy",
        Kind::Key => "access key",
    }
}

fn check_name(name: &str) -> Result<(), ChangeError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(ChangeError::Name(name.to_owned()))
}

fn check_account(id: &str) -> Result<(), ChangeError> {
    match id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(()),
        false => Err(ChangeError::Limit(format!("an account id has twelve digits: {id:?}"))),
    }
}

/// What hangs policies on itself.
enum Holder {
    User(User),
    Group(Group),
    Role(Role),
}

impl Holder {
    fn policies(&mut self) -> &mut Vec<String> {
        match self {
            Holder::User(user) => &mut user.policies,
            Holder::Group(group) => &mut group.policies,
            Holder::Role(role) => &mut role.policies,
        }
    }

    fn put(self) -> Change {
        Change::Put(match self {
            Holder::User(user) => Record::User(user),
            Holder::Group(group) => Record::Group(group),
            Holder::Role(role) => Record::Role(role),
        })
    }
}

impl Registry {
    /// Decides an order; `now` is in seconds since 1970.
    pub fn decide(&self, order: Order, now: i64) -> Outcome {
        match order {
            Order::CreateUser(new) => self.create_user(new, now),
            Order::DeleteUser { name } => self.delete_user(&name),
            Order::SetUserDisabled { name, disabled } => self.change_user(&name, |user| {
                user.disabled = disabled;
                Ok(())
            }),
            Order::CreateGroup { name, account } => {
                self.check_new(Kind::Group, &name, self.groups.len(), self.groups.contains_key(&name))?;
                self.check_account_is_there(&account)?;
                let group = Group { name, account, policies: Vec::new(), created: now };
                Ok(vec![Change::Put(Record::Group(group))])
            }
            Order::DeleteGroup { name } => self.delete_group(name),
            Order::JoinGroup { user, group } => {
                let account = self.group(&group)?.account.clone();
                self.change_user(&user, |user| match user.account == account {
                    true if user.groups.contains(&group) => Ok(()),
                    true => {
                        user.groups.push(group);
                        Ok(())
                    }
                    false => Err(ChangeError::InUse(format!("{} and {group} are of different accounts", user.name))),
                })
            }
            Order::LeaveGroup { user, group } => self.change_user(&user, |user| {
                user.groups.retain(|own| *own != group);
                Ok(())
            }),
            Order::CreateRole { name, account, trust } => {
                self.check_new(Kind::Role, &name, self.roles.len(), self.roles.contains_key(&name))?;
                self.check_account_is_there(&account)?;
                Policy::parse(PolicyKind::Trust, trust.as_bytes())?;
                let role = Role { name, account, trust, policies: Vec::new(), created: now };
                Ok(vec![Change::Put(Record::Role(role))])
            }
            Order::DeleteRole { name } => {
                let absent = || ChangeError::Absent("role", name.clone());
                self.roles.get(&name).ok_or_else(absent)?;
                Ok(vec![Change::Remove(Kind::Role, name)])
            }
            Order::PutPolicy { name, document } => self.put_policy(name, document, now),
            Order::DeletePolicy { name } => self.delete_policy(name),
            Order::Attach { policy, kind, to } => self.attach(policy, kind, &to),
            Order::Detach { policy, kind, from } => {
                let mut holder = self.holder(kind, &from)?;
                holder.policies().retain(|own| *own != policy);
                Ok(vec![holder.put()])
            }
            Order::CreateKey { id, user, sealed } => {
                Ok(vec![Change::Put(Record::Key(self.new_key(id, user, sealed, now, KEYS_MAX)?))])
            }
            Order::DeleteKey { id } => {
                self.key(&id)?;
                Ok(vec![Change::Remove(Kind::Key, id)])
            }
            Order::SetKeyDisabled { id, disabled } => {
                let key = AccessKey { disabled, ..self.key(&id)?.clone() };
                Ok(vec![Change::Put(Record::Key(key))])
            }
            Order::RotateKey { old, id, sealed } => {
                let user = self.key(&old)?.user.clone();
                let new = self.new_key(id, user, sealed, now, KEYS_MAX + 1)?;
                Ok(vec![Change::Put(Record::Key(new)), Change::Remove(Kind::Key, old)])
            }
        }
    }

    fn check_new(&self, kind: Kind, name: &str, count: usize, present: bool) -> Result<(), ChangeError> {
        check_name(name)?;
        if present {
            return Err(ChangeError::Present(named(kind), name.to_owned()));
        }
        if count >= RECORDS_MAX {
            return Err(ChangeError::Limit(format!("there are {RECORDS_MAX} {}s, more are not allowed", named(kind))));
        }
        Ok(())
    }

    fn check_account_is_there(&self, id: &str) -> Result<(), ChangeError> {
        self.accounts.get(id).map(|_| ()).ok_or_else(|| ChangeError::Absent("account", id.to_owned()))
    }

    fn create_user(&self, new: NewUser, now: i64) -> Outcome {
        self.check_new(Kind::User, &new.name, self.users.len(), self.users.contains_key(&new.name))?;
        let is_account = new.account.is_some();
        let account = new.account.as_ref().map_or(new.joins, |account| account.id.clone());
        let user = User {
            name: new.name,
            account,
            is_account,
            disabled: false,
            groups: Vec::new(),
            policies: Vec::new(),
            created: now,
        };
        let mut changes = Vec::new();
        match new.account {
            None => self.check_account_is_there(&user.account)?,
            Some(account) => {
                check_account(&account.id)?;
                if self.accounts.contains_key(&account.id) {
                    return Err(ChangeError::Present("account", account.id));
                }
                if self.account_of_canonical_id(&account.canonical_id).is_some() {
                    return Err(ChangeError::Present("canonical id", account.canonical_id));
                }
                if let Some(email) = account.email.as_deref().filter(|email| self.account_of_email(email).is_some()) {
                    return Err(ChangeError::Present("email", email.to_owned()));
                }
                changes.push(Change::Put(Record::Account(account)));
            }
        }
        changes.push(Change::Put(Record::User(user)));
        Ok(changes)
    }

    fn delete_user(&self, name: &str) -> Outcome {
        let user = self.users.get(name).ok_or_else(|| ChangeError::Absent("user", name.to_owned()))?;
        let mut changes = vec![Change::Remove(Kind::User, user.name.clone())];
        let keys = self.keys.values().filter(|key| key.user == user.name);
        changes.extend(keys.map(|key| Change::Remove(Kind::Key, key.id.clone())));
        if user.is_account {
            let others = self.users.values().any(|other| other.account == user.account && other.name != user.name);
            let groups = self.groups.values().any(|group| group.account == user.account);
            let roles = self.roles.values().any(|role| role.account == user.account);
            if others || groups || roles {
                let message = format!("the account of {name} has other users, groups or roles; remove them first");
                return Err(ChangeError::InUse(message));
            }
            changes.push(Change::Remove(Kind::Account, user.account.clone()));
        }
        Ok(changes)
    }

    fn change_user(&self, name: &str, change: impl FnOnce(&mut User) -> Result<(), ChangeError>) -> Outcome {
        let user = self.users.get(name).ok_or_else(|| ChangeError::Absent("user", name.to_owned()))?;
        let mut user = user.clone();
        change(&mut user)?;
        Ok(vec![Change::Put(Record::User(user))])
    }

    fn group(&self, name: &str) -> Result<&Group, ChangeError> {
        self.groups.get(name).ok_or_else(|| ChangeError::Absent("group", name.to_owned()))
    }

    fn delete_group(&self, name: String) -> Outcome {
        self.group(&name)?;
        match self.users.values().find(|user| user.groups.contains(&name)) {
            Some(user) => Err(ChangeError::InUse(format!("{} is in the group {name}; let it leave first", user.name))),
            None => Ok(vec![Change::Remove(Kind::Group, name)]),
        }
    }

    fn key(&self, id: &str) -> Result<&AccessKey, ChangeError> {
        self.keys.get(id).ok_or_else(|| ChangeError::Absent("access key", id.to_owned()))
    }

    fn new_key(
        &self,
        id: String,
        user: String,
        sealed: String,
        now: i64,
        most: usize,
    ) -> Result<AccessKey, ChangeError> {
        if !self.users.contains_key(&user) {
            return Err(ChangeError::Absent("user", user));
        }
        if self.keys.contains_key(&id) {
            return Err(ChangeError::Present("access key", id));
        }
        if self.keys.values().filter(|key| key.user == user).count() >= most {
            return Err(ChangeError::Limit(format!("{user} has {KEYS_MAX} access keys; delete one first")));
        }
        Ok(AccessKey { id, user, sealed, disabled: false, created: now })
    }

    fn put_policy(&self, name: String, document: String, now: i64) -> Outcome {
        check_name(&name)?;
        Policy::parse(PolicyKind::Identity, document.as_bytes())?;
        if !self.policies.contains_key(&name) {
            self.check_new(Kind::Policy, &name, self.policies.len(), false)?;
        }
        let created = self.policies.get(&name).map_or(now, |policy| policy.created);
        Ok(vec![Change::Put(Record::Policy(StoredPolicy { name, document, created }))])
    }

    fn delete_policy(&self, name: String) -> Outcome {
        self.policies.get(&name).ok_or_else(|| ChangeError::Absent("policy", name.clone()))?;
        let users = self.users.values().map(|user| (&user.name, &user.policies));
        let groups = self.groups.values().map(|group| (&group.name, &group.policies));
        let roles = self.roles.values().map(|role| (&role.name, &role.policies));
        match users.chain(groups).chain(roles).find(|(_, policies)| policies.contains(&name)) {
            Some((holder, _)) => Err(ChangeError::InUse(format!("{name} is attached to {holder}; detach it first"))),
            None => Ok(vec![Change::Remove(Kind::Policy, name)]),
        }
    }

    fn holder(&self, kind: Kind, name: &str) -> Result<Holder, ChangeError> {
        let found = match kind {
            Kind::User => self.users.get(name).cloned().map(Holder::User),
            Kind::Group => self.groups.get(name).cloned().map(Holder::Group),
            Kind::Role => self.roles.get(name).cloned().map(Holder::Role),
            Kind::Account | Kind::Policy | Kind::Key => None,
        };
        found.ok_or_else(|| ChangeError::Absent(named(kind), name.to_owned()))
    }

    fn attach(&self, policy: String, kind: Kind, to: &str) -> Outcome {
        if !self.policies.contains_key(&policy) {
            return Err(ChangeError::Absent("policy", policy));
        }
        let mut holder = self.holder(kind, to)?;
        let policies = holder.policies();
        if !policies.contains(&policy) {
            if policies.len() >= ATTACHED_MAX {
                return Err(ChangeError::Limit(format!("{to} has {ATTACHED_MAX} policies, more are not allowed")));
            }
            policies.push(policy);
        }
        Ok(vec![holder.put()])
    }
}
