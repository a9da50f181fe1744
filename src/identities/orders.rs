//! Orders of an operator in JSON: the one form that the control socket and the admin API take.
//!
//! Invariants: J1 a secret is in the answer of the order that made it, and in no other.

use margay_iam::registry::{Account, Kind, NewUser, Order};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Identities, root_account};
use crate::keys;

/// What is wanted.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Wanted {
    CreateUser {
        name: String,
        /// The user is an account of its own.
        #[serde(default)]
        account: bool,
        account_id: Option<String>,
        canonical_id: Option<String>,
        display_name: Option<String>,
        email: Option<String>,
        /// A user whose account this one joins; without it the account of the root keys.
        of: Option<String>,
        access_key: Option<String>,
        secret_key: Option<String>,
    },
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
    /// The document is JSON as text, so that it is stored as it was written.
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

impl Identities {
    /// Reads an order and carries it out. The error is one line.
    pub async fn answer_json(&self, order: &[u8]) -> Result<Value, String> {
        let wanted = serde_json::from_slice(order).map_err(|error| format!("that is no order: {error}"))?;
        self.answer(wanted).await
    }

    /// Does what is wanted and gives the answer. The error is one line.
    pub async fn answer(&self, wanted: Wanted) -> Result<Value, String> {
        let order = match wanted {
            Wanted::CreateUser { .. } => return self.create_user(wanted).await,
            Wanted::CreateKey { user, access_key, secret_key } => {
                return self.create_key(user, access_key, secret_key).await;
            }
            Wanted::RotateKey { access_key } => {
                let (id, secret) = (keys::new_access_key(&self.env, "AKIA"), keys::new_secret(&self.env));
                let sealed = self.seal.seal_secret(&self.env, &id, &secret);
                self.carry_out(Order::RotateKey { old: access_key, id: id.clone(), sealed }).await?;
                return Ok(json!({ "access_key": id, "secret_key": secret }));
            }
            Wanted::ListUsers
            | Wanted::ListGroups
            | Wanted::ListRoles
            | Wanted::ListPolicies
            | Wanted::GetPolicy { .. }
            | Wanted::ListKeys { .. } => return self.show(wanted),
            Wanted::DeleteUser { name } => Order::DeleteUser { name },
            Wanted::EnableUser { name } => Order::SetUserDisabled { name, disabled: false },
            Wanted::DisableUser { name } => Order::SetUserDisabled { name, disabled: true },
            Wanted::CreateGroup { name, of } => Order::CreateGroup { name, account: self.account_of(of)? },
            Wanted::DeleteGroup { name } => Order::DeleteGroup { name },
            Wanted::JoinGroup { user, group } => Order::JoinGroup { user, group },
            Wanted::LeaveGroup { user, group } => Order::LeaveGroup { user, group },
            Wanted::CreateRole { name, of, trust } => Order::CreateRole { name, account: self.account_of(of)?, trust },
            Wanted::DeleteRole { name } => Order::DeleteRole { name },
            Wanted::PutPolicy { name, document } => Order::PutPolicy { name, document },
            Wanted::DeletePolicy { name } => Order::DeletePolicy { name },
            Wanted::Attach { policy, user, group, role } => {
                let (kind, to) = holder(user, group, role)?;
                Order::Attach { policy, kind, to }
            }
            Wanted::Detach { policy, user, group, role } => {
                let (kind, from) = holder(user, group, role)?;
                Order::Detach { policy, kind, from }
            }
            Wanted::DeleteKey { access_key } => Order::DeleteKey { id: access_key },
            Wanted::EnableKey { access_key } => Order::SetKeyDisabled { id: access_key, disabled: false },
            Wanted::DisableKey { access_key } => Order::SetKeyDisabled { id: access_key, disabled: true },
        };
        self.carry_out(order).await?;
        Ok(json!({ "done": true }))
    }

    /// The id of a user's account; without a user that of the root keys.
    fn account_of(&self, user: Option<String>) -> Result<String, String> {
        let Some(user) = user else { return Ok(root_account().id) };
        let state = self.state.load();
        let found = state.registry.users.get(&user).map(|user| user.account.clone());
        found.ok_or_else(|| format!("there is no user {user}"))
    }

    async fn create_user(&self, wanted: Wanted) -> Result<Value, String> {
        let Wanted::CreateUser {
            name,
            account,
            account_id,
            canonical_id,
            display_name,
            email,
            of,
            access_key,
            secret_key,
        } = wanted
        else {
            return Err("no user is to be made".to_owned());
        };
        let describes_account = [&account_id, &canonical_id, &display_name, &email].iter().any(|part| part.is_some());
        if describes_account && !account {
            return Err("ids, display name and email belong to an account; make the user one (--account)".to_owned());
        }
        if account && of.is_some() {
            return Err("a user is an account of its own or joins another one, not both".to_owned());
        }
        let mut answer = json!({ "user": name });
        let made = account.then(|| Account {
            id: account_id.unwrap_or_else(|| self.new_account_id()),
            canonical_id: canonical_id.unwrap_or_else(|| self.new_canonical_id()),
            display_name: display_name.unwrap_or_else(|| name.clone()),
            email,
        });
        let joins = self.account_of(of)?;
        answer["account_id"] = json!(made.as_ref().map_or(&joins, |account| &account.id));
        if let Some(account) = &made {
            answer["canonical_id"] = json!(account.canonical_id);
        }
        self.carry_out(Order::CreateUser(NewUser { name: name.clone(), account: made, joins })).await?;
        let key = self.create_key(name, access_key, secret_key).await?;
        answer["access_key"] = key["access_key"].clone();
        answer["secret_key"] = key["secret_key"].clone();
        Ok(answer)
    }

    async fn create_key(&self, user: String, id: Option<String>, secret: Option<String>) -> Result<Value, String> {
        let (id, secret) = match (id, secret) {
            (None, None) => (keys::new_access_key(&self.env, "AKIA"), keys::new_secret(&self.env)),
            (Some(id), Some(secret)) => {
                keys::check(&id, &secret)?;
                (id, secret)
            }
            _ => return Err("give both an access key and a secret key, or none".to_owned()),
        };
        if self.root.as_ref().is_some_and(|(root, _)| *root == id) {
            return Err(format!("{id} is the access key of root"));
        }
        let sealed = self.seal.seal_secret(&self.env, &id, &secret);
        self.carry_out(Order::CreateKey { id: id.clone(), user, sealed }).await?;
        Ok(json!({ "access_key": id, "secret_key": secret }))
    }

    fn new_account_id(&self) -> String {
        // Never begins with 0, which is the account of the root keys.
        format!("{:012}", 100_000_000_000 + self.env.random.next_u64() % 900_000_000_000)
    }

    fn new_canonical_id(&self) -> String {
        let mut bytes = [0; 32];
        self.env.random.fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What is stored, without secrets.
    fn show(&self, wanted: Wanted) -> Result<Value, String> {
        let state = self.state.load();
        let registry = &state.registry;
        let list = match wanted {
            Wanted::ListUsers => {
                let user = |user: &margay_iam::registry::User| {
                    let account = registry.accounts.get(&user.account);
                    let keys: Vec<&str> =
                        registry.keys.values().filter(|key| key.user == user.name).map(|key| key.id.as_str()).collect();
                    json!({
                        "user": user.name, "account_id": user.account, "account": user.is_account,
                        "canonical_id": account.map(|account| &account.canonical_id),
                        "display_name": account.map(|account| &account.display_name),
                        "email": account.and_then(|account| account.email.as_ref()),
                        "disabled": user.disabled, "groups": user.groups, "policies": user.policies, "access_keys": keys,
                    })
                };
                registry.users.values().map(user).collect()
            }
            Wanted::ListGroups => registry
                .groups
                .values()
                .map(|group| json!({ "group": group.name, "account_id": group.account, "policies": group.policies }))
                .collect(),
            Wanted::ListRoles => registry
                .roles
                .values()
                .map(|role| {
                    let arn = format!("arn:aws:iam::{}:role/{}", role.account, role.name);
                    json!({ "role": role.name, "arn": arn, "account_id": role.account, "policies": role.policies })
                })
                .collect(),
            Wanted::ListPolicies => registry.policies.keys().map(|name| json!({ "policy": name })).collect(),
            Wanted::GetPolicy { name } => {
                let policy = registry.policies.get(&name).ok_or_else(|| format!("there is no policy {name}"))?;
                return serde_json::from_str(&policy.document).map_err(|error| error.to_string());
            }
            Wanted::ListKeys { user } => registry
                .keys
                .values()
                .filter(|key| user.as_ref().is_none_or(|user| key.user == *user))
                .map(|key| json!({ "access_key": key.id, "user": key.user, "disabled": key.disabled, "created": key.created }))
                .collect(),
            _ => Vec::new(),
        };
        Ok(Value::Array(list))
    }
}

/// Exactly one of the three.
fn holder(user: Option<String>, group: Option<String>, role: Option<String>) -> Result<(Kind, String), String> {
    match (user, group, role) {
        (Some(user), None, None) => Ok((Kind::User, user)),
        (None, Some(group), None) => Ok((Kind::Group, group)),
        (None, None, Some(role)) => Ok((Kind::Role, role)),
        _ => Err("name one user, group or role".to_owned()),
    }
}
