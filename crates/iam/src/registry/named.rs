//! Resolves the names that orders use for users, groups, roles and policies.
//!
//! Invariants: N1 names are unique in an account, ignoring case.
//!             N2 a name without an account means the only record of that name; when several accounts have one, it is
//!                refused.
//! Not here:   ids, by which records refer to each other.

use super::{ChangeError, Group, Kind, Registry, Role, StoredPolicy, User};

/// A name, and the account to look in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// `None`: any account.
    pub account: Option<String>,
    pub name: String,
}

impl Named {
    /// The record with this name in this account.
    pub fn in_account(account: &str, name: &str) -> Named {
        Named { account: Some(account.to_owned()), name: name.to_owned() }
    }
}

/// `NAME`, `ACCOUNT/NAME`, or the ARN of a policy.
impl From<&str> for Named {
    fn from(text: &str) -> Named {
        if let Some((account, path)) = text.strip_prefix("arn:aws:iam::").and_then(|rest| rest.split_once(":policy/")) {
            let account = Some(account.to_owned()).filter(|account| !account.is_empty());
            return Named { account, name: path.rsplit('/').next().unwrap_or_default().to_owned() };
        }
        match text.split_once('/') {
            Some((account, name)) => Named::in_account(account, name),
            None => Named { account: None, name: text.to_owned() },
        }
    }
}

impl From<String> for Named {
    fn from(text: String) -> Named {
        Named::from(text.as_str())
    }
}

/// A record that has a name in an account.
pub trait Entity: Sized + 'static {
    const KIND: Kind;
    /// The word for its kind in ARNs.
    const ARN_WORD: &str;
    fn id(&self) -> &str;
    fn name(&self) -> &str;
    fn account(&self) -> &str;
    fn path(&self) -> &str;
    /// Seconds since 1970.
    fn created(&self) -> i64;

    fn arn(&self) -> String {
        format!("arn:aws:iam::{}:{}{}{}", self.account(), Self::ARN_WORD, self.path(), self.name())
    }

    fn all(registry: &Registry) -> impl Iterator<Item = &Self>;
}

macro_rules! entity {
    ($($kind:ident $type:ident $field:ident $word:literal;)*) => {$(
        impl Entity for $type {
            const KIND: Kind = Kind::$kind;
            const ARN_WORD: &str = $word;
            fn id(&self) -> &str {
                &self.id
            }
            fn name(&self) -> &str {
                &self.name
            }
            fn account(&self) -> &str {
                &self.account
            }
            fn path(&self) -> &str {
                &self.path
            }
            fn created(&self) -> i64 {
                self.created
            }
            fn all(registry: &Registry) -> impl Iterator<Item = &Self> {
                registry.$field.values()
            }
        }
    )*};
}

entity! {
    User User users "user";
    Group Group groups "group";
    Role Role roles "role";
    Policy StoredPolicy policies "policy";
}

impl Registry {
    /// Finds the record; the error says why it was not found.
    pub fn find_named<E: Entity>(&self, named: &Named) -> Result<&E, ChangeError> {
        let fits = |entity: &&E| {
            entity.name().eq_ignore_ascii_case(&named.name)
                && named.account.as_deref().is_none_or(|account| account == entity.account())
        };
        let mut found = E::all(self).filter(fits);
        let Some(first) = found.next() else {
            return Err(ChangeError::Absent(E::KIND.word(), named.name.clone()));
        };
        let Some(second) = found.next() else { return Ok(first) };
        // Records stored before names were compared without case may differ only in case.
        let exact = || E::all(self).filter(fits).filter(|entity| entity.name() == named.name);
        match exact().next() {
            Some(only) if exact().count() == 1 => Ok(only),
            _ => Err(ChangeError::Ambiguous {
                kind: E::KIND.word(),
                name: named.name.clone(),
                accounts: [first.account().to_owned(), second.account().to_owned()],
            }),
        }
    }
}
