//! What is stored of each: one record, one row. The form is in docs/format/identities.md.

use serde::{Deserialize, Serialize};

/// The owner of buckets and of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Twelve digits.
    pub id: String,
    /// As access control lists name it.
    pub canonical_id: String,
    /// What listings show.
    pub display_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    /// The id of the account.
    pub account: String,
    /// It stands for the account: what is the account's it may use without a policy.
    #[serde(default)]
    pub is_account: bool,
    #[serde(default)]
    pub disabled: bool,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub policies: Vec<String>,
    /// Seconds since 1970.
    pub created: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub account: String,
    #[serde(default)]
    pub policies: Vec<String>,
    pub created: i64,
}

/// What somebody may be for a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub name: String,
    pub account: String,
    /// JSON of the policy that says who may take it.
    pub trust: String,
    #[serde(default)]
    pub policies: Vec<String>,
    pub created: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPolicy {
    pub name: String,
    /// JSON, as it was given.
    pub document: String,
    pub created: i64,
}

/// An access key; its secret is sealed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKey {
    pub id: String,
    pub user: String,
    /// Base64 of the sealed secret.
    pub sealed: String,
    #[serde(default)]
    pub disabled: bool,
    pub created: i64,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AccessKey({} of {})", self.id, self.user)
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Account,
    User,
    Group,
    Role,
    Policy,
    Key,
}

impl Kind {
    pub const ALL: [Kind; 6] = [Kind::Account, Kind::User, Kind::Group, Kind::Role, Kind::Policy, Kind::Key];

    /// The byte in the key of its row.
    pub fn byte(self) -> u8 {
        match self {
            Kind::Account => b'a',
            Kind::User => b'u',
            Kind::Group => b'g',
            Kind::Role => b'r',
            Kind::Policy => b'p',
            Kind::Key => b'k',
        }
    }

    pub fn of_byte(byte: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.byte() == byte)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Account(Account),
    User(User),
    Group(Group),
    Role(Role),
    Policy(StoredPolicy),
    Key(AccessKey),
}

impl Record {
    /// The kind and the name: the key of its row.
    pub fn id(&self) -> (Kind, &str) {
        match self {
            Record::Account(account) => (Kind::Account, &account.id),
            Record::User(user) => (Kind::User, &user.name),
            Record::Group(group) => (Kind::Group, &group.name),
            Record::Role(role) => (Kind::Role, &role.name),
            Record::Policy(policy) => (Kind::Policy, &policy.name),
            Record::Key(key) => (Kind::Key, &key.id),
        }
    }

    /// JSON.
    pub fn encode(&self) -> Vec<u8> {
        let json = match self {
            Record::Account(account) => serde_json::to_vec(account),
            Record::User(user) => serde_json::to_vec(user),
            Record::Group(group) => serde_json::to_vec(group),
            Record::Role(role) => serde_json::to_vec(role),
            Record::Policy(policy) => serde_json::to_vec(policy),
            Record::Key(key) => serde_json::to_vec(key),
        };
        json.expect("records hold nothing but text, numbers and lists")
    }

    /// `None` when it cannot be read.
    pub fn decode(kind: Kind, json: &[u8]) -> Option<Record> {
        match kind {
            Kind::Account => serde_json::from_slice(json).ok().map(Record::Account),
            Kind::User => serde_json::from_slice(json).ok().map(Record::User),
            Kind::Group => serde_json::from_slice(json).ok().map(Record::Group),
            Kind::Role => serde_json::from_slice(json).ok().map(Record::Role),
            Kind::Policy => serde_json::from_slice(json).ok().map(Record::Policy),
            Kind::Key => serde_json::from_slice(json).ok().map(Record::Key),
        }
    }
}
