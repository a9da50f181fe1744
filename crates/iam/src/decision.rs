//! Combines all policies of a request into one decision, and names the statement that decided.
//!
//! Invariants: E1 a deny of any policy wins over everything.
//!             E2 within an account an allow of the identity's or of the bucket's policy is enough; across accounts
//!                both sides must allow.
//!             E3 a session's policy only narrows rights. The exception: what the bucket's policy in the same account
//!                allows to this very session (its ARN) is not narrowed.

use std::fmt;

use crate::document::Policy;
use crate::principal::Fit;
use crate::request::Request;
use crate::statement::Opinion;

/// All policies and grants that apply to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sources<'a> {
    /// The caller is the account itself, which may use its own resources without a policy.
    pub is_account: bool,
    /// The resource belongs to the caller's account.
    pub is_own: bool,
    /// Policies of the caller, with their names.
    pub identity: &'a [(&'a str, &'a Policy)],
    /// The policy that was passed when the session was created.
    pub session: Option<&'a Policy>,
    /// The policy of the bucket.
    pub bucket: Option<&'a Policy>,
    /// An access control list grants the request.
    pub granted: bool,
}

/// The reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason<'a> {
    /// A statement of the named policy.
    Statement { policy: &'a str, statement: &'a str },
    /// The account uses its own resource.
    Owner,
    /// A grant of an access control list.
    Grant,
    /// The caller's own policies do not allow it.
    IdentitySilent,
    /// Neither the bucket's policy nor a grant allows it to another account.
    BucketSilent,
    /// The policy of the session does not allow it.
    SessionSilent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision<'a> {
    pub allowed: bool,
    pub reason: Reason<'a>,
}

/// Name of the bucket's policy in a reason.
const BUCKET_POLICY: &str = "bucket policy";
const SESSION_POLICY: &str = "session policy";

/// Decides; see the invariants of the module.
pub fn decide<'a>(sources: &Sources<'a>, request: &Request<'_>) -> Decision<'a> {
    let deny = |reason| Decision { allowed: false, reason };
    let allow = |reason| Decision { allowed: true, reason };
    let mut identity = None;
    for (name, policy) in sources.identity {
        match policy.opinion(request) {
            Opinion::Denies(statement) => return deny(Reason::Statement { policy: name, statement }),
            Opinion::Allows(statement, _) => {
                identity.get_or_insert(Reason::Statement { policy: name, statement });
            }
            Opinion::Silent => {}
        }
    }
    let bucket = sources.bucket.map_or(Opinion::Silent, |policy| policy.opinion(request));
    if let Opinion::Denies(statement) = bucket {
        return deny(Reason::Statement { policy: BUCKET_POLICY, statement });
    }
    let by_bucket = |statement| Reason::Statement { policy: BUCKET_POLICY, statement };
    match sources.session.map(|policy| policy.opinion(request)) {
        Some(Opinion::Denies(statement)) => return deny(Reason::Statement { policy: SESSION_POLICY, statement }),
        Some(Opinion::Silent) if !(sources.is_own && matches!(bucket, Opinion::Allows(_, Fit::Session))) => {
            return deny(Reason::SessionSilent);
        }
        Some(_) | None => {}
    }
    let resource = match bucket {
        Opinion::Allows(statement, fit) => Some((by_bucket(statement), fit)),
        _ if sources.granted => Some((Reason::Grant, Fit::Account)),
        _ => None,
    };
    let anonymous = request.caller.account.is_empty();
    match (resource, identity) {
        // An anonymous caller has no policies of its own.
        (Some((reason, _)), _) if anonymous => allow(reason),
        (Some((reason, Fit::Caller | Fit::Session)), _) if sources.is_own => allow(reason),
        (Some((reason, _)), _) if sources.is_account => allow(reason),
        (_, Some(reason)) if sources.is_own => allow(reason),
        (Some(_), Some(reason)) => allow(reason),
        (None, _) if sources.is_own && sources.is_account => allow(Reason::Owner),
        (None, _) if !sources.is_own => deny(Reason::BucketSilent),
        _ => deny(Reason::IdentitySilent),
    }
}

/// Whether a role may be assumed: its trust policy (`sources.bucket`) must allow it for every caller, in addition to
/// the result of `decide`.
pub fn decide_trust<'a>(sources: &Sources<'a>, request: &Request<'_>) -> Decision<'a> {
    let decision = decide(sources, request);
    let trusted = sources.bucket.is_some_and(|trust| matches!(trust.opinion(request), Opinion::Allows(..)));
    if decision.allowed && !trusted {
        return Decision { allowed: false, reason: Reason::BucketSilent };
    }
    decision
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Statement { policy, statement } => write!(formatter, "statement {statement} of {policy}"),
            Reason::Owner => formatter.write_str("the owner's own"),
            Reason::Grant => formatter.write_str("a grant of an access control list"),
            Reason::IdentitySilent => formatter.write_str("no statement of the caller's policies allows it"),
            Reason::BucketSilent => formatter.write_str("no statement of the bucket's policy and no grant allows it"),
            Reason::SessionSilent => formatter.write_str("no statement of the session policy allows it"),
        }
    }
}
