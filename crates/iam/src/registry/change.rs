//! Computes the record changes of an order.
//!
//! Layout:     one file per kind of record.
//! Invariants: O1 an order is decided on one registry and yields whole records: all of it happens or nothing.
//!             O2 nothing that is in use is deleted: an attached policy, a group with users, an account with other
//!                users.

mod groups;
mod keys;
mod policies;
mod policy_versions;
mod providers;
mod roles;
mod users;

use super::{Account, Entity, Inline, Kind, Named, Record, Registry, Tags};
use crate::document::PolicyError;

/// Maximum number of records of one kind in the server, and in one account.
pub const RECORDS_MAX: usize = 50_000;
pub const RECORDS_OF_ACCOUNT_MAX: usize = 5_000;
/// Maximum number of access keys of a user.
pub const KEYS_MAX: usize = 8;
/// Maximum number of policies attached to a user, group or role.
pub const ATTACHED_MAX: usize = 20;
/// Maximum number of versions of a policy.
pub const POLICY_VERSIONS_MAX: usize = 5;
/// Maximum total size of the inline policies of a user, group or role, in bytes.
pub const INLINE_BYTES_MAX: usize = 20 * 1024;
/// Maximum size of a stored record, in bytes: a row holds 64 KiB.
pub const RECORD_BYTES_MAX: usize = 60 * 1024;
/// Maximum number of tags of a user or role.
pub const TAGS_MAX: usize = 50;
/// Maximum size of a tag's key and value, in bytes.
const TAG_BYTES_MAX: (usize, usize) = (128, 256);
/// Maximum number of groups of a user, and of client ids, or thumbprints, of an identity provider.
pub const LIST_MAX: usize = 100;
/// Maximum size of a path, and of a description, in bytes.
const PATH_BYTES_MAX: usize = 512;
const DESCRIPTION_BYTES_MAX: usize = 1000;
/// Lower limit of a role's maximum session duration, in seconds.
const SESSION_SECONDS_MIN: u32 = 3600;

/// Maximum size of a name, in bytes.
pub const fn name_bytes_max(kind: Kind) -> usize {
    match kind {
        Kind::Group | Kind::Policy => 128,
        _ => 64,
    }
}

/// An order. The caller supplies random and secret parts.
#[derive(Clone, Debug)]
pub enum Order {
    CreateUser(NewUser),
    UpdateUser {
        user: Named,
        name: Option<String>,
        path: Option<String>,
    },
    /// `bare`: only if it has no keys, policies and groups.
    DeleteUser {
        user: Named,
        bare: bool,
    },
    SetUserDisabled {
        user: Named,
        disabled: bool,
    },
    CreateGroup(NewGroup),
    UpdateGroup {
        group: Named,
        name: Option<String>,
        path: Option<String>,
    },
    /// `bare`: only if it has no policies.
    DeleteGroup {
        group: Named,
        bare: bool,
    },
    JoinGroup {
        user: Named,
        group: Named,
    },
    LeaveGroup {
        user: Named,
        group: Named,
    },
    CreateRole(NewRole),
    UpdateRole {
        role: Named,
        description: Option<String>,
        session_seconds_max: Option<u32>,
        trust: Option<String>,
    },
    /// `bare`: only if it has no policies.
    DeleteRole {
        role: Named,
        bare: bool,
    },
    /// Creates a policy, or replaces it unless it must be `new`. `id`, path and description are used only for a created
    /// one.
    PutPolicy {
        id: String,
        policy: Named,
        path: String,
        description: String,
        document: String,
        new: bool,
    },
    /// `bare`: only if it has one version.
    DeletePolicy {
        policy: Named,
        bare: bool,
    },
    CreatePolicyVersion {
        policy: Named,
        document: String,
        default: bool,
    },
    SetDefaultPolicyVersion {
        policy: Named,
        version: u32,
    },
    DeletePolicyVersion {
        policy: Named,
        version: u32,
    },
    Attach {
        policy: Named,
        kind: Kind,
        to: Named,
    },
    Detach {
        policy: Named,
        kind: Kind,
        from: Named,
    },
    PutInline {
        kind: Kind,
        to: Named,
        name: String,
        document: String,
    },
    DeleteInline {
        kind: Kind,
        from: Named,
        name: String,
    },
    Tag {
        kind: Kind,
        to: Named,
        tags: Tags,
    },
    Untag {
        kind: Kind,
        from: Named,
        keys: Vec<String>,
    },
    CreateKey {
        id: String,
        user: Named,
        sealed: String,
    },
    DeleteKey {
        id: String,
    },
    SetKeyDisabled {
        id: String,
        disabled: bool,
    },
    /// Replaces the key with the id `old` by a new one.
    RotateKey {
        old: String,
        id: String,
        sealed: String,
    },
    CreateProvider {
        account: String,
        url: String,
        clients: Vec<String>,
        thumbprints: Vec<String>,
    },
    /// A field that is `None` stays unchanged.
    UpdateProvider {
        id: String,
        add_client: Option<String>,
        remove_client: Option<String>,
        thumbprints: Option<Vec<String>>,
    },
    DeleteProvider {
        id: String,
    },
}

#[derive(Clone, Debug)]
pub struct NewUser {
    pub id: String,
    pub name: String,
    pub path: String,
    /// Present: the user represents this new account. Otherwise the user joins the account with the id `joins`.
    pub account: Option<Account>,
    pub joins: String,
    pub tags: Tags,
}

#[derive(Clone, Debug)]
pub struct NewGroup {
    pub id: String,
    pub name: String,
    pub path: String,
    /// Id.
    pub account: String,
}

#[derive(Clone, Debug)]
pub struct NewRole {
    pub id: String,
    pub name: String,
    pub path: String,
    /// Id.
    pub account: String,
    pub description: String,
    pub trust: String,
    pub session_seconds_max: u32,
    pub tags: Tags,
}

/// One row to write or remove.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "an order makes a handful of them, and most of them are large")]
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
    #[error("several accounts have a {kind} {name}; say which: {}/{name} or {}/{name}", accounts[0], accounts[1])]
    Ambiguous { kind: &'static str, name: String, accounts: [String; 2] },
    #[error("there is a {0} {1} already")]
    Present(&'static str, String),
    #[error("{0}")]
    InUse(String),
    #[error("{0}")]
    Limit(String),
    #[error("a name has 1 to {0} letters, digits and + = , . @ _ -: {1:?}")]
    Name(usize, String),
    #[error("{0}")]
    Value(String),
    #[error(transparent)]
    Policy(#[from] PolicyError),
}

impl Kind {
    /// The kind's word in messages.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Account => "account",
            Kind::User => "user",
            Kind::Group => "group",
            Kind::Role => "role",
            Kind::Policy => "policy",
            Kind::Key => "access key",
            Kind::Provider => "identity provider",
        }
    }
}

impl Registry {
    /// Decides an order; `now` is in seconds since 1970.
    pub fn decide(&self, order: Order, now: i64) -> Outcome {
        let changes = self.changes(order, now)?;
        let is_long =
            |change: &Change| matches!(change, Change::Put(record) if record.encode().len() > RECORD_BYTES_MAX);
        match changes.iter().any(is_long) {
            true => Err(ChangeError::Limit(format!("policies and tags of one have {RECORD_BYTES_MAX} bytes at most"))),
            false => Ok(changes),
        }
    }

    fn changes(&self, order: Order, now: i64) -> Outcome {
        match order {
            Order::CreateUser(new) => self.create_user(new, now),
            Order::UpdateUser { user, name, path } => self.update_user(&user, name, path),
            Order::DeleteUser { user, bare } => self.delete_user(&user, bare),
            Order::SetUserDisabled { user, disabled } => self.set_user_disabled(&user, disabled),
            Order::CreateGroup(new) => self.create_group(new, now),
            Order::UpdateGroup { group, name, path } => self.update_group(&group, name, path),
            Order::DeleteGroup { group, bare } => self.delete_group(&group, bare),
            Order::JoinGroup { user, group } => self.join_group(&user, &group),
            Order::LeaveGroup { user, group } => self.leave_group(&user, &group),
            Order::CreateRole(new) => self.create_role(new, now),
            Order::UpdateRole { role, description, session_seconds_max, trust } => {
                self.update_role(&role, description, session_seconds_max, trust)
            }
            Order::DeleteRole { role, bare } => self.delete_role(&role, bare),
            Order::PutPolicy { id, policy, path, description, document, new } => {
                self.put_policy(policies::Put { id, policy, path, description, document, new }, now)
            }
            Order::DeletePolicy { policy, bare } => self.delete_policy(&policy, bare),
            Order::CreatePolicyVersion { policy, document, default } => {
                self.create_policy_version(&policy, document, default, now)
            }
            Order::SetDefaultPolicyVersion { policy, version } => self.set_default_policy_version(&policy, version),
            Order::DeletePolicyVersion { policy, version } => self.delete_policy_version(&policy, version),
            Order::Attach { policy, kind, to } => self.attach(&policy, kind, &to),
            Order::Detach { policy, kind, from } => self.detach(&policy, kind, &from),
            Order::PutInline { kind, to, name, document } => self.put_inline(kind, &to, name, document),
            Order::DeleteInline { kind, from, name } => self.delete_inline(kind, &from, &name),
            Order::Tag { kind, to, tags } => self.tag(kind, &to, tags),
            Order::Untag { kind, from, keys } => self.untag(kind, &from, &keys),
            Order::CreateKey { id, user, sealed } => self.create_key(id, &user, sealed, now),
            Order::DeleteKey { id } => self.delete_key(id),
            Order::SetKeyDisabled { id, disabled } => self.set_key_disabled(&id, disabled),
            Order::RotateKey { old, id, sealed } => self.rotate_key(old, id, sealed, now),
            Order::CreateProvider { account, url, clients, thumbprints } => {
                self.create_provider(account, url, clients, thumbprints, now)
            }
            Order::UpdateProvider { id, add_client, remove_client, thumbprints } => {
                self.update_provider(&id, add_client, remove_client.as_deref(), thumbprints)
            }
            Order::DeleteProvider { id } => self.delete_provider(id),
        }
    }

    /// Refuses an invalid or taken name, id or path of a new record in an account.
    fn check_new<E: Entity>(&self, id: &str, name: &str, path: &str, account: &str) -> Result<(), ChangeError> {
        check_name(E::KIND, name)?;
        check_path(path)?;
        self.check_free::<E>(name, account)?;
        let word = E::KIND.word();
        let mut all = E::all(self);
        if id.is_empty() || all.any(|entity| entity.id() == id) {
            return Err(ChangeError::Present(word, format!("with the id {id:?}")));
        }
        if E::all(self).count() >= RECORDS_MAX {
            return Err(ChangeError::Limit(format!(
                "there are {RECORDS_MAX} records of the kind {word}, the most there may be"
            )));
        }
        if E::all(self).filter(|entity| entity.account() == account).count() >= RECORDS_OF_ACCOUNT_MAX {
            let message =
                format!("the account has {RECORDS_OF_ACCOUNT_MAX} records of the kind {word}, the most it may have");
            return Err(ChangeError::Limit(message));
        }
        Ok(())
    }

    /// Refuses a name that is taken in the account.
    fn check_free<E: Entity>(&self, name: &str, account: &str) -> Result<(), ChangeError> {
        match E::all(self).any(|entity| entity.account() == account && entity.name().eq_ignore_ascii_case(name)) {
            true => Err(ChangeError::Present(E::KIND.word(), name.to_owned())),
            false => Ok(()),
        }
    }

    /// Checks a new name and path of an existing record.
    fn check_moved<E: Entity>(&self, entity: &E, name: Option<&str>, path: Option<&str>) -> Result<(), ChangeError> {
        path.map_or(Ok(()), check_path)?;
        let Some(name) = name else { return Ok(()) };
        check_name(E::KIND, name)?;
        // A rename may change only the case.
        if name.eq_ignore_ascii_case(entity.name()) { Ok(()) } else { self.check_free::<E>(name, entity.account()) }
    }

    fn check_account_is_there(&self, id: &str) -> Result<(), ChangeError> {
        self.accounts.get(id).map(|_| ()).ok_or_else(|| ChangeError::Absent("account", id.to_owned()))
    }
}

fn check_name(kind: Kind, name: &str) -> Result<(), ChangeError> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    let longest = name_bytes_max(kind);
    if (1..=longest).contains(&name.len()) && name.bytes().all(fits) {
        return Ok(());
    }
    Err(ChangeError::Name(longest, name.to_owned()))
}

fn check_path(path: &str) -> Result<(), ChangeError> {
    let has_slashes = path.starts_with('/') && path.ends_with('/');
    if has_slashes && path.len() <= PATH_BYTES_MAX && path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let message = format!(
        "a path is / or begins and ends with / and has up to {PATH_BYTES_MAX} visible ASCII characters: {path:?}"
    );
    Err(ChangeError::Value(message))
}

fn check_description(text: &str) -> Result<(), ChangeError> {
    let fits =
        text.len() <= DESCRIPTION_BYTES_MAX && !text.chars().any(|char| char.is_control() && !char.is_whitespace());
    let message = || format!("a description has up to {DESCRIPTION_BYTES_MAX} bytes of text");
    if fits { Ok(()) } else { Err(ChangeError::Value(message())) }
}

fn check_tags(tags: &Tags) -> Result<(), ChangeError> {
    if tags.len() > TAGS_MAX {
        return Err(ChangeError::Limit(format!("there may be {TAGS_MAX} tags")));
    }
    let (key_max, value_max) = TAG_BYTES_MAX;
    let fits = |(key, value): (&String, &String)| {
        let plain = !key.chars().chain(value.chars()).any(char::is_control);
        plain && (1..=key_max).contains(&key.len()) && value.len() <= value_max
    };
    if tags.iter().all(fits) {
        return Ok(());
    }
    Err(ChangeError::Value(format!("a tag has a key of 1 to {key_max} bytes of text and a value of up to {value_max}")))
}

/// Refuses to delete a record that still has policies.
fn check_without_policies(kind: Kind, name: &str, attached: &[String], inline: &Inline) -> Result<(), ChangeError> {
    if attached.is_empty() && inline.is_empty() {
        return Ok(());
    }
    Err(ChangeError::InUse(format!("the {} {name} has policies; detach or delete them first", kind.word())))
}
