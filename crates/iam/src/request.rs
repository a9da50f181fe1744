//! What is asked: who wants to do what with which resource, and under which circumstances.
//!
//! Why: the door answers for condition keys only when a policy asks for them, so a request costs nothing else.

use std::borrow::Cow;

use crate::principal::Caller;

/// What a request has for a condition key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// Nothing here knows what the key means.
    Unknown,
    /// The key is understood, and this request has no value for it.
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

/// The circumstances of a request.
pub trait Context {
    /// The values of a condition key. The key is in lower case, but for what follows a `/` (the name of a tag).
    fn lookup(&self, key: &str) -> Lookup<'_>;
}

/// One thing that a caller wants to do.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub caller: &'a Caller<'a>,
    /// As AWS names it: `s3:GetObject`.
    pub action: &'a str,
    /// The ARN of what it is done to: `arn:aws:s3:::bucket/key`.
    pub resource: &'a str,
    pub context: &'a dyn Context,
}

impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Request({:?} {} {})", self.caller.who, self.action, self.resource)
    }
}
