//! Format and evaluation of a table row.
//!
//! Layout: a row is (caller, action, resource, context, outcome). Callers: `anonymous`, `ACCOUNT/` (the account
//!         itself), `ACCOUNT/NAME` (a user), `ACCOUNT/role/SESSION`. `s3:` and `arn:aws:s3:::` are omitted. Context:
//!         `key=value` separated by `;`; a repeated key has several values. Outcome: `+STATEMENT` or `-STATEMENT`,
//!         where `+own` is the owner's right, `+grant` a grant, and `-` alone means that nothing allows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use margay_iam::{Caller, Context, Kind, Lookup, Policy, Reason, Request, Sources, Who, decide, is_known_key};

pub(crate) type Row = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// The account that owns the buckets of the tables.
pub(crate) const OWNER: &str = "111111111111";

struct Given(BTreeMap<String, Vec<String>>);

impl Context for Given {
    fn lookup(&self, key: &str) -> Lookup<'_> {
        match self.0.get(key) {
            Some(values) => Lookup::Values(values.iter().map(|value| Cow::Borrowed(value.as_str())).collect()),
            None if is_known_key(key) => Lookup::Absent,
            None => Lookup::Unknown,
        }
    }
}

fn caller(text: &'static str) -> Caller<'static> {
    let Some((account, name)) = text.split_once('/') else { return Caller::ANONYMOUS };
    let (account, canonical_id) = match account {
        "A" => (OWNER, "canonical-a"),
        "B" => ("222222222222", "canonical-b"),
        other => panic!("no account {other}"),
    };
    let who = match name.split_once('/') {
        None if name.is_empty() => Who::Account,
        None => Who::User { path: "/", name },
        Some((role, session)) => Who::Role { role, session },
    };
    Caller { who, account, canonical_id }
}

/// The policies besides the caller's own, each as JSON.
#[derive(Clone, Copy, Default)]
pub(crate) struct Setting {
    pub identity: Option<&'static str>,
    pub session: Option<&'static str>,
    pub bucket: Option<&'static str>,
    pub granted: bool,
}

/// Statements of a policy of the current version.
fn policy(kind: Kind, statements: &str) -> Policy {
    let json = match statements.starts_with('{') && statements.contains("\"Version\"") {
        true => statements.to_owned(),
        false => format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{statements}]}}"),
    };
    // Parsed as a stored policy, so that the table may use unknown operators.
    let policy = Policy::parse_stored(kind, json.as_bytes()).unwrap_or_else(|error| panic!("{error}: {json}"));
    policy.owned_by(OWNER)
}

/// Evaluates every row; returns their number.
pub(crate) fn decide_all(setting: Setting, rows: &[Row]) -> usize {
    let identity = setting.identity.map(|text| policy(Kind::Identity, text));
    let session = setting.session.map(|text| policy(Kind::Identity, text));
    let bucket = setting.bucket.map(|text| policy(Kind::Bucket, text));
    for row in rows {
        let (who, action, resource, circumstances, expected) = *row;
        let mut given: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for pair in circumstances.split(';').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap();
            given.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        let caller = caller(who);
        let own = |name: &'static str| identity.iter().map(move |policy| (name, policy)).collect::<Vec<_>>();
        let policies = own("identity");
        let sources = Sources {
            is_account: caller.who == Who::Account,
            is_own: caller.account == OWNER,
            // An anonymous caller or an account has no policies.
            identity: if matches!(caller.who, Who::Anonymous | Who::Account) { &[] } else { &policies },
            session: session.as_ref().filter(|_| matches!(caller.who, Who::Role { .. })),
            bucket: bucket.as_ref(),
            granted: setting.granted,
        };
        let (action, resource) = (format!("s3:{action}"), format!("arn:aws:s3:::{resource}"));
        let request = Request { caller: &caller, action: &action, resource: &resource, context: &Given(given) };
        let decision = decide(&sources, &request);
        let sign = if decision.allowed { '+' } else { '-' };
        let reason = match decision.reason {
            Reason::Statement { statement, .. } => statement,
            Reason::Owner => "own",
            Reason::Grant => "grant",
            Reason::IdentitySilent | Reason::BucketSilent | Reason::SessionSilent => "",
        };
        assert_eq!(format!("{sign}{reason}"), expected, "{row:?}");
    }
    rows.len()
}
