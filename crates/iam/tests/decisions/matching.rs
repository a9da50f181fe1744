//! Actions, resources, principals, and that a deny wins.

use crate::table::{Row, Setting, decide_all};

const ACTIONS: &str = r#"
{"Sid":"read","Effect":"Allow","Action":["s3:Get*","s3:ListBucket"],"Resource":["arn:aws:s3:::b","arn:aws:s3:::b/*"]},
{"Sid":"one","Effect":"Allow","Action":"s3:PutObject","Resource":"arn:aws:s3:::b/in/?"},
{"Sid":"no","Effect":"Deny","Action":"S3:getobject","Resource":"arn:aws:s3:::b/secret/*"},
{"Effect":"Allow","Action":"s3:DeleteObject","Resource":"arn:aws:s3:::b/*/tmp"}"#;

const ACTION_ROWS: &[Row] = &[
    ("A/ann", "GetObject", "b/k", "", "+read"),
    ("A/ann", "getobject", "b/k", "", "+read"),
    ("A/ann", "GetObjectAcl", "b/k", "", "+read"),
    ("A/ann", "GetBucketAcl", "b", "", "+read"),
    ("A/ann", "GetBucketAcl", "B", "", "-"),
    ("A/ann", "GetObject", "bb/k", "", "-"),
    ("A/ann", "GetObject", "b", "", "+read"),
    ("A/ann", "GetObject", "c/k", "", "-"),
    ("A/ann", "ListBucket", "b", "", "+read"),
    ("A/ann", "ListBucketVersions", "b", "", "-"),
    ("A/ann", "PutObject", "b/in/x", "", "+one"),
    ("A/ann", "PutObject", "b/in/é", "", "+one"),
    ("A/ann", "PutObject", "b/in/", "", "-"),
    ("A/ann", "PutObject", "b/in/xy", "", "-"),
    ("A/ann", "PutObject", "b/x", "", "-"),
    ("A/ann", "GetObject", "b/secret/x", "", "-no"),
    ("A/ann", "GetObject", "b/secret/", "", "-no"),
    ("A/ann", "GetObject", "b/secret", "", "+read"),
    ("A/ann", "GetObject", "b/Secret/x", "", "+read"),
    ("A/ann", "GetObjectVersion", "b/secret/x", "", "+read"),
    ("A/ann", "DeleteObject", "b/a/b/tmp", "", "+#4"),
    ("A/ann", "DeleteObject", "b//tmp", "", "+#4"),
    ("A/ann", "DeleteObject", "b/tmp", "", "-"),
    ("A/ann", "DeleteObject", "b/a/tmp/", "", "-"),
    ("A/", "DeleteObject", "b/x", "", "+own"),
    ("anonymous", "GetObject", "b/k", "", "-"),
    ("B/bob", "GetObject", "b/k", "", "-"),
    ("B/", "GetObject", "b/k", "", "-"),
];

const INVERTED: &str = r#"
{"Sid":"notlist","Effect":"Allow","NotAction":["s3:List*","s3:Delete*"],"Resource":"*"},
{"Sid":"outside","Effect":"Deny","Action":"s3:*","NotResource":["arn:aws:s3:::mine","arn:aws:s3:::mine/*"]}"#;

const INVERTED_ROWS: &[Row] = &[
    ("A/ann", "GetObject", "mine/k", "", "+notlist"),
    ("A/ann", "PutObject", "mine/k", "", "+notlist"),
    ("A/ann", "ListBucket", "mine", "", "-"),
    ("A/ann", "DeleteObject", "mine/k", "", "-"),
    ("A/ann", "GetObject", "other/k", "", "-outside"),
    ("A/ann", "ListBucket", "other", "", "-outside"),
    ("A/ann", "GetObject", "mine2/k", "", "-outside"),
    ("A/", "GetObject", "other/k", "", "+own"),
];

const VARIABLES: &str = r#"
{"Sid":"home","Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::b/home/${aws:username}/*"},
{"Sid":"star","Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/${*}/${?}"},
{"Sid":"other","Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/from/${aws:Referer, 'nowhere'}"},
{"Sid":"locked","Effect":"Deny","Action":"s3:*","Resource":"arn:aws:s3:::b/home/*/locked/${s3:prefix}"}"#;

const VARIABLE_ROWS: &[Row] = &[
    ("A/ann", "GetObject", "b/home/ann/x", "aws:username=ann;s3:prefix=p", "+home"),
    ("A/ann", "GetObject", "b/home/bob/x", "aws:username=ann;s3:prefix=p", "-"),
    // A wildcard in a variable's value is not a wildcard.
    ("A/ann", "GetObject", "b/home/bob/x", "aws:username=*;s3:prefix=p", "-"),
    ("A/ann", "GetObject", "b/home/*/x", "aws:username=*;s3:prefix=p", "+home"),
    ("A/ann", "GetObject", "b/home//x", "s3:prefix=p", "-"),
    ("A/ann", "GetObject", "b/*/?", "aws:username=ann;s3:prefix=p", "+star"),
    ("A/ann", "GetObject", "b/a/b", "aws:username=ann;s3:prefix=p", "-"),
    ("A/ann", "GetObject", "b/from/nowhere", "s3:prefix=p", "+other"),
    ("A/ann", "GetObject", "b/from/here", "aws:referer=here;s3:prefix=p", "+other"),
    ("A/ann", "GetObject", "b/from/nowhere", "aws:referer=here;s3:prefix=p", "-"),
    ("A/ann", "GetObject", "b/home/ann/locked/p", "aws:username=ann;s3:prefix=p", "-locked"),
    ("A/ann", "GetObject", "b/home/ann/locked/q", "aws:username=ann;s3:prefix=p", "+home"),
    // The variable in the deny has no value, so the deny cannot be lifted.
    ("A/ann", "GetObject", "b/home/ann/locked/p", "aws:username=ann", "-locked"),
    // With two values it is unclear which one is meant.
    ("A/ann", "GetObject", "b/home/ann/x", "aws:username=ann;aws:username=bob;s3:prefix=p", "-"),
];

const OLD_VERSION: &str = r#"{"Version":"2008-10-17","Statement":
{"Sid":"literal","Effect":"Allow","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/${aws:username}"}}"#;

const OLD_VERSION_ROWS: &[Row] = &[
    ("A/ann", "GetObject", "b/ann", "aws:username=ann", "-"),
    ("A/ann", "GetObject", "b/${aws:username}", "aws:username=ann", "+literal"),
];

const PRINCIPALS: &str = r#"
{"Sid":"all","Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/public/*"},
{"Sid":"ann","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:user/ann"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/ann/*"},
{"Sid":"any","Effect":"Allow","Principal":{"AWS":["arn:aws:iam:::user/zoe"]},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/zoe/*"},
{"Sid":"role","Effect":"Allow","Principal":{"AWS":"arn:aws:iam::111111111111:role/app"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/app/*"},
{"Sid":"session","Effect":"Allow","Principal":{"AWS":"arn:aws:sts::111111111111:assumed-role/app/s1"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/s1/*"},
{"Sid":"account","Effect":"Allow","Principal":{"AWS":"111111111111"},"Action":"s3:GetObject","Resource":"arn:aws:s3:::b/account/*"},
{"Sid":"butbob","Effect":"Deny","NotPrincipal":{"AWS":"arn:aws:iam::222222222222:user/bob"},"Action":"s3:*","Resource":"arn:aws:s3:::b/bob/*"},
{"Sid":"service","Effect":"Allow","Principal":{"Service":"logging.s3.amazonaws.com"},"Action":"s3:PutObject","Resource":"arn:aws:s3:::b/*"}"#;

const PRINCIPAL_ROWS: &[Row] = &[
    ("anonymous", "GetObject", "b/public/x", "", "+all"),
    ("A/ann", "GetObject", "b/public/x", "", "+all"),
    ("A/", "GetObject", "b/public/x", "", "+all"),
    ("B/", "GetObject", "b/public/x", "", "+all"),
    // A user of another account also needs that account's permission.
    ("B/bob", "GetObject", "b/public/x", "", "-"),
    ("A/ann", "GetObject", "b/ann/x", "", "+ann"),
    ("A/zoe", "GetObject", "b/ann/x", "", "-"),
    ("B/ann", "GetObject", "b/ann/x", "", "-"),
    ("anonymous", "GetObject", "b/ann/x", "", "-"),
    ("A/zoe", "GetObject", "b/zoe/x", "", "+any"),
    ("A/app/s1", "GetObject", "b/app/x", "", "+role"),
    ("A/app/s2", "GetObject", "b/app/x", "", "+role"),
    ("A/other/s1", "GetObject", "b/app/x", "", "-"),
    ("A/app", "GetObject", "b/app/x", "", "-"),
    ("A/app/s1", "GetObject", "b/s1/x", "", "+session"),
    ("A/app/s2", "GetObject", "b/s1/x", "", "-"),
    // A grant to an account alone does not extend to its users.
    ("A/ann", "GetObject", "b/account/x", "", "-"),
    ("A/", "GetObject", "b/account/x", "", "+account"),
    ("anonymous", "GetObject", "b/account/x", "", "-"),
    ("A/", "GetObject", "b/bob/x", "", "-butbob"),
    ("A/ann", "GetObject", "b/bob/x", "", "-butbob"),
    ("anonymous", "GetObject", "b/bob/x", "", "-butbob"),
    ("B/bob", "GetObject", "b/bob/x", "", "-"),
    ("anonymous", "PutObject", "b/x", "", "-"),
    ("A/ann", "PutObject", "b/x", "", "-"),
];

const DENY_WINS: &str = r#"
{"Sid":"everything","Effect":"Allow","Principal":"*","Action":"*","Resource":"*"},
{"Sid":"never","Effect":"Deny","Principal":"*","Action":"s3:DeleteObject*","Resource":"*"},
{"Sid":"account","Effect":"Deny","Principal":{"AWS":"arn:aws:iam::222222222222:root"},"Action":"s3:PutObject","Resource":"*"},
{"Sid":"canonical","Effect":"Deny","Principal":{"CanonicalUser":"canonical-b"},"Action":"s3:GetObjectAcl","Resource":"*"}"#;

const DENY_ROWS: &[Row] = &[
    ("anonymous", "GetObject", "b/x", "", "+everything"),
    ("anonymous", "DeleteObject", "b/x", "", "-never"),
    ("anonymous", "DeleteObjectVersion", "b/x", "", "-never"),
    ("A/", "DeleteObject", "b/x", "", "-never"),
    ("A/ann", "DeleteObject", "b/x", "", "-never"),
    ("A/app/s", "DeleteObject", "b/x", "", "-never"),
    ("B/", "DeleteObject", "b/x", "", "-never"),
    ("B/", "PutObject", "b/x", "", "-account"),
    ("B/bob", "PutObject", "b/x", "", "-account"),
    ("B/app/s", "PutObject", "b/x", "", "-account"),
    ("A/ann", "PutObject", "b/x", "", "+everything"),
    ("B/bob", "GetObjectAcl", "b/x", "", "-canonical"),
    ("B/", "GetObjectAcl", "b/x", "", "-canonical"),
    ("A/", "GetObjectAcl", "b/x", "", "+everything"),
];

pub(crate) fn run() -> usize {
    let bucket = |policy| Setting { bucket: Some(policy), ..Setting::default() };
    let identity = |policy| Setting { identity: Some(policy), ..Setting::default() };
    let granted = Setting { granted: true, ..bucket(DENY_WINS) };
    decide_all(identity(ACTIONS), ACTION_ROWS)
        + decide_all(identity(INVERTED), INVERTED_ROWS)
        + decide_all(identity(VARIABLES), VARIABLE_ROWS)
        + decide_all(identity(OLD_VERSION), OLD_VERSION_ROWS)
        + decide_all(bucket(PRINCIPALS), PRINCIPAL_ROWS)
        + decide_all(bucket(DENY_WINS), DENY_ROWS)
        // A grant does not override a deny.
        + decide_all(granted, &[("B/", "DeleteObject", "b/x", "", "-never"), ("A/", "DeleteObject", "b/x", "", "-never")])
}
