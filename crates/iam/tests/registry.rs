//! A sequence of an operator's orders, and the identities found afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use margay_iam::registry::{
    AccessKey, Account, Change, ChangeError, Group, Kind, Named, NewGroup, NewUser, Order, Part, ROOT_ACCOUNT, Record,
    Registry, StoredPolicy, Tags, User,
};
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
    // Round trip through the stored form.
    let stored = records.iter().map(|record| (record.id().0, record.encode()));
    Registry::new(stored.map(|(kind, json)| Record::decode(kind, &json).expect("what was written can be read")))
}

fn account(number: u64) -> Account {
    Account {
        id: format!("{:012}", 100_000_000_000 + number),
        canonical_id: format!("canonical-{number}"),
        display_name: format!("account {number}"),
        email: Some(format!("{number}@example.com")),
        short_arns: false,
    }
}

const POLICY: &str = r#"{"Statement":{"Effect":"Allow","Action":"s3:GetObject","Resource":"*"}}"#;

/// A user whose id is the account and the name.
fn user(name: &str, made: Option<Account>, joins: &str) -> Order {
    let id = format!("id of {name} of {}", made.as_ref().map_or(joins, |account| &account.id));
    let (name, path, joins) = (name.to_owned(), "/".to_owned(), joins.to_owned());
    Order::CreateUser(NewUser { id, name, path, account: made, joins, tags: Tags::new() })
}

fn group(name: &str, account: &str) -> Order {
    let (id, name) = (format!("id of {name} of {account}"), name.to_owned());
    Order::CreateGroup(NewGroup { id, name, path: "/".to_owned(), account: account.to_owned() })
}

fn policy(name: &str, document: &str) -> Order {
    let (path, description) = ("/".to_owned(), String::new());
    let id = format!("id of {name}");
    Order::PutPolicy { id, policy: name.into(), path, description, document: document.to_owned(), new: false }
}

fn delete(name: &str) -> Order {
    Order::DeleteUser { user: name.into(), bare: false }
}

struct World(Registry);

impl World {
    fn order(&mut self, order: Order) -> Result<(), ChangeError> {
        let changes = self.0.decide(order, 7)?;
        self.0 = apply(&self.0, changes);
        Ok(())
    }

    fn new() -> World {
        let mut world = World(Registry::default());
        world.order(user("shop", Some(account(1)), "")).unwrap();
        world.order(user("till", None, &account(1).id)).unwrap();
        world.order(Order::CreateKey { id: "K1".into(), user: "till".into(), sealed: "s".into() }).unwrap();
        world.order(policy("read", POLICY)).unwrap();
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
    assert_eq!((&key.user, &identity.role), (&identity.id, &Part::User { name: "till".to_owned() }));
    assert_eq!(identity.account.id, account(1).id);
    assert_eq!(world.policies(), Vec::<String>::new());
    world.order(group("readers", &account(1).id)).unwrap();
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
    world.order(Order::SetUserDisabled { user: "till".into(), disabled: true }).unwrap();
    assert!(world.0.find("K1").is_none());
    world.order(Order::SetUserDisabled { user: "till".into(), disabled: false }).unwrap();
    world.order(Order::RotateKey { old: "K1".into(), id: "K2".into(), sealed: "s".into() }).unwrap();
    assert!(world.0.find("K1").is_none() && world.0.find("K2").is_some());
    world.order(delete("till")).unwrap();
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
    in_use(world.order(Order::DeletePolicy { policy: "read".into(), bare: true }));
    in_use(world.order(delete("shop")));
    world.order(delete("till")).unwrap();
    world.order(Order::DeletePolicy { policy: "read".into(), bare: true }).unwrap();
    world.order(delete("shop")).unwrap();
    assert!(world.0.accounts.is_empty());
}

#[test]
fn nothing_is_made_twice_or_under_a_bad_name() {
    let mut world = World::new();
    let present =
        |outcome: Result<(), ChangeError>| assert!(matches!(outcome, Err(ChangeError::Present(..))), "{outcome:?}");
    let home = account(1).id;
    present(world.order(user("till", None, &home)));
    present(world.order(user("TILL", None, &home)));
    present(world.order(user("shop", Some(account(2)), "")));
    present(world.order(user("other", Some(account(1)), "")));
    present(world.order(user("other", Some(Account { id: account(2).id, ..account(1) }), "")));
    let same_email = Account { canonical_id: "x".to_owned(), id: account(2).id, ..account(1) };
    present(world.order(user("other", Some(same_email), "")));
    present(world.order(Order::CreateKey { id: "K1".into(), user: "shop".into(), sealed: String::new() }));
    let long = "n".repeat(65);
    for name in ["", "a/b", "a b", "ü", "*", long.as_str()] {
        assert!(matches!(world.order(user(name, None, &home)), Err(ChangeError::Name(..))), "{name}");
    }
    assert!(matches!(world.order(policy("bad", "{}")), Err(ChangeError::Policy(_))));
    let nowhere = Order::Attach { policy: "none".into(), kind: Kind::User, to: "till".into() };
    assert!(matches!(world.order(nowhere), Err(ChangeError::Absent(..))));
}

#[test]
fn accounts_have_names_of_their_own() {
    let mut world = World::new();
    world.order(user("other", Some(account(2)), "")).unwrap();
    world.order(user("till", None, &account(2).id)).unwrap();
    let outcome = world.order(delete("till"));
    assert!(matches!(outcome, Err(ChangeError::Ambiguous { .. })), "{outcome:?}");
    world.order(delete(&format!("{}/till", account(2).id))).unwrap();
    assert!(world.0.find("K1").is_some(), "the other till has gone");
    // A policy of another account cannot be attached: its owner could change it.
    let theirs = format!("{}/theirs", account(2).id);
    world.order(policy(&theirs, POLICY)).unwrap();
    let attach = Order::Attach { policy: theirs.as_str().into(), kind: Kind::User, to: "till".into() };
    assert!(matches!(world.order(attach), Err(ChangeError::Absent(..))));
}

#[test]
fn a_record_fits_its_row() {
    let mut world = World::new();
    let tags = |value: &str| (0..50).map(|number| (format!("{number}"), value.to_owned())).collect::<Tags>();
    let tag = |value: &str| Order::Tag { kind: Kind::User, to: "till".into(), tags: tags(value) };
    assert!(matches!(world.order(tag("\n")), Err(ChangeError::Value(_))));
    world.order(tag(&"\"".repeat(256))).unwrap();
    let inline = |name: &str| Order::PutInline {
        kind: Kind::User,
        to: "till".into(),
        name: name.into(),
        document: POLICY.replace(' ', "").replace(',', &format!(",{}", "\n".repeat(4800))),
    };
    world.order(inline("a")).unwrap();
    assert!(matches!(world.order(inline("b")), Err(ChangeError::Limit(_))));
}

#[test]
fn who_is_made_again_is_somebody_else() {
    let mut world = World::new();
    let first = world.0.find_named::<User>(&"till".into()).unwrap().id.clone();
    world
        .order(Order::UpdateUser { user: "TILL".into(), name: Some("desk".into()), path: Some("/a/".into()) })
        .unwrap();
    let (key, identity) = world.0.find("K1").unwrap();
    assert_eq!((&key.user, identity.caller().arn()), (&first, format!("arn:aws:iam::{}:user/a/desk", account(1).id)));
    let bare = |bare| Order::DeleteUser { user: "desk".into(), bare };
    assert!(matches!(world.order(bare(true)), Err(ChangeError::InUse(_))), "a user with keys");
    world.order(bare(false)).unwrap();
    assert!(world.0.user(&first).is_none());
}

#[test]
fn what_comes_with_the_program_can_be_attached() {
    let mut world = World::new();
    let policy = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess";
    world.order(Order::Attach { policy: policy.into(), kind: Kind::User, to: "till".into() }).unwrap();
    let inline = |name: &str| (name.to_owned(), POLICY.to_owned());
    let (name, document) = inline("own");
    world.order(Order::PutInline { kind: Kind::User, to: "till".into(), name, document }).unwrap();
    assert_eq!(world.policies(), ["AmazonS3ReadOnlyAccess", "own"]);
    world.order(Order::Detach { policy: policy.into(), kind: Kind::User, from: "till".into() }).unwrap();
    let again = Order::Detach { policy: policy.into(), kind: Kind::User, from: "till".into() };
    assert!(matches!(world.order(again), Err(ChangeError::Absent(..))));
    assert_eq!(world.policies(), ["own"]);
}

/// Rows from before ids existed.
#[test]
fn records_without_ids_are_named_by_their_names() {
    let rows: [(Kind, &str); 5] = [
        (Kind::Account, r#"{"id":"100000000001","canonical_id":"c","display_name":"d"}"#),
        (Kind::User, r#"{"name":"till","account":"100000000001","groups":["all"],"policies":["read"],"created":7}"#),
        (Kind::Group, r#"{"name":"all","account":"100000000001","policies":["read"],"created":7}"#),
        (
            Kind::Policy,
            r#"{"name":"read","document":"{\"Statement\":{\"Effect\":\"Allow\",\"Action\":\"s3:*\",\"Resource\":\"*\"}}","created":7}"#,
        ),
        (Kind::Key, r#"{"id":"K1","user":"till","sealed":"s","created":7}"#),
    ];
    let records = rows.map(|(kind, json)| Record::decode(kind, json.as_bytes()).expect("it can be read"));
    let world = World(Registry::new(records));
    assert_eq!(world.policies(), ["read", "read"]);
    assert_eq!(world.0.find("K1").unwrap().1.caller().arn(), "arn:aws:iam::100000000001:user/till");
}

fn orders() -> impl Strategy<Value = Order> {
    let name = || prop::sample::select(vec!["a", "b"]).prop_map(str::to_owned);
    let id = || (1_u64..3).prop_map(|number| account(number).id);
    let named = || {
        let name = prop::sample::select(vec!["a", "b", "A"]);
        (prop::option::of(id()), name).prop_map(|(account, name)| Named { account, name: name.to_owned() })
    };
    let change = || prop::option::of(name());
    let kind = || prop::sample::select(vec![Kind::User, Kind::Group]);
    prop_oneof![
        (name(), prop::option::of(1_u64..3), id()).prop_map(|(name, made, joins)| user(
            &name,
            made.map(account),
            &joins
        )),
        (named(), change()).prop_map(|(user, name)| Order::UpdateUser { user, name, path: None }),
        (named(), any::<bool>()).prop_map(|(user, bare)| Order::DeleteUser { user, bare }),
        (named(), any::<bool>()).prop_map(|(user, disabled)| Order::SetUserDisabled { user, disabled }),
        (name(), id()).prop_map(|(name, account)| group(&name, &account)),
        (named(), change()).prop_map(|(group, name)| Order::UpdateGroup { group, name, path: None }),
        (named(), any::<bool>()).prop_map(|(group, bare)| Order::DeleteGroup { group, bare }),
        (named(), named()).prop_map(|(user, group)| Order::JoinGroup { user, group }),
        (named(), named()).prop_map(|(user, group)| Order::LeaveGroup { user, group }),
        (named(), any::<bool>()).prop_map(|(named, new)| {
            let (path, description, document) = ("/".to_owned(), String::new(), POLICY.to_owned());
            Order::PutPolicy { id: format!("{named:?}"), policy: named, path, description, document, new }
        }),
        (named(), any::<bool>()).prop_map(|(policy, bare)| Order::DeletePolicy { policy, bare }),
        (named(), any::<bool>()).prop_map(|(policy, default)| Order::CreatePolicyVersion {
            policy,
            document: POLICY.to_owned(),
            default
        }),
        (named(), 0_u32..4).prop_map(|(policy, version)| Order::SetDefaultPolicyVersion { policy, version }),
        (named(), 0_u32..4).prop_map(|(policy, version)| Order::DeletePolicyVersion { policy, version }),
        (named(), kind(), named()).prop_map(|(policy, kind, to)| Order::Attach { policy, kind, to }),
        (named(), kind(), named()).prop_map(|(policy, kind, from)| Order::Detach { policy, kind, from }),
        (kind(), named(), name()).prop_map(|(kind, to, name)| Order::PutInline {
            kind,
            to,
            name,
            document: POLICY.to_owned()
        }),
        (kind(), named(), name()).prop_map(|(kind, from, name)| Order::DeleteInline { kind, from, name }),
        (name(), named()).prop_map(|(id, user)| Order::CreateKey { id, user, sealed: String::new() }),
        (name(), name()).prop_map(|(old, id)| Order::RotateKey { old, id, sealed: String::new() }),
        name().prop_map(|id| Order::DeleteKey { id }),
    ]
}

fn names_are_unique<E: margay_iam::registry::Entity>(registry: &Registry) -> Result<(), TestCaseError> {
    let mut names: Vec<_> = E::all(registry).map(|own| (own.account(), own.name().to_ascii_lowercase())).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    prop_assert_eq!(names.len(), count);
    Ok(())
}

proptest! {
    /// After any orders, every reference has its record, and a user's groups belong to the user's account.
    #[test]
    fn nothing_hangs_in_the_air(orders in prop::collection::vec(orders(), 0..40)) {
        let mut world = World(Registry::default());
        for order in orders {
            let _ = world.order(order);
            let registry = &world.0;
            names_are_unique::<User>(registry)?;
            names_are_unique::<Group>(registry)?;
            names_are_unique::<StoredPolicy>(registry)?;
            let may_hang = |id: &String, account: &str| {
                registry.policies.get(id).is_some_and(|policy| [account, ROOT_ACCOUNT].contains(&policy.account.as_str()))
            };
            for user in registry.users.values() {
                prop_assert!(registry.accounts.contains_key(&user.account));
                prop_assert!(user.policies.iter().all(|id| may_hang(id, &user.account)));
                for id in &user.groups {
                    prop_assert_eq!(&registry.groups[id].account, &user.account);
                }
                let known = registry.user(&user.id);
                prop_assert_eq!(known.is_some(), !user.disabled);
                prop_assert!(known.is_none_or(|identity| identity.policies.is_some()));
            }
            for group in registry.groups.values() {
                prop_assert!(registry.accounts.contains_key(&group.account));
                prop_assert!(group.policies.iter().all(|id| may_hang(id, &group.account)));
            }
            for AccessKey { user, .. } in registry.keys.values() {
                prop_assert!(registry.users.contains_key(user));
            }
            // An account has one user that represents it.
            for id in registry.accounts.keys() {
                let standing = registry.users.values().filter(|user| user.is_account && user.account == *id);
                prop_assert_eq!(standing.count(), 1);
            }
        }
    }
}

#[test]
fn nobody_is_named_root() {
    let mut world = World(Registry::default());
    let is_refused = |done: Result<(), ChangeError>| matches!(done, Err(ChangeError::Value(_)));
    assert!(is_refused(world.order(user("root", Some(account(1)), ""))));
    world.order(user("ann", Some(account(1)), "")).unwrap();
    let renamed = Order::UpdateUser { user: "ann".into(), name: Some("root".to_owned()), path: None };
    assert!(is_refused(world.order(renamed)));
    let moved = Order::UpdateUser { user: "ann".into(), name: Some("rooted".to_owned()), path: None };
    world.order(moved).unwrap();
}
