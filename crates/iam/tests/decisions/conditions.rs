//! Every operator, with the key present, absent, with several values, and unknown.

use crate::table::{Row, Setting, decide_all};

/// The condition, and rows of (circumstances, whether an allow holds, whether a deny holds).
type Case = (&'static str, &'static [(&'static str, bool, bool)]);

const CASES: &[Case] = &[
    (
        r#""StringEquals":{"s3:prefix":["a","b"]}"#,
        &[
            ("s3:prefix=a", true, true),
            ("s3:prefix=b", true, true),
            ("s3:prefix=A", false, false),
            ("s3:prefix=a*", false, false),
            ("", false, false),
        ],
    ),
    (r#""StringEquals":{"S3:PREFIX":"a"}"#, &[("s3:prefix=a", true, true)]),
    (
        r#""StringNotEquals":{"s3:prefix":["a","b"]}"#,
        &[("s3:prefix=a", false, false), ("s3:prefix=c", true, true), ("", true, true)],
    ),
    (
        r#""StringEqualsIgnoreCase":{"s3:prefix":"Ab"}"#,
        &[("s3:prefix=aB", true, true), ("s3:prefix=abc", false, false)],
    ),
    (r#""StringNotEqualsIgnoreCase":{"s3:prefix":"Ab"}"#, &[("s3:prefix=aB", false, false), ("", true, true)]),
    (
        r#""StringLike":{"s3:prefix":["home/?/*","x"]}"#,
        &[
            ("s3:prefix=home/a/", true, true),
            ("s3:prefix=home/ab/", false, false),
            ("s3:prefix=x", true, true),
            ("", false, false),
        ],
    ),
    (
        r#""StringNotLike":{"s3:prefix":"home/*"}"#,
        &[("s3:prefix=home/a", false, false), ("s3:prefix=a", true, true), ("", true, true)],
    ),
    (
        r#""StringLike":{"s3:prefix":"${aws:username}/*"}"#,
        &[
            ("s3:prefix=ann/x;aws:username=ann", true, true),
            ("s3:prefix=bob/x;aws:username=ann", false, false),
            ("s3:prefix=bob/x;aws:username=*", false, false),
            ("s3:prefix=ann/x", false, true),
        ],
    ),
    (
        r#""StringEqualsIfExists":{"s3:prefix":"a"}"#,
        &[("s3:prefix=a", true, true), ("s3:prefix=b", false, false), ("", true, true)],
    ),
    (
        r#""NumericEquals":{"s3:max-keys":10}"#,
        &[
            ("s3:max-keys=10", true, true),
            ("s3:max-keys=10.0", true, true),
            ("s3:max-keys=11", false, false),
            ("s3:max-keys=ten", false, true),
            ("", false, false),
        ],
    ),
    (
        r#""NumericNotEquals":{"s3:max-keys":"10"}"#,
        &[("s3:max-keys=10", false, false), ("s3:max-keys=11", true, true), ("", true, true)],
    ),
    (
        r#""NumericLessThan":{"s3:max-keys":"10"}"#,
        &[("s3:max-keys=9", true, true), ("s3:max-keys=10", false, false), ("", false, false)],
    ),
    (
        r#""NumericLessThanEquals":{"s3:max-keys":"10"}"#,
        &[("s3:max-keys=10", true, true), ("s3:max-keys=10.5", false, false)],
    ),
    (
        r#""NumericGreaterThan":{"s3:max-keys":"10"}"#,
        &[("s3:max-keys=11", true, true), ("s3:max-keys=10", false, false), ("", false, false)],
    ),
    (
        r#""NumericGreaterThanEquals":{"s3:max-keys":"10"}"#,
        &[("s3:max-keys=10", true, true), ("s3:max-keys=-1", false, false)],
    ),
    (
        r#""DateLessThan":{"aws:CurrentTime":"2026-01-01T00:00:00Z"}"#,
        &[("aws:currenttime=2025-12-31T23:59:59Z", true, true), ("aws:currenttime=2026-01-01T00:00:00Z", false, false)],
    ),
    (
        r#""DateGreaterThanEquals":{"aws:EpochTime":"1700000000"}"#,
        &[("aws:epochtime=1700000000", true, true), ("aws:epochtime=1699999999", false, false)],
    ),
    (
        r#""DateEquals":{"aws:CurrentTime":"2026-01-01"}"#,
        &[
            ("aws:currenttime=2026-01-01T00:00:00Z", true, true),
            ("aws:currenttime=2026-01-01T00:00:01Z", false, false),
            ("aws:currenttime=soon", false, true),
        ],
    ),
    (
        r#""DateNotEquals":{"aws:CurrentTime":"2026-01-01"}"#,
        &[("aws:currenttime=2026-01-01T00:00:00Z", false, false), ("", true, true)],
    ),
    (
        r#""Bool":{"aws:SecureTransport":false}"#,
        &[
            ("aws:securetransport=false", true, true),
            ("aws:securetransport=true", false, false),
            ("", false, false),
            ("aws:securetransport=perhaps", false, true),
        ],
    ),
    (r#""Bool":{"aws:SecureTransport":"True"}"#, &[("aws:securetransport=true", true, true)]),
    (
        r#""BoolIfExists":{"aws:SecureTransport":"false"}"#,
        &[("", true, true), ("aws:securetransport=true", false, false)],
    ),
    (r#""BinaryEquals":{"s3:prefix":"QUJD"}"#, &[("s3:prefix=QUJD", true, true), ("s3:prefix=qujd", false, false)]),
    (
        r#""IpAddress":{"aws:SourceIp":["10.0.0.0/8","2001:db8::/32"]}"#,
        &[
            ("aws:sourceip=10.9.8.7", true, true),
            ("aws:sourceip=11.0.0.1", false, false),
            ("aws:sourceip=2001:db8::1", true, true),
            ("aws:sourceip=::ffff:10.0.0.1", true, true),
            ("aws:sourceip=here", false, true),
            ("", false, false),
        ],
    ),
    (
        r#""NotIpAddress":{"aws:SourceIp":"10.0.0.0/8"}"#,
        &[("aws:sourceip=10.9.8.7", false, false), ("aws:sourceip=11.0.0.1", true, true), ("", true, true)],
    ),
    (
        r#""ArnLike":{"aws:PrincipalArn":"arn:aws:iam::*:user/a*"}"#,
        &[
            ("aws:principalarn=arn:aws:iam::111111111111:user/ann", true, true),
            ("aws:principalarn=arn:aws:iam::111111111111:user/bob", false, false),
            ("aws:principalarn=ann", false, true),
        ],
    ),
    (
        r#""ArnNotEquals":{"aws:PrincipalArn":"arn:aws:iam::111111111111:root"}"#,
        &[("aws:principalarn=arn:aws:iam::111111111111:root", false, false), ("", true, true)],
    ),
    (
        r#""Null":{"s3:prefix":"true"}"#,
        &[("", true, true), ("s3:prefix=", false, false), ("s3:prefix=a", false, false)],
    ),
    (r#""Null":{"s3:prefix":false}"#, &[("", false, false), ("s3:prefix=a", true, true)]),
    (
        r#""ForAllValues:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}"#,
        &[
            ("s3:requestobjecttagkeys=a;s3:requestobjecttagkeys=b", true, true),
            ("s3:requestobjecttagkeys=a;s3:requestobjecttagkeys=c", false, false),
            ("", true, true),
        ],
    ),
    (
        r#""ForAnyValue:StringEquals":{"s3:RequestObjectTagKeys":["a","b"]}"#,
        &[
            ("s3:requestobjecttagkeys=c;s3:requestobjecttagkeys=b", true, true),
            ("s3:requestobjecttagkeys=c", false, false),
            ("", false, false),
        ],
    ),
    (
        r#""ForAnyValue:StringNotEquals":{"s3:RequestObjectTagKeys":"a"}"#,
        &[
            ("s3:requestobjecttagkeys=a;s3:requestobjecttagkeys=b", true, true),
            ("s3:requestobjecttagkeys=a", false, false),
            ("", false, false),
        ],
    ),
    (
        r#""ForAllValues:StringNotEquals":{"s3:RequestObjectTagKeys":"a"}"#,
        &[
            ("s3:requestobjecttagkeys=b;s3:requestobjecttagkeys=c", true, true),
            ("s3:requestobjecttagkeys=a;s3:requestobjecttagkeys=b", false, false),
            ("", true, true),
        ],
    ),
    (
        r#""ForAnyValue:StringLikeIfExists":{"s3:RequestObjectTagKeys":"a*"}"#,
        &[
            ("s3:requestobjecttagkeys=b;s3:requestobjecttagkeys=ab", true, true),
            ("s3:requestobjecttagkeys=b", false, false),
            ("", true, true),
        ],
    ),
    (
        r#""StringEquals":{"s3:ExistingObjectTag/Team":"x"}"#,
        &[
            ("s3:existingobjecttag/Team=x", true, true),
            ("s3:existingobjecttag/team=x", false, false),
            ("", false, false),
        ],
    ),
    // All keys of all operators must hold.
    (
        r#""StringEquals":{"s3:prefix":"a","s3:delimiter":"/"},"Bool":{"aws:SecureTransport":"true"}"#,
        &[
            ("s3:prefix=a;s3:delimiter=/;aws:securetransport=true", true, true),
            ("s3:prefix=a;s3:delimiter=/;aws:securetransport=false", false, false),
            ("s3:prefix=a;aws:securetransport=true", false, false),
        ],
    ),
    // Unknown conditions: an allow does not apply, and a deny does.
    (r#""StringEquals":{"aws:SourceVpce":"vpce-1"}"#, &[("", false, true)]),
    (r#""StringNotEquals":{"aws:SourceVpce":"vpce-1"}"#, &[("", false, true)]),
    (r#""StringEqualsIfExists":{"aws:SourceVpce":"vpce-1"}"#, &[("", false, true)]),
    (r#""Null":{"aws:SourceVpce":"true"}"#, &[("", false, true)]),
    (r#""StringResembles":{"s3:prefix":"a"}"#, &[("s3:prefix=a", false, true), ("", false, true)]),
    (r#""ForNoValue:StringEquals":{"s3:prefix":"a"}"#, &[("s3:prefix=a", false, true)]),
    (r#""NullIfExists":{"s3:prefix":"true"}"#, &[("", false, true)]),
    // Another condition that is false decides: the deny does not apply.
    (
        r#""StringResembles":{"s3:prefix":"a"},"StringEquals":{"s3:delimiter":"/"}"#,
        &[("s3:prefix=a;s3:delimiter=/", false, true), ("s3:prefix=a;s3:delimiter=-", false, false)],
    ),
];

pub(crate) fn run() -> usize {
    let mut rows = 0;
    for (condition, outcomes) in CASES {
        let statement = |effect: &str| {
            let text = format!(
                r#"{{"Sid":"if","Effect":"{effect}","Principal":"*","Action":"s3:*","Resource":"*","Condition":{{{condition}}}}}"#
            );
            // The table's rows live as long as the test.
            &*Box::leak(text.into_boxed_str())
        };
        let (allow, deny) = (statement("Allow"), statement("Deny"));
        for (circumstances, allows, denies) in *outcomes {
            let allowed: Row = ("anonymous", "ListBucket", "b", circumstances, if *allows { "+if" } else { "-" });
            let denied: Row = ("A/", "ListBucket", "b", circumstances, if *denies { "-if" } else { "+own" });
            rows += decide_all(Setting { bucket: Some(allow), ..Setting::default() }, &[allowed]);
            rows += decide_all(Setting { bucket: Some(deny), ..Setting::default() }, &[denied]);
        }
    }
    rows
}
