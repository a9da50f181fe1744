//! Users besides root, kept in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use margay_env::Timestamp;
use margay_iam::registry::{
    AccessKey, Account, Change, ChangeError, Identity, Kind, NewUser, Order, Record, Registry, Tags, User,
};
use margay_s3::Options;
use margay_s3::auth::{Credential, Secret};
use margay_s3::identities::{AccountName, Found, Identities, NewKey, OrderError, Ordered};

use super::{ACCESS_KEY, SECRET_KEY};

/// Users whose access key is their name and whose secret is `secret-of-` and their name.
pub struct Users {
    registry: Mutex<Arc<Registry>>,
    root: Arc<Identity>,
    /// Ids that were made.
    made: AtomicU64,
}

impl Users {
    /// `users` are (name, whose account it joins, policies): a user who joins nobody is an account.
    pub fn new(users: &[(&str, Option<&str>, &[&str])]) -> Users {
        let options = Options::default();
        let root = Account {
            id: options.account_id,
            canonical_id: options.owner_id,
            display_name: options.owner_name,
            email: None,
            short_arns: false,
        };
        let records = [Record::Account(root.clone())];
        let people = Users {
            registry: Mutex::new(Arc::new(Registry::new(records))),
            root: Arc::new(Identity::root(Arc::new(root))),
            made: AtomicU64::new(0),
        };
        for (index, (name, joins, policies)) in users.iter().enumerate() {
            people.add(index, name, *joins, policies);
        }
        people
    }

    fn add(&self, index: usize, name: &str, joins: Option<&str>, policies: &[&str]) {
        let account = Account {
            id: format!("{:012}", 111_111_111_111_u64 + index as u64),
            canonical_id: format!("canonical-{name}"),
            display_name: name.to_owned(),
            email: Some(format!("{name}@example.com")),
            short_arns: false,
        };
        let found = |joins: &str| self.registry().find_named::<User>(&joins.into()).unwrap().account.clone();
        let joins_id = joins.map(found).unwrap_or_default();
        let account = joins.is_none().then_some(account);
        let (id, path) = (format!("id-of-{name}"), "/".to_owned());
        let new = NewUser { id, name: name.to_owned(), path, account, joins: joins_id, tags: Tags::new() };
        self.carry_out(Order::CreateUser(new)).unwrap();
        self.carry_out(Order::CreateKey { id: name.to_owned(), user: name.into(), sealed: String::new() }).unwrap();
        for (number, policy) in policies.iter().enumerate() {
            let (kind, to, document) = (Kind::User, name.into(), (*policy).to_owned());
            self.carry_out(Order::PutInline { kind, to, name: format!("{name}-{number}"), document }).unwrap();
        }
    }

    fn carry_out(&self, order: Order) -> Result<(), ChangeError> {
        let mut registry = self.registry.lock().unwrap();
        let mut records = registry.records();
        for change in registry.decide(order, 7)? {
            match change {
                Change::Put(record) => {
                    records.retain(|own| own.id() != record.id());
                    records.push(record);
                }
                Change::Remove(kind, name) => records.retain(|own| own.id() != (kind, name.as_str())),
            }
        }
        *registry = Arc::new(Registry::new(records));
        Ok(())
    }
}

impl Identities for Users {
    fn find(&self, access_key: &str, _: Option<&str>, _: Timestamp) -> Found {
        let known = |secret: &str, identity| {
            Found::Known(Credential { secret: Secret::new(secret), session_token: None }, identity)
        };
        if access_key == ACCESS_KEY {
            return known(SECRET_KEY, Arc::clone(&self.root));
        }
        match self.registry().find(access_key) {
            Some((AccessKey { id, .. }, identity)) => known(&format!("secret-of-{id}"), identity),
            None => Found::Nobody,
        }
    }

    fn account(&self, name: AccountName<'_>) -> Option<Arc<Account>> {
        let root = &self.root.account;
        match name {
            AccountName::Id(id) if id.is_empty() || id == root.id => Some(Arc::clone(root)),
            AccountName::CanonicalId(id) if id == root.canonical_id => Some(Arc::clone(root)),
            AccountName::Id(id) => self.registry().accounts.get(id).cloned(),
            AccountName::CanonicalId(id) => self.registry().account_of_canonical_id(id).cloned(),
            AccountName::Email(email) => self.registry().account_of_email(email).cloned(),
        }
    }

    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry.lock().unwrap())
    }

    fn order(&self, order: Order) -> Ordered<'_> {
        Box::pin(std::future::ready(self.carry_out(order).map_err(OrderError::Refused)))
    }

    fn new_id(&self, beginning: &str) -> String {
        format!("{beginning}{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    fn new_key(&self) -> Option<NewKey> {
        let id = self.new_id("AKIA");
        Some(NewKey { secret: format!("secret-of-{id}"), id, sealed: "sealed".to_owned() })
    }
}
