//! Two accounts, grants, roles and session policies.

use crate::table::{Row, Setting, decide_all};

const IDENTITY: &str = r#"{"Sid":"mine","Effect":"Allow","Action":"s3:Get*","Resource":"*"},
{"Sid":"hands-off","Effect":"Deny","Action":"s3:GetObject","Resource":"arn:aws:s3:::*/private/*"}"#;
const BUCKET: &str = r#"{"Sid":"guests","Effect":"Allow","Principal":{"AWS":["222222222222","111111111111"]},
"Action":["s3:GetObject","s3:PutObject"],"Resource":"arn:aws:s3:::b/*"}"#;
const SESSION: &str = r#"{"Sid":"narrow","Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/in/*"},
{"Sid":"shut","Effect":"Deny","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/in/shut"}"#;

const BOTH_SIDES: &[Row] = &[
    ("A/ann", "GetObject", "b/x", "", "+mine"),
    ("A/ann", "PutObject", "b/x", "", "-"),
    ("A/ann", "GetObjectAcl", "b/x", "", "+mine"),
    ("A/ann", "GetObject", "b/private/x", "", "-hands-off"),
    ("A/", "PutObject", "b/x", "", "+guests"),
    ("A/", "DeleteObject", "b/x", "", "+own"),
    ("B/bob", "GetObject", "b/x", "", "+mine"),
    ("B/bob", "PutObject", "b/x", "", "-"),
    ("B/bob", "GetObjectAcl", "b/x", "", "-"),
    ("B/bob", "GetObject", "b/private/x", "", "-hands-off"),
    ("B/", "GetObject", "b/x", "", "+guests"),
    ("B/", "PutObject", "b/x", "", "+guests"),
    ("B/", "DeleteObject", "b/x", "", "-"),
    ("anonymous", "GetObject", "b/x", "", "-"),
];

const GRANTED: &[Row] = &[
    ("B/", "GetObject", "b/x", "", "+grant"),
    ("B/bob", "GetObject", "b/x", "", "+mine"),
    ("B/bob", "PutObject", "b/x", "", "-"),
    ("B/bob", "GetObject", "b/private/x", "", "-hands-off"),
    ("anonymous", "GetObject", "b/x", "", "+grant"),
    // A grant to the account does not extend to its users.
    ("A/ann", "PutObject", "b/x", "", "-"),
    ("A/", "GetObject", "b/x", "", "+grant"),
];

const IN_A_SESSION: &[Row] = &[
    ("A/app/s", "GetObject", "b/in/x", "", "+mine"),
    ("A/app/s", "GetObject", "b/out/x", "", "-"),
    ("A/app/s", "GetObject", "b/in/shut", "", "-shut"),
    ("A/app/s", "GetObjectAcl", "b/in/x", "", "-"),
    ("A/app/s", "PutObject", "b/in/x", "", "-"),
    ("B/app/s", "GetObject", "b/in/x", "", "+mine"),
    ("B/app/s", "GetObject", "b/out/x", "", "-"),
];

/// Rights that a bucket's policy grants to a session's own ARN are not narrowed by the session's policy.
const TO_SESSIONS: &str = r#"{"Sid":"it","Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::assumed-role/app/s",
"arn:aws:sts::222222222222:assumed-role/app/s"]},"Action":"s3:*","Resource":"arn:aws:s3:::b/*"},
{"Sid":"role","Effect":"Allow","Principal":{"AWS":"arn:aws:iam:::role/app"},"Action":"s3:ListBucket","Resource":"arn:aws:s3:::b"}"#;

const BY_ITS_ARN: &[Row] = &[
    ("A/app/s", "PutObject", "b/in/x", "", "+it"),
    ("A/app/s", "GetObject", "b/in/shut", "", "-shut"),
    ("A/app/s", "ListBucket", "b", "", "-"),
    ("A/app/t", "PutObject", "b/in/x", "", "-"),
    // A session of another account keeps the limits that it began with.
    ("B/app/s", "PutObject", "b/in/x", "", "-"),
    ("B/app/s", "GetObject", "b/in/x", "", "-"),
];

pub(crate) fn run() -> usize {
    let to_sessions = Setting { bucket: Some(TO_SESSIONS), session: Some(SESSION), ..Setting::default() };
    let both = Setting { identity: Some(IDENTITY), bucket: Some(BUCKET), ..Setting::default() };
    let granted = Setting { identity: Some(IDENTITY), granted: true, ..Setting::default() };
    decide_all(both, BOTH_SIDES)
        + decide_all(granted, GRANTED)
        + decide_all(to_sessions, BY_ITS_ARN)
        + decide_all(Setting { session: Some(SESSION), ..both }, IN_A_SESSION)
        + decide_all(
            Setting::default(),
            &[("A/ann", "GetObject", "b/x", "", "-"), ("A/", "GetObject", "b/x", "", "+own")],
        )
}
