//! Authorization: policies in AWS's JSON and access control lists, parsed and evaluated.
//!
//! Why:        decisions are made in one crate without I/O, so every decision can be tested as a row of a table.
//! Layout:     `document` parses a policy; `statement`, `pattern`, `principal` and `condition` match its parts;
//!             `decision` combines policies; `acl` holds grants, `key` the condition keys, `registry` the users.
//! Invariants: I1 an explicit deny wins, then an allow, else nothing is allowed.
//!             I2 an unknown operator, an unknown condition key or a variable without a value never allows and never
//!                lifts a deny.
//!             I3 a decision names the statement that made it.
//! Not here:   who signed a request, which action it is (the S3 door), where policies are stored (margay-accounts).

pub mod acl;
mod action;
mod condition;
mod decision;
mod document;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod json;
mod key;
mod pattern;
mod principal;
mod public;
pub mod registry;
mod request;
mod statement;
mod truth;

pub use action::is_action;
pub use decision::{Decision, Reason, Sources, decide, decide_trust};
pub use document::{Kind, POLICY_BYTES_MAX, Policy, PolicyError};
pub use key::{is_known as is_known_key, normal as normal_key};
pub use pattern::PATTERN_BYTES_MAX;
pub use principal::{Caller, Who};
pub use request::{Context, Lookup, Request};
