//! Everybody who may call: accounts, users, groups, roles, their keys and policies, held in memory.
//!
//! Why:        every signed request asks whose key it is; the answer must cost a look into a map.
//! Layout:     `record` is what is stored; `change` says what an order changes; `Registry` is the whole, read-only:
//!             a change makes a new one.
//! Invariants: R1 names of users are unique in the server, those of groups, roles and policies too.  R2 a key belongs
//!             to one user; what is disabled identifies nobody.  R3 whatever names something that is not there, or
//!             a policy that cannot be read, gives no rights and takes none away: such a user may do nothing.
//! Not here:   where records are stored and how secrets are sealed (the binary).

mod change;
mod record;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

pub use self::change::{
    ATTACHED_MAX, Change, ChangeError, KEYS_MAX, NAME_BYTES_MAX, NewUser, Order, Outcome, RECORDS_MAX,
};
pub use self::record::{AccessKey, Account, Group, Kind, Record, Role, StoredPolicy, User};
use crate::document::{Kind as PolicyKind, Policy};
use crate::principal::{Caller, Who};

/// Somebody who was identified, with everything that a decision needs.
#[derive(Clone, Debug)]
pub struct Identity {
    pub account: Arc<Account>,
    pub role: Part,
    /// Policies by name. `None`: one of them cannot be read, so nothing is allowed.
    pub policies: Option<Vec<(String, Arc<Policy>)>>,
    /// What a session was narrowed to.
    pub session_policy: Option<Arc<Policy>>,
}

/// Which part of its account somebody is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Holds the root keys of the server: may do everything.
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
        Identity { account, role: Part::Root, policies: Some(Vec::new()), session_policy: None }
    }

    pub fn is_root(&self) -> bool {
        self.role == Part::Root
    }

    /// As policies see it.
    pub fn caller(&self) -> Caller<'_> {
        let who = match &self.role {
            Part::Root | Part::Account { .. } => Who::Account,
            Part::User { name } => Who::User { name },
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
            Part::User { name } => name.clone(),
            Part::Session { role, session } => format!("{role}:{session}"),
        }
    }
}

/// All records, and what is looked up in them.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    pub accounts: BTreeMap<String, Arc<Account>>,
    pub users: BTreeMap<String, User>,
    pub groups: BTreeMap<String, Group>,
    pub roles: BTreeMap<String, Role>,
    pub policies: BTreeMap<String, StoredPolicy>,
    pub keys: BTreeMap<String, AccessKey>,
    identities: HashMap<String, Arc<Identity>>,
}

impl Registry {
    /// Puts records together.
    pub fn new(records: impl IntoIterator<Item = Record>) -> Registry {
        let mut registry = Registry::default();
        for record in records {
            match record {
                Record::Account(account) => drop(registry.accounts.insert(account.id.clone(), Arc::new(account))),
                Record::User(user) => drop(registry.users.insert(user.name.clone(), user)),
                Record::Group(group) => drop(registry.groups.insert(group.name.clone(), group)),
                Record::Role(role) => drop(registry.roles.insert(role.name.clone(), role)),
                Record::Policy(policy) => drop(registry.policies.insert(policy.name.clone(), policy)),
                Record::Key(key) => drop(registry.keys.insert(key.id.clone(), key)),
            }
        }
        let mut read = HashMap::new();
        for policy in registry.policies.values() {
            if let Ok(document) = Policy::parse_stored(PolicyKind::Identity, policy.document.as_bytes()) {
                read.insert(policy.name.clone(), Arc::new(document));
            }
        }
        let identities =
            registry.users.values().filter_map(|user| Some((user.name.clone(), registry.identify(user, &read)?)));
        registry.identities = identities.collect();
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
        accounts.chain(users).chain(groups).chain(roles).chain(policies).chain(keys).collect()
    }

    fn identify(&self, user: &User, read: &HashMap<String, Arc<Policy>>) -> Option<Arc<Identity>> {
        let account = Arc::clone(self.accounts.get(&user.account)?);
        let groups = user.groups.iter().map(|name| self.groups.get(name).map(|group| group.policies.as_slice()));
        let groups: Option<Vec<&[String]>> = groups.collect();
        let names =
            groups.map(|groups| groups.into_iter().flatten().chain(&user.policies).cloned().collect::<Vec<_>>());
        let name = user.name.clone();
        Some(Arc::new(Identity {
            account,
            role: if user.is_account { Part::Account { name } } else { Part::User { name } },
            policies: names.and_then(|names| named(&names, read)),
            session_policy: None,
        }))
    }

    /// The policies with these names, read.
    fn read_policies(&self, names: &[String]) -> Option<Vec<(String, Arc<Policy>)>> {
        let read = |name: &String| {
            let policy = self.policies.get(name)?;
            let read = Policy::parse_stored(PolicyKind::Identity, policy.document.as_bytes()).ok()?;
            Some((name.clone(), Arc::new(read)))
        };
        names.iter().map(read).collect()
    }

    /// Whose key this is, with the key; `None` when nobody's, or when it or its user is disabled.
    pub fn find(&self, access_key: &str) -> Option<(&AccessKey, Arc<Identity>)> {
        let key = self.keys.get(access_key).filter(|key| !key.disabled)?;
        Some((key, self.user(&key.user)?))
    }

    /// A user that is not disabled.
    pub fn user(&self, name: &str) -> Option<Arc<Identity>> {
        self.users.get(name).filter(|user| !user.disabled)?;
        self.identities.get(name).cloned()
    }

    /// A session in a role, if there is the role.
    pub fn session(&self, role: &str, session: &str, policy: Option<Arc<Policy>>) -> Option<Identity> {
        let role = self.roles.get(role)?;
        Some(Identity {
            account: Arc::clone(self.accounts.get(&role.account)?),
            role: Part::Session { role: role.name.clone(), session: session.to_owned() },
            policies: self.read_policies(&role.policies),
            session_policy: policy,
        })
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

fn named(names: &[String], read: &HashMap<String, Arc<Policy>>) -> Option<Vec<(String, Arc<Policy>)>> {
    names.iter().map(|name| Some((name.clone(), Arc::clone(read.get(name)?)))).collect()
}
