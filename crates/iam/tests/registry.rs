//! Orders of an operator, one after the other, and who is identified afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use margay_iam::registry::{AccessKey, Account, Change, ChangeError, Kind, NewUser, Order, Part, Record, Registry};
use proptest::prelude::*;

fn apply(registry: &Registry, changes: Vec<Change>) -> Registry {
    let mut records = registry.records();
    for change in changes {
        match change {
            Change::Put(record) => {
                records.retain(|own| own.id() != record.id());
                records.push(record);
            }
            Change::Remove(kind, name) => records.retain(|own| own.id() != (kind, name.as_str())),
        }
    }
    // Through what is stored.
    let stored = records.iter().map(|record| (record.id().0, record.encode()));
    Registry::new(stored.map(|(kind, json)| Record::decode(kind, &json).expect("what was written can be read")))
}

fn account(number: u64) -> Account {
    Account {
        id: format!("{:012}", 100_000_000_000 + number),
        canonical_id: format!("canonical-{number}"),
        display_name: format!("account {number}"),
        email: Some(format!("{number}@example.com")),
    }
}

const POLICY: &str = r#"{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}"#;

struct World(Registry);

impl World {
    fn order(&mut self, order: Order) -> Result<(), ChangeError> {
        let changes = self.0.decide(order, 7)?;
        self.0 = apply(&self.0, changes);
        Ok(())
    }

    fn new() -> World {
        let mut world = World(Registry::default());
        world
            .order(Order::CreateUser(NewUser { name: "shop".into(), account: Some(account(1)), joins: String::new() }))
            .unwrap();
        let joins = account(1).id;
        world.order(Order::CreateUser(NewUser { name: "till".into(), account: None, joins })).unwrap();
        world.order(Order::CreateKey { id: "K1".into(), user: "till".into(), sealed: "s".into() }).unwrap();
        world.order(Order::PutPolicy { name: "read".into(), document: POLICY.into() }).unwrap();
        world
    }

    fn policies(&self) -> Vec<String> {
        let (_, identity) = self.0.find("K1").unwrap();
        identity.policies.as_ref().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

#[test]
fn a_key_identifies_its_user_with_all_policies() {
    let mut world = World::new();
    let (key, identity) = world.0.find("K1").unwrap();
    assert_eq!((key.user.as_str(), &identity.role), ("till", &Part::User { name: "till".to_owned() }));
    assert_eq!(identity.account.id, account(1).id);
    assert_eq!(world.policies(), Vec::<String>::new());
    world.order(Order::CreateGroup { name: "readers".into(), account: account(1).id }).unwrap();
    world.order(Order::Attach { policy: "read".into(), kind: Kind::Group, to: "readers".into() }).unwrap();
    world.order(Order::JoinGroup { user: "till".into(), group: "readers".into() }).unwrap();
    assert_eq!(world.policies(), ["read"]);
    world.order(Order::LeaveGroup { user: "till".into(), group: "readers".into() }).unwrap();
    assert_eq!(world.policies(), Vec::<String>::new());
    world.order(Order::Attach { policy: "read".into(), kind: Kind::User, to: "till".into() }).unwrap();
    assert_eq!(world.policies(), ["read"]);
}

#[test]
fn what_is_disabled_or_gone_identifies_nobody() {
    let mut world = World::new();
    world.order(Order::SetKeyDisabled { id: "K1".into(), disabled: true }).unwrap();
    assert!(world.0.find("K1").is_none());
    world.order(Order::SetKeyDisabled { id: "K1".into(), disabled: false }).unwrap();
    world.order(Order::SetUserDisabled { name: "till".into(), disabled: true }).unwrap();
    assert!(world.0.find("K1").is_none());
    world.order(Order::SetUserDisabled { name: "till".into(), disabled: false }).unwrap();
    world.order(Order::RotateKey { old: "K1".into(), id: "K2".into(), sealed: "s".into() }).unwrap();
    assert!(world.0.find("K1").is_none() && world.0.find("K2").is_some());
    world.order(Order::DeleteUser { name: "till".into() }).unwrap();
    assert!(world.0.find("K2").is_none() && world.0.keys.is_empty());
}

#[test]
fn a_policy_that_cannot_be_read_leaves_no_rights() {
    let mut world = World::new();
    world.order(Order::Attach { policy: "read".into(), kind: Kind::User, to: "till".into() }).unwrap();
    let mut records = world.0.records();
    for record in &mut records {
        if let Record::Policy(policy) = record {
            policy.document = "{}".to_owned();
        }
    }
    let damaged = Registry::new(records);
    assert!(damaged.find("K1").unwrap().1.policies.is_none());
}

#[test]
fn what_is_in_use_stays() {
    let mut world = World::new();
    world.order(Order::Attach { policy: "read".into(), kind: Kind::User, to: "till".into() }).unwrap();
    let in_use =
        |outcome: Result<(), ChangeError>| assert!(matches!(outcome, Err(ChangeError::InUse(_))), "{outcome:?}");
    in_use(world.order(Order::DeletePolicy { name: "read".into() }));
    in_use(world.order(Order::DeleteUser { name: "shop".into() }));
    world.order(Order::DeleteUser { name: "till".into() }).unwrap();
    world.order(Order::DeletePolicy { name: "read".into() }).unwrap();
    world.order(Order::DeleteUser { name: "shop".into() }).unwrap();
    assert!(world.0.accounts.is_empty());
}

#[test]
fn nothing_is_made_twice_or_under_a_bad_name() {
    let mut world = World::new();
    let user = |name: &str, made: Option<Account>| {
        Order::CreateUser(NewUser { name: name.to_owned(), account: made, joins: account(1).id })
    };
    let present =
        |outcome: Result<(), ChangeError>| assert!(matches!(outcome, Err(ChangeError::Present(..))), "{outcome:?}");
    present(world.order(user("till", None)));
    present(world.order(user("other", Some(account(1)))));
    present(world.order(user("other", Some(Account { id: account(2).id, ..account(1) }))));
    present(
        world.order(user("other", Some(Account { canonical_id: "x".to_owned(), id: account(2).id, ..account(1) }))),
    );
    present(world.order(Order::CreateKey { id: "K1".into(), user: "shop".into(), sealed: String::new() }));
    let long = "n".repeat(65);
    for name in ["", "a/b", "a b", "ü", "*", long.as_str()] {
        assert!(matches!(world.order(user(name, None)), Err(ChangeError::Name(_))), "{name}");
    }
    let bad = Order::PutPolicy { name: "bad".into(), document: "{}".into() };
    assert!(matches!(world.order(bad), Err(ChangeError::Policy(_))));
    let nowhere = Order::Attach { policy: "none".into(), kind: Kind::User, to: "till".into() };
    assert!(matches!(world.order(nowhere), Err(ChangeError::Absent(..))));
}

fn orders() -> impl Strategy<Value = Order> {
    let name = || prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned);
    let id = || (1_u64..3).prop_map(|number| account(number).id);
    prop_oneof![
        (name(), prop::option::of(1_u64..3), id())
            .prop_map(|(name, made, joins)| { Order::CreateUser(NewUser { name, account: made.map(account), joins }) }),
        name().prop_map(|name| Order::DeleteUser { name }),
        (name(), any::<bool>()).prop_map(|(name, disabled)| Order::SetUserDisabled { name, disabled }),
        (name(), id()).prop_map(|(name, account)| Order::CreateGroup { name, account }),
        name().prop_map(|name| Order::DeleteGroup { name }),
        (name(), name()).prop_map(|(user, group)| Order::JoinGroup { user, group }),
        (name(), name()).prop_map(|(user, group)| Order::LeaveGroup { user, group }),
        name().prop_map(|name| Order::PutPolicy { name, document: POLICY.to_owned() }),
        name().prop_map(|name| Order::DeletePolicy { name }),
        (name(), name(), any::<bool>()).prop_map(|(policy, to, user)| Order::Attach {
            policy,
            kind: if user { Kind::User } else { Kind::Group },
            to
        }),
        (name(), name()).prop_map(|(id, user)| Order::CreateKey { id, user, sealed: String::new() }),
        (name(), name()).prop_map(|(old, id)| Order::RotateKey { old, id, sealed: String::new() }),
        name().prop_map(|id| Order::DeleteKey { id }),
    ]
}

proptest! {
    /// Whatever is ordered, everything that is named is there, and a user's groups are of its account.
    #[test]
    fn nothing_hangs_in_the_air(orders in prop::collection::vec(orders(), 0..40)) {
        let mut world = World(Registry::default());
        for order in orders {
            let _ = world.order(order);
            let registry = &world.0;
            for user in registry.users.values() {
                prop_assert!(registry.accounts.contains_key(&user.account));
                prop_assert!(user.policies.iter().all(|name| registry.policies.contains_key(name)));
                for name in &user.groups {
                    prop_assert_eq!(&registry.groups[name].account, &user.account);
                }
                let known = registry.user(&user.name);
                prop_assert_eq!(known.is_some(), !user.disabled);
                prop_assert!(known.is_none_or(|identity| identity.policies.is_some()));
            }
            for group in registry.groups.values() {
                prop_assert!(registry.accounts.contains_key(&group.account));
                prop_assert!(group.policies.iter().all(|name| registry.policies.contains_key(name)));
            }
            for AccessKey { user, .. } in registry.keys.values() {
                prop_assert!(registry.users.contains_key(user));
            }
            // An account has one user that stands for it.
            for id in registry.accounts.keys() {
                let standing = registry.users.values().filter(|user| user.is_account && user.account == *id);
                prop_assert_eq!(standing.count(), 1);
            }
        }
    }
}
