//! A request as policies see it: who wants to do what with which resource, and in which context.
//!
//! Why: the door computes a condition key's value only when a policy uses it, so other keys cost nothing.

use std::borrow::Cow;

use crate::principal::Caller;

/// A request's value of a condition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// The key is unknown.
    Unknown,
    /// The key is known, and this request has no value for it.
    Absent,
    /// The values; one for most keys.
    Values(Vec<Cow<'a, str>>),
}

impl<'a> Lookup<'a> {
    /// One value.
    pub fn one(value: impl Into<Cow<'a, str>>) -> Lookup<'a> {
        Lookup::Values(vec![value.into()])
    }

    /// One value, or absent.
    pub fn maybe(value: Option<impl Into<Cow<'a, str>>>) -> Lookup<'a> {
        value.map_or(Lookup::Absent, Lookup::one)
    }
}

/// The condition keys of a request.
pub trait Context {
    /// The values of a condition key. The key is in lower case, except after a `/` (the name of a tag).
    fn lookup(&self, key: &str) -> Lookup<'_>;
}

/// One action of a caller on one resource.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub caller: &'a Caller<'a>,
    /// AWS's name of the action: `s3:GetObject`.
    pub action: &'a str,
    /// The ARN of the resource: `arn:aws:s3:::bucket/key`.
    pub resource: &'a str,
    pub context: &'a dyn Context,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Request({:?} {} {})", self.caller.who, self.action, self.resource)
    }
}
