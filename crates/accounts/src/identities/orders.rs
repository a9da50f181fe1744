//! An operator's orders in JSON, the one form that the control socket and the admin API accept.
//!
//! Invariants: J1 a secret appears only in the answer of the order that created it.

use margay_iam::registry::{
    Account, ChangeError, Entity as _, Group, Kind, NO_PATH, Named, NewGroup, NewRole, NewUser, Order, ROOT_ACCOUNT,
    Registry, Role, SESSION_SECONDS_MAX, StoredPolicy, Tags, User,
};
use margay_s3::identities::{Identities as _, NewKey, OrderError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Identities;
use crate::root_keys;

/// A user that is to be made, as an order and as the arguments of a command.
#[derive(Clone, Debug, Deserialize, Serialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct WantedUser {
    pub name: String,
    /// The user is an account of its own
    #[arg(long)]
    #[serde(default)]
    pub account: bool,
    /// The id of the account, twelve digits [default: random]
    #[arg(long, value_name = "DIGITS", requires = "account")]
    pub account_id: Option<String>,
    /// How access lists name the account [default: random]
    #[arg(long, value_name = "ID", requires = "account")]
    pub canonical_id: Option<String>,
    /// What listings show [default: the name]
    #[arg(long, value_name = "TEXT", requires = "account")]
    pub display_name: Option<String>,
    #[arg(long, requires = "account")]
    pub email: Option<String>,
    /// Write the account's ARNs without its id, as Ceph and MinIO do: arn:aws:iam:::role/NAME
    #[arg(long, requires = "account")]
    #[serde(default)]
    pub short_arns: bool,
    /// The user whose account this one joins [default: the account of root]
    #[arg(long, value_name = "USER", conflicts_with = "account")]
    pub of: Option<String>,
    /// The first access key [default: random]
    #[arg(long, value_name = "KEY")]
    pub access_key: Option<String>,
    /// Its secret, which no command line should show.
    #[arg(skip)]
    pub secret_key: Option<String>,
}

/// An order.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wanted {
    CreateUser(WantedUser),
    DeleteUser {
        name: String,
    },
    EnableUser {
        name: String,
    },
    DisableUser {
        name: String,
    },
    ListUsers,
    CreateGroup {
        name: String,
        of: Option<String>,
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
    ListGroups,
    CreateRole {
        name: String,
        of: Option<String>,
        trust: String,
    },
    DeleteRole {
        name: String,
    },
    ListRoles,
    /// The document is JSON in a string, so that it is stored exactly as written.
    PutPolicy {
        name: String,
        document: String,
    },
    DeletePolicy {
        name: String,
    },
    GetPolicy {
        name: String,
    },
    ListPolicies,
    Attach {
        policy: String,
        user: Option<String>,
        group: Option<String>,
        role: Option<String>,
    },
    Detach {
        policy: String,
        user: Option<String>,
        group: Option<String>,
        role: Option<String>,
    },
    CreateKey {
        user: String,
        access_key: Option<String>,
        secret_key: Option<String>,
    },
    DeleteKey {
        access_key: String,
    },
    EnableKey {
        access_key: String,
    },
    DisableKey {
        access_key: String,
    },
    RotateKey {
        access_key: String,
    },
    ListKeys {
        user: Option<String>,
    },
}

/// Why an order was not done; one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOrdered {
    /// A name in it is of nothing.
    #[error("{0}")]
    Absent(String),
    /// A name is taken, or what is to go is in use.
    #[error("{0}")]
    Clash(String),
    /// It makes no sense.
    #[error("{0}")]
    Wrong(String),
    /// The rows did not answer in time.
    #[error("{0}")]
    Unanswered(String),
    /// It could not be stored.
    #[error("{0}")]
    Failed(String),
}

impl From<ChangeError> for NotOrdered {
    fn from(error: ChangeError) -> NotOrdered {
        let text = error.to_string();
        match error {
            ChangeError::Absent(..) => NotOrdered::Absent(text),
            ChangeError::Present(..) | ChangeError::InUse(_) | ChangeError::Limit(_) => NotOrdered::Clash(text),
            ChangeError::Ambiguous { .. } | ChangeError::Name(..) | ChangeError::Value(_) | ChangeError::Policy(_) => {
                NotOrdered::Wrong(text)
            }
        }
    }
}

impl From<OrderError> for NotOrdered {
    fn from(error: OrderError) -> NotOrdered {
        match error {
            OrderError::Refused(error) => error.into(),
            OrderError::Unanswered(error) => NotOrdered::Unanswered(error),
            OrderError::Failed(error) => NotOrdered::Failed(error),
        }
    }
}

fn wrong(text: impl Into<String>) -> NotOrdered {
    NotOrdered::Wrong(text.into())
}

impl Identities {
    /// Executes an order and returns the answer.
    pub async fn answer(&self, wanted: Wanted) -> Result<Value, NotOrdered> {
        let order = match wanted {
            Wanted::CreateUser(user) => return self.create_user(user).await,
            Wanted::CreateKey { user, access_key, secret_key } => {
                return self.create_key(user, access_key, secret_key).await;
            }
            Wanted::RotateKey { access_key } => {
                let NewKey { id, secret, sealed } = self.made_key();
                self.do_it(Order::RotateKey { old: access_key, id: id.clone(), sealed }).await?;
                return Ok(json!({ "access_key": id, "secret_key": secret }));
            }
            Wanted::ListUsers
            | Wanted::ListGroups
            | Wanted::ListRoles
            | Wanted::ListPolicies
            | Wanted::GetPolicy { .. }
            | Wanted::ListKeys { .. } => return self.show(wanted),
            Wanted::DeleteUser { name } => Order::DeleteUser { user: name.into(), bare: false },
            Wanted::EnableUser { name } => Order::SetUserDisabled { user: name.into(), disabled: false },
            Wanted::DisableUser { name } => Order::SetUserDisabled { user: name.into(), disabled: true },
            Wanted::CreateGroup { name, of } => {
                let (id, account) = (self.new_id("AGPA"), self.account_of(of)?);
                Order::CreateGroup(NewGroup { id, name, path: NO_PATH.to_owned(), account })
            }
            Wanted::DeleteGroup { name } => Order::DeleteGroup { group: name.into(), bare: false },
            Wanted::JoinGroup { user, group } => Order::JoinGroup { user: user.into(), group: group.into() },
            Wanted::LeaveGroup { user, group } => Order::LeaveGroup { user: user.into(), group: group.into() },
            Wanted::CreateRole { name, of, trust } => Order::CreateRole(NewRole {
                id: self.new_id("AROA"),
                name,
                path: NO_PATH.to_owned(),
                account: self.account_of(of)?,
                description: String::new(),
                trust,
                session_seconds_max: SESSION_SECONDS_MAX,
                tags: Tags::new(),
            }),
            Wanted::DeleteRole { name } => Order::DeleteRole { role: name.into(), bare: false },
            Wanted::PutPolicy { name, document } => Order::PutPolicy {
                id: self.new_id("ANPA"),
                policy: policy(&name),
                path: NO_PATH.to_owned(),
                description: String::new(),
                document,
                new: false,
            },
            Wanted::DeletePolicy { name } => Order::DeletePolicy { policy: policy(&name), bare: false },
            Wanted::Attach { policy: name, user, group, role } => {
                let (kind, to) = holder(user, group, role)?;
                Order::Attach { policy: policy(&name), kind, to }
            }
            Wanted::Detach { policy: name, user, group, role } => {
                let (kind, from) = holder(user, group, role)?;
                Order::Detach { policy: policy(&name), kind, from }
            }
            Wanted::DeleteKey { access_key } => Order::DeleteKey { id: access_key },
            Wanted::EnableKey { access_key } => Order::SetKeyDisabled { id: access_key, disabled: false },
            Wanted::DisableKey { access_key } => Order::SetKeyDisabled { id: access_key, disabled: true },
        };
        self.do_it(order).await?;
        Ok(json!({ "done": true }))
    }

    /// Executes an order that changes identities.
    async fn do_it(&self, order: Order) -> Result<(), NotOrdered> {
        Ok(self.order(order).await?)
    }

    fn made_key(&self) -> NewKey {
        self.new_key().expect("access keys are kept here")
    }

    /// The account id of a user; without a user the account of the root keys.
    fn account_of(&self, user: Option<String>) -> Result<String, NotOrdered> {
        let Some(user) = user else { return Ok(ROOT_ACCOUNT.to_owned()) };
        Ok(self.registry().find_named::<User>(&user.into())?.account.clone())
    }

    async fn create_user(&self, wanted: WantedUser) -> Result<Value, NotOrdered> {
        let WantedUser {
            name,
            account,
            account_id,
            canonical_id,
            display_name,
            email,
            short_arns,
            of,
            access_key,
            secret_key,
        } = wanted;
        let describes_account = [&account_id, &canonical_id, &display_name, &email].iter().any(|part| part.is_some());
        if (describes_account || short_arns) && !account {
            return Err(wrong(
                "ids, display name, email and the form of ARNs belong to an account; make the user one (--account)",
            ));
        }
        if account && of.is_some() {
            return Err(wrong("a user is an account of its own or joins another one, not both"));
        }
        let mut answer = json!({ "user": name });
        let made = account.then(|| Account {
            id: account_id.unwrap_or_else(|| self.new_account_id()),
            canonical_id: canonical_id.unwrap_or_else(|| self.new_canonical_id()),
            display_name: display_name.unwrap_or_else(|| name.clone()),
            email,
            short_arns,
        });
        let joins = self.account_of(of)?;
        answer["account_id"] = json!(made.as_ref().map_or(&joins, |account| &account.id));
        if let Some(account) = &made {
            answer["canonical_id"] = json!(account.canonical_id);
        }
        let id = self.new_id("AIDA");
        let named = format!("{}/{name}", made.as_ref().map_or(&joins, |account| &account.id));
        let (path, tags) = (NO_PATH.to_owned(), Tags::new());
        self.do_it(Order::CreateUser(NewUser { id, name, path, account: made, joins, tags })).await?;
        let key = self.create_key(named, access_key, secret_key).await?;
        answer["access_key"] = key["access_key"].clone();
        answer["secret_key"] = key["secret_key"].clone();
        Ok(answer)
    }

    async fn create_key(&self, user: String, id: Option<String>, secret: Option<String>) -> Result<Value, NotOrdered> {
        let key = match (id, secret) {
            (None, None) => self.made_key(),
            (Some(id), Some(secret)) => {
                root_keys::check(&id, &secret).map_err(wrong)?;
                let sealed = self.seal.seal_secret(&self.env, &id, &secret);
                NewKey { id, secret, sealed }
            }
            _ => return Err(wrong("give both an access key and a secret key, or none")),
        };
        if self.root.as_ref().is_some_and(|(root, _)| *root == key.id) {
            return Err(NotOrdered::Clash(format!("{} is the access key of root", key.id)));
        }
        self.do_it(Order::CreateKey { id: key.id.clone(), user: user.into(), sealed: key.sealed }).await?;
        Ok(json!({ "access_key": key.id, "secret_key": key.secret }))
    }

    fn new_account_id(&self) -> String {
        // Never begins with 0, which is the account of the root keys.
        format!("{:012}", 100_000_000_000 + self.env.random.next_u64() % 900_000_000_000)
    }

    fn new_canonical_id(&self) -> String {
        let mut bytes = [0; 32];
        self.env.random.fill(&mut bytes);
        base16ct::lower::encode_string(&bytes)
    }

    /// The stored state, without secrets; by name, then account.
    fn show(&self, wanted: Wanted) -> Result<Value, NotOrdered> {
        let registry = &*self.registry();
        let mut list: Vec<Value> = match wanted {
            Wanted::ListUsers => registry.users.values().map(|user| show_user(registry, user)).collect(),
            Wanted::ListGroups => {
                let group = |group: &Group| {
                    let policies = names_of(registry, &group.policies);
                    json!({ "group": group.name, "account_id": group.account, "policies": policies })
                };
                registry.groups.values().map(group).collect()
            }
            Wanted::ListRoles => {
                let role = |role: &Role| {
                    let policies = names_of(registry, &role.policies);
                    json!({ "role": role.name, "arn": role.arn(), "account_id": role.account, "policies": policies })
                };
                registry.roles.values().map(role).collect()
            }
            Wanted::ListPolicies => {
                let policy = |policy: &StoredPolicy| json!({ "policy": policy.name, "account_id": policy.account });
                registry.policies.values().map(policy).collect()
            }
            Wanted::GetPolicy { name } => {
                let found = registry.find_named::<StoredPolicy>(&policy(&name))?;
                return serde_json::from_str(&found.document).map_err(|error| NotOrdered::Failed(error.to_string()));
            }
            Wanted::ListKeys { user } => {
                let user = user.map(|user| registry.find_named::<User>(&user.into())).transpose()?;
                let wanted = registry.keys.values().filter(|key| user.is_none_or(|user| key.user == user.id));
                let name = |id: &String| registry.users.get(id).map(|user| user.name.clone());
                wanted
                    .map(|key| {
                        json!({
                            "access_key": key.id, "user": name(&key.user), "disabled": key.disabled,
                            "created": key.created,
                        })
                    })
                    .collect()
            }
            _ => Vec::new(),
        };
        let text = |item: &Value, field: &str| item[field].as_str().unwrap_or_default().to_owned();
        list.sort_by_cached_key(|item| SORTED_BY.map(|field| text(item, field)));
        Ok(Value::Array(list))
    }
}

/// What lists are sorted by, one field after the other; one that an item does not have counts as empty.
const SORTED_BY: [&str; 6] = ["user", "group", "role", "policy", "account_id", "access_key"];

fn show_user(registry: &Registry, user: &User) -> Value {
    let account = registry.accounts.get(&user.account);
    let keys: Vec<&str> = registry.keys.values().filter(|key| key.user == user.id).map(|key| key.id.as_str()).collect();
    let groups: Vec<&str> =
        user.groups.iter().filter_map(|id| registry.groups.get(id)).map(|group| group.name.as_str()).collect();
    json!({
        "user": user.name, "account_id": user.account, "account": user.is_account,
        "canonical_id": account.map(|account| &account.canonical_id),
        "display_name": account.map(|account| &account.display_name),
        "email": account.and_then(|account| account.email.as_ref()),
        "disabled": user.disabled, "groups": groups, "policies": names_of(registry, &user.policies),
        "access_keys": keys,
    })
}

/// The names of attached policies.
fn names_of(registry: &Registry, ids: &[String]) -> Vec<String> {
    ids.iter().filter_map(|id| registry.attached_policy(id)).map(|(name, _)| name).collect()
}

/// A policy by an operator's name for it: without an account it belongs to the account of root.
fn policy(name: &str) -> Named {
    let named = Named::from(name);
    Named { account: named.account.or_else(|| Some(ROOT_ACCOUNT.to_owned())), ..named }
}

/// Requires exactly one of the three.
fn holder(user: Option<String>, group: Option<String>, role: Option<String>) -> Result<(Kind, Named), NotOrdered> {
    match (user, group, role) {
        (Some(user), None, None) => Ok((Kind::User, user.into())),
        (None, Some(group), None) => Ok((Kind::Group, group.into())),
        (None, None, Some(role)) => Ok((Kind::Role, role.into())),
        _ => Err(wrong("name one user, group or role")),
    }
}
