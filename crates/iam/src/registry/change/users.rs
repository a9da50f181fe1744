//! Orders about users, and about the accounts that some of them represent.

use super::{ChangeError, NewUser, Outcome, check_tags, check_without_policies};
use crate::registry::{Account, Change, Kind, Named, Record, Registry, User};

/// Commands call the holder of the server's own keys so, who is no user.
fn check_not_root(name: &str) -> Result<(), ChangeError> {
    match name {
        "root" => {
            Err(ChangeError::Value("root is the holder of the server's own keys; choose another name".to_owned()))
        }
        _ => Ok(()),
    }
}

fn check_account(id: &str) -> Result<(), ChangeError> {
    match id.len() == 12 && id.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(()),
        false => Err(ChangeError::Value(format!("an account id has twelve digits: {id:?}"))),
    }
}

impl Registry {
    pub(super) fn create_user(&self, new: NewUser, now: i64) -> Outcome {
        let is_account = new.account.is_some();
        let account = new.account.as_ref().map_or(new.joins, |account| account.id.clone());
        check_not_root(&new.name)?;
        self.check_new::<User>(&new.id, &new.name, &new.path, &account)?;
        check_tags(&new.tags)?;
        let mut changes = Vec::new();
        match new.account {
            None => self.check_account_is_there(&account)?,
            Some(made) => {
                self.check_new_account(&new.name, &made)?;
                changes.push(Change::Put(Record::Account(made)));
            }
        }
        changes.push(Change::Put(Record::User(User {
            id: new.id,
            name: new.name,
            path: new.path,
            account,
            is_account,
            disabled: false,
            groups: Vec::new(),
            policies: Vec::new(),
            inline: Default::default(),
            tags: new.tags,
            created: now,
        })));
        Ok(changes)
    }

    fn check_new_account(&self, user: &str, account: &Account) -> Result<(), ChangeError> {
        check_account(&account.id)?;
        if self.accounts.contains_key(&account.id) {
            return Err(ChangeError::Present("account", account.id.clone()));
        }
        if self.account_of_canonical_id(&account.canonical_id).is_some() {
            return Err(ChangeError::Present("canonical id", account.canonical_id.clone()));
        }
        if let Some(email) = account.email.as_deref().filter(|email| self.account_of_email(email).is_some()) {
            return Err(ChangeError::Present("email", email.to_owned()));
        }
        // A user that represents an account needs a name unique in the server, because operators name the account by
        // it.
        let mut standing = self.users.values().filter(|own| own.is_account);
        match standing.any(|own| own.name.eq_ignore_ascii_case(user)) {
            true => Err(ChangeError::Present("account of the user", user.to_owned())),
            false => Ok(()),
        }
    }

    pub(super) fn update_user(&self, user: &Named, name: Option<String>, path: Option<String>) -> Outcome {
        let mut user = self.find_named::<User>(user)?.clone();
        name.as_deref().map_or(Ok(()), check_not_root)?;
        self.check_moved(&user, name.as_deref(), path.as_deref())?;
        user.name = name.unwrap_or(user.name);
        user.path = path.unwrap_or(user.path);
        Ok(vec![Change::Put(Record::User(user))])
    }

    pub(super) fn set_user_disabled(&self, user: &Named, disabled: bool) -> Outcome {
        let user = User { disabled, ..self.find_named::<User>(user)?.clone() };
        Ok(vec![Change::Put(Record::User(user))])
    }

    pub(super) fn delete_user(&self, user: &Named, bare: bool) -> Outcome {
        let user = self.find_named::<User>(user)?;
        let name = &user.name;
        let keys: Vec<_> = self.keys.values().filter(|key| key.user == user.id).collect();
        if bare {
            check_without_policies(Kind::User, name, &user.policies, &user.inline)?;
            if !keys.is_empty() {
                return Err(ChangeError::InUse(format!("the user {name} has access keys; delete them first")));
            }
            if !user.groups.is_empty() {
                return Err(ChangeError::InUse(format!("the user {name} is in a group; remove it from there first")));
            }
        }
        let mut changes = vec![Change::Remove(Kind::User, user.id.clone())];
        changes.extend(keys.into_iter().map(|key| Change::Remove(Kind::Key, key.id.clone())));
        if user.is_account {
            self.check_alone(user)?;
            let providers = self.providers.values().filter(|provider| provider.account == user.account);
            changes.extend(providers.map(|provider| Change::Remove(Kind::Provider, provider.id.clone())));
            changes.push(Change::Remove(Kind::Account, user.account.clone()));
        }
        Ok(changes)
    }

    /// Refuses when the account has users besides the one that represents it.
    fn check_alone(&self, user: &User) -> Result<(), ChangeError> {
        let others = self.users.values().any(|other| other.account == user.account && other.id != user.id);
        let groups = self.groups.values().any(|group| group.account == user.account);
        let roles = self.roles.values().any(|role| role.account == user.account);
        let policies = self.policies.values().any(|policy| policy.account == user.account);
        match others || groups || roles || policies {
            true => Err(ChangeError::InUse(format!(
                "the account of {} has other users, groups, roles or policies; remove them first",
                user.name
            ))),
            false => Ok(()),
        }
    }
}
