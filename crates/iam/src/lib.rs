//! Who may do what: policies in AWS's JSON and access control lists, read and decided.
//!
//! Why:        one place decides, without I/O, so that every decision can be tested as a row of a table.
//! Layout:     `document` reads a policy; `statement`, `pattern`, `principal` and
//!             `condition` match its parts; `decision` combines
//!             what several policies say; `acl` holds grants; `key` names what a condition may ask.
//! Invariants: I1 an explicit deny wins, then an allow, else nothing is allowed.  I2 what is not understood (an
//!             operator, a condition key, a variable without a value) never allows, and never lifts a deny.
//!             I3 a decision names the statement that made it.
//! Not here:   who signed a request, which action it is, where policies are kept (the S3 door, the binary).

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
