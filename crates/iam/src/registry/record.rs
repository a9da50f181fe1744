//! The stored form of identities: one record per row, described in docs/format/identities.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The account of the root keys.
pub const ROOT_ACCOUNT: &str = "000000000000";
/// The path of a record that was created without one.
pub const NO_PATH: &str = "/";
/// Upper limit of every session's duration, in seconds.
pub const SESSION_SECONDS_MAX: u32 = 43_200;

/// The number of a policy's first version.
pub const FIRST_VERSION: u32 = 1;

/// The id of a stored policy, or the ARN of a built-in one (`managed`).
pub type PolicyId = String;
/// Inline policies of a user, group or role: JSON by name.
pub type Inline = BTreeMap<String, String>;
pub type Tags = BTreeMap<String, String>;

fn no_path() -> String {
    NO_PATH.to_owned()
}

fn account_of_root() -> String {
    ROOT_ACCOUNT.to_owned()
}

fn longest_session() -> u32 {
    SESSION_SECONDS_MAX
}

fn first_version() -> u32 {
    FIRST_VERSION
}

/// The owner of buckets and of users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Twelve digits.
    pub id: String,
    /// The id that access control lists use.
    pub canonical_id: String,
    /// The name that listings show.
    pub display_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Its ARNs omit the account id, `arn:aws:iam:::role/NAME`, as in Ceph and MinIO.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short_arns: bool,
}

impl Account {
    /// An ARN of this account in the form that clients see.
    pub fn shown_arn(&self, arn: String) -> String {
        if self.short_arns { arn.replacen(&format!("::{}:", self.id), ":::", 1) } else { arn }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Unique in the server and never reused; other records and sessions refer to the user by it.
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default = "no_path")]
    pub path: String,
    /// The id of the account.
    pub account: String,
    /// The user represents the account and may use the account's resources without a policy.
    #[serde(default)]
    pub is_account: bool,
    #[serde(default)]
    pub disabled: bool,
    /// Ids of groups.
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub policies: Vec<PolicyId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inline: Inline,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    /// Seconds since 1970.
    pub created: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default = "no_path")]
    pub path: String,
    pub account: String,
    #[serde(default)]
    pub policies: Vec<PolicyId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inline: Inline,
    pub created: i64,
}

/// A role: rights that a caller assumes for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default = "no_path")]
    pub path: String,
    pub account: String,
    #[serde(default)]
    pub description: String,
    /// JSON of the trust policy, which says who may assume the role.
    pub trust: String,
    /// Maximum session duration, in seconds.
    #[serde(default = "longest_session")]
    pub session_seconds_max: u32,
    #[serde(default)]
    pub policies: Vec<PolicyId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub inline: Inline,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: Tags,
    pub created: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPolicy {
    #[serde(default)]
    pub id: String,
    pub name: String,
    #[serde(default = "no_path")]
    pub path: String,
    #[serde(default = "account_of_root")]
    pub account: String,
    #[serde(default)]
    pub description: String,
    /// JSON of the default version, as it was submitted.
    pub document: String,
    pub created: i64,
    /// When the document was set; 0 in records older than this field.
    #[serde(default)]
    pub updated: i64,
    /// The number of the default version.
    #[serde(default = "first_version")]
    pub version: u32,
    /// The highest version number ever assigned.
    #[serde(default = "first_version")]
    pub newest: u32,
    /// The versions other than the default, by number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub others: BTreeMap<u32, PolicyVersion>,
}

/// A version of a policy that is not its default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// JSON, as it was submitted.
    pub document: String,
    pub created: i64,
}

/// An identity provider (OpenID Connect) that trust policies of an account may name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// `ACCOUNT/URL` without the scheme.
    pub id: String,
    pub account: String,
    /// With its scheme.
    pub url: String,
    pub clients: Vec<String>,
    pub thumbprints: Vec<String>,
    pub created: i64,
}

impl Provider {
    /// The URL without its scheme, as in ARNs.
    pub fn name(&self) -> &str {
        provider_name(&self.url)
    }
}

/// A URL without its scheme.
pub fn provider_name(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, name)| name)
}

/// An access key; its secret is encrypted (sealed).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessKey {
    pub id: String,
    /// The id of the user.
    pub user: String,
    /// Base64 of the encrypted secret.
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

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Account,
    User,
    Group,
    Role,
    Policy,
    Key,
    Provider,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Account, Kind::User, Kind::Group, Kind::Role, Kind::Policy, Kind::Key, Kind::Provider];

    /// The kind's byte in the row's key.
    pub fn byte(self) -> u8 {
        match self {
            Kind::Account => b'a',
            Kind::User => b'u',
            Kind::Group => b'g',
            Kind::Role => b'r',
            Kind::Policy => b'p',
            Kind::Key => b'k',
            Kind::Provider => b'o',
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
    Provider(Provider),
}

impl Record {
    /// Kind and id, which form the row's key.
    pub fn id(&self) -> (Kind, &str) {
        match self {
            Record::Account(account) => (Kind::Account, &account.id),
            Record::User(user) => (Kind::User, &user.id),
            Record::Group(group) => (Kind::Group, &group.id),
            Record::Role(role) => (Kind::Role, &role.id),
            Record::Policy(policy) => (Kind::Policy, &policy.id),
            Record::Key(key) => (Kind::Key, &key.id),
            Record::Provider(provider) => (Kind::Provider, &provider.id),
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
            Record::Provider(provider) => serde_json::to_vec(provider),
        };
        json.expect("records hold nothing but text, numbers and lists")
    }

    /// `None` when it cannot be decoded. Records older than ids use their name as id.
    pub fn decode(kind: Kind, json: &[u8]) -> Option<Record> {
        let mut record = match kind {
            Kind::Account => serde_json::from_slice(json).ok().map(Record::Account),
            Kind::User => serde_json::from_slice(json).ok().map(Record::User),
            Kind::Group => serde_json::from_slice(json).ok().map(Record::Group),
            Kind::Role => serde_json::from_slice(json).ok().map(Record::Role),
            Kind::Policy => serde_json::from_slice(json).ok().map(Record::Policy),
            Kind::Key => serde_json::from_slice(json).ok().map(Record::Key),
            Kind::Provider => serde_json::from_slice(json).ok().map(Record::Provider),
        }?;
        let (id, name) = match &mut record {
            Record::User(user) => (&mut user.id, &user.name),
            Record::Group(group) => (&mut group.id, &group.name),
            Record::Role(role) => (&mut role.id, &role.name),
            Record::Policy(policy) => (&mut policy.id, &policy.name),
            Record::Account(_) | Record::Key(_) | Record::Provider(_) => return Some(record),
        };
        if id.is_empty() {
            id.clone_from(name);
        }
        Some(record)
    }
}
