//! Entry points of the fuzz targets: policies and stored records as arbitrary bytes.

use crate::decision::{Sources, decide};
use crate::document::{Kind, Policy};
use crate::principal::{Caller, Who};
use crate::registry::{Kind as RecordKind, Record};
use crate::request::{Context, Lookup, Request};
use crate::statement::Opinion;

struct Circumstances;

impl Context for Circumstances {
    fn lookup(&self, key: &str) -> Lookup<'_> {
        match key {
            "aws:username" => Lookup::one("ann"),
            "aws:sourceip" => Lookup::one("10.1.2.3"),
            "aws:epochtime" => Lookup::one("1700000000"),
            "s3:requestobjecttagkeys" => Lookup::Values(vec!["a".into(), "b".into()]),
            _ if crate::key::is_known(key) => Lookup::Absent,
            _ => Lookup::Unknown,
        }
    }
}

/// A policy of any kind: a policy accepted by `parse` is accepted by `parse_stored`, both decide a request alike, and a
/// request that the policy denies is never allowed by other sources.
pub fn policy(bytes: &[u8]) {
    for kind in [Kind::Identity, Kind::Bucket, Kind::Trust] {
        let stored = Policy::parse_stored(kind, bytes);
        let Ok(policy) = Policy::parse(kind, bytes) else { continue };
        assert_eq!(stored.as_ref(), Ok(&policy), "what may be set can be read again");
        let _ = policy.is_public();
        for who in [Who::Anonymous, Who::Account, Who::User { path: "/", name: "ann" }] {
            let account = if who == Who::Anonymous { "" } else { "111111111111" };
            let caller = Caller { who, account, canonical_id: "c1" };
            for (action, resource) in [("s3:GetObject", "arn:aws:s3:::b/k"), ("s3:ListBucket", "arn:aws:s3:::b")] {
                let request = Request { caller: &caller, action, resource, context: &Circumstances };
                let alone = Sources { bucket: Some(&policy), ..Sources::default() };
                let denied = matches!(policy.opinion(&request), Opinion::Denies(_));
                let generous = Sources { is_own: true, is_account: true, granted: true, ..alone };
                assert!(!(denied && decide(&generous, &request).allowed), "a deny wins");
                assert!(!(denied && decide(&alone, &request).allowed), "a deny wins");
            }
        }
    }
}

/// A stored record: the first byte chooses the kind; a decoded record encodes to bytes that decode to the same record.
pub fn identity_record(bytes: &[u8]) {
    const KINDS: [RecordKind; 7] = [
        RecordKind::Account,
        RecordKind::User,
        RecordKind::Group,
        RecordKind::Role,
        RecordKind::Policy,
        RecordKind::Key,
        RecordKind::Provider,
    ];
    let Some((kind, json)) = bytes.split_first() else { return };
    let kind = KINDS[usize::from(*kind) % KINDS.len()];
    let Some(record) = Record::decode(kind, json) else { return };
    let again = Record::decode(kind, &record.encode());
    assert_eq!(again.as_ref(), Some(&record), "what is kept can be read again");
}
