//! Cross-origin requests: a bucket's rules, what browsers ask before a request, and what answers tell them.
//!
//! Why:        a browser hands an answer to a page of another origin only when the answer says so; the rules of
//!             the bucket decide.
//! Invariants: a rule is found as AWS finds it: the first whose origin, method and headers all fit.
//! Not here:   who may do what: an answer that a browser may see can still be a refusal (auth).

mod answer;
mod rules;

pub(crate) use self::answer::{decorate, preflight};
pub(crate) use self::rules::Rules;
