//! All identities: accounts, users, groups, roles, their keys and policies, in memory.
//!
//! Why:        every signed request looks up its access key; that must cost one lookup in a map.
//! Layout:     `record` is the stored form; `named` finds records by name; `managed` holds built-in policies; `change`
//!             computes the changes of an order. A `Registry` is read-only: a change builds a new one.
//! Invariants: R1 records refer to each other by id, which is unique and never reused; names are unique in an account.
//!             R2 a key belongs to one user; a disabled key or user identifies nobody.
//!             R3 a user with a reference to a missing record, or with a policy that cannot be parsed, may do nothing.
//! Not here:   where records are stored and how secrets are encrypted (margay-accounts).

mod change;
pub mod managed;
mod named;
mod record;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use self::change::{
    ATTACHED_MAX, Change, ChangeError, INLINE_BYTES_MAX, KEYS_MAX, LIST_MAX, NewGroup, NewRole, NewUser, Order,
    Outcome, POLICY_VERSIONS_MAX, RECORD_BYTES_MAX, RECORDS_MAX, RECORDS_OF_ACCOUNT_MAX, TAGS_MAX, name_bytes_max,
};
pub use self::named::{Entity, Named};
pub use self::record::{
    AccessKey, Account, FIRST_VERSION, Group, Inline, Kind, NO_PATH, PolicyId, PolicyVersion, Provider, ROOT_ACCOUNT,
    Record, Role, SESSION_SECONDS_MAX, StoredPolicy, Tags, User, provider_name,
};
use crate::document::{Kind as PolicyKind, Policy};
use crate::principal::{Caller, Who};

/// Policies by name.
pub type NamedPolicies = Vec<(String, Arc<Policy>)>;

/// Tags of a caller: values by name. A tag of a user or role has one value.
pub type SessionTags = BTreeMap<String, Vec<String>>;

/// An identified caller, with everything that a decision needs.
#[derive(Clone, Debug)]
pub struct Identity {
    pub account: Arc<Account>,
    pub role: Part,
    /// The id of the user or role; otherwise that of the account.
    pub id: String,
    /// The path of the user or role.
    pub path: String,
    /// `None`: one of them cannot be parsed, so nothing is allowed.
    pub policies: Option<NamedPolicies>,
    /// The caller uses the temporary keys of a session.
    pub is_temporary: bool,
    /// The policy that narrows a session.
    pub session_policy: Option<Arc<Policy>>,
    /// Values of `aws:PrincipalTag/...`: tags of the user or role, overridden by those of the session.
    pub tags: SessionTags,
}

/// Which part of its account a caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// The holder of the server's root keys, who may do everything.
    Root,
    /// The account itself.
    Account {
        name: String,
    },
    User {
        name: String,
    },
    Session {
        role: String,
        session: String,
    },
}

impl Identity {
    /// The holder of the root keys.
    pub fn root(account: Arc<Account>) -> Identity {
        Identity {
            id: account.id.clone(),
            path: NO_PATH.to_owned(),
            account,
            role: Part::Root,
            policies: Some(Vec::new()),
            is_temporary: false,
            session_policy: None,
            tags: SessionTags::new(),
        }
    }

    pub fn is_root(&self) -> bool {
        self.role == Part::Root
    }

    /// The caller as policies see it.
    pub fn caller(&self) -> Caller<'_> {
        let who = match &self.role {
            Part::Root | Part::Account { .. } => Who::Account,
            Part::User { name } => Who::User { path: &self.path, name },
            Part::Session { role, session } => Who::Role { role, session },
        };
        Caller { who, account: &self.account.id, canonical_id: &self.account.canonical_id }
    }

    /// The name in `aws:username`; sessions have none.
    pub fn user_name(&self) -> Option<&str> {
        match &self.role {
            Part::Root | Part::Session { .. } => None,
            Part::Account { name } | Part::User { name } => Some(name),
        }
    }

    /// The unique id in `aws:userid`.
    pub fn user_id(&self) -> String {
        match &self.role {
            Part::Root | Part::Account { .. } => self.account.id.clone(),
            Part::User { .. } => self.id.clone(),
            Part::Session { session, .. } => format!("{}:{session}", self.id),
        }
    }

    /// The ARN in `aws:PrincipalArn`; for a session it is the ARN of its role.
    pub fn principal_arn(&self) -> String {
        match &self.role {
            Part::Session { role, .. } => format!("arn:aws:iam::{}:role{}{role}", self.account.id, self.path),
            _ => self.caller().arn(),
        }
    }
}

/// All records by id, with lookup tables.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    pub accounts: BTreeMap<String, Arc<Account>>,
    pub users: BTreeMap<String, User>,
    pub groups: BTreeMap<String, Group>,
    pub roles: BTreeMap<String, Role>,
    pub policies: BTreeMap<String, StoredPolicy>,
    pub keys: BTreeMap<String, AccessKey>,
    pub providers: BTreeMap<String, Provider>,
    identities: HashMap<String, Arc<Identity>>,
    of_roles: HashMap<String, Option<NamedPolicies>>,
}

impl Registry {
    /// Builds a registry from records.
    pub fn new(records: impl IntoIterator<Item = Record>) -> Registry {
        let mut registry = Registry::default();
        for record in records {
            match record {
                Record::Account(account) => drop(registry.accounts.insert(account.id.clone(), Arc::new(account))),
                Record::User(user) => drop(registry.users.insert(user.id.clone(), user)),
                Record::Group(group) => drop(registry.groups.insert(group.id.clone(), group)),
                Record::Role(role) => drop(registry.roles.insert(role.id.clone(), role)),
                Record::Policy(policy) => drop(registry.policies.insert(policy.id.clone(), policy)),
                Record::Key(key) => drop(registry.keys.insert(key.id.clone(), key)),
                Record::Provider(provider) => drop(registry.providers.insert(provider.id.clone(), provider)),
            }
        }
        let known = registry.known();
        let identities =
            registry.users.values().filter_map(|user| Some((user.id.clone(), registry.identify(user, &known)?)));
        registry.identities = identities.collect();
        let of_role = |role: &Role| Some([attached(&role.policies, &known)?, inline(&role.inline)?].concat());
        registry.of_roles = registry.roles.values().map(|role| (role.id.clone(), of_role(role))).collect();
        registry
    }

    /// All records.
    pub fn records(&self) -> Vec<Record> {
        let accounts = self.accounts.values().map(|account| Record::Account(Account::clone(account)));
        let users = self.users.values().cloned().map(Record::User);
        let groups = self.groups.values().cloned().map(Record::Group);
        let roles = self.roles.values().cloned().map(Record::Role);
        let policies = self.policies.values().cloned().map(Record::Policy);
        let keys = self.keys.values().cloned().map(Record::Key);
        let providers = self.providers.values().cloned().map(Record::Provider);
        accounts.chain(users).chain(groups).chain(roles).chain(policies).chain(keys).chain(providers).collect()
    }

    /// The policies that can be parsed, with their names.
    fn known(&self) -> Known {
        let stored = self.policies.values().map(|policy| (policy.id.clone(), policy.name.as_str(), &*policy.document));
        let managed = managed::MANAGED.iter().map(|(name, document)| (managed::arn(name), *name, *document));
        let read = |(id, name, document): (String, &str, &str)| Some((id, (name.to_owned(), read(document)?)));
        stored.chain(managed).filter_map(read).collect()
    }

    fn identify(&self, user: &User, known: &Known) -> Option<Arc<Identity>> {
        let account = Arc::clone(self.accounts.get(&user.account)?);
        let name = user.name.clone();
        Some(Arc::new(Identity {
            id: if user.is_account { account.id.clone() } else { user.id.clone() },
            path: user.path.clone(),
            account,
            role: if user.is_account { Part::Account { name } } else { Part::User { name } },
            policies: self.of_user(user, known),
            is_temporary: false,
            session_policy: None,
            tags: session_tags(&user.tags),
        }))
    }

    /// The policies of a user and of the user's groups.
    fn of_user(&self, user: &User, known: &Known) -> Option<NamedPolicies> {
        let mut policies = [attached(&user.policies, known)?, inline(&user.inline)?].concat();
        for group in &user.groups {
            let group = self.groups.get(group)?;
            policies.extend(attached(&group.policies, known)?);
            policies.extend(inline(&group.inline)?);
        }
        Some(policies)
    }

    /// The access key and its identity; `None` when the key is unknown or when it or its user is disabled.
    pub fn find(&self, access_key: &str) -> Option<(&AccessKey, Arc<Identity>)> {
        let key = self.keys.get(access_key).filter(|key| !key.disabled)?;
        Some((key, self.user(&key.user)?))
    }

    /// A user that is not disabled, by id.
    pub fn user(&self, id: &str) -> Option<Arc<Identity>> {
        self.users.get(id).filter(|user| !user.disabled)?;
        self.identities.get(id).cloned()
    }

    /// A session of a role, if the role exists.
    pub fn session(&self, role: &str, session: &str, policy: Option<Arc<Policy>>) -> Option<Identity> {
        let role = self.roles.get(role)?;
        Some(Identity {
            account: Arc::clone(self.accounts.get(&role.account)?),
            role: Part::Session { role: role.name.clone(), session: session.to_owned() },
            id: role.id.clone(),
            path: role.path.clone(),
            policies: self.of_roles.get(&role.id).cloned().flatten(),
            is_temporary: true,
            session_policy: policy,
            tags: session_tags(&role.tags),
        })
    }

    /// Name and ARN of an attached policy.
    pub fn attached_policy(&self, id: &str) -> Option<(String, String)> {
        if let Some(name) = managed::name_of(id) {
            return Some((name.to_owned(), id.to_owned()));
        }
        self.policies.get(id).map(|policy| (policy.name.clone(), policy.arn()))
    }

    /// The user that represents an account.
    pub fn user_of_account(&self, account: &str) -> Option<&User> {
        self.users.values().find(|user| user.is_account && user.account == account)
    }

    pub fn account_of_canonical_id(&self, id: &str) -> Option<&Arc<Account>> {
        self.accounts.values().find(|account| account.canonical_id == id)
    }

    pub fn account_of_email(&self, email: &str) -> Option<&Arc<Account>> {
        self.accounts
            .values()
            .find(|account| account.email.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(email)))
    }
}

fn session_tags(tags: &Tags) -> SessionTags {
    tags.iter().map(|(name, value)| (name.clone(), vec![value.clone()])).collect()
}

/// Policies that can be parsed: name and content by id.
type Known = HashMap<PolicyId, (String, Arc<Policy>)>;

fn read(document: &str) -> Option<Arc<Policy>> {
    Policy::parse_stored(PolicyKind::Identity, document.as_bytes()).ok().map(Arc::new)
}

fn attached(ids: &[PolicyId], known: &Known) -> Option<NamedPolicies> {
    ids.iter().map(|id| known.get(id).cloned()).collect()
}

fn inline(policies: &Inline) -> Option<NamedPolicies> {
    policies.iter().map(|(name, document)| Some((name.clone(), read(document)?))).collect()
}
