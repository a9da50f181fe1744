//! One statement of a policy, and the combined result of all statements of a policy.
//!
//! Invariants: S1 an unknown condition makes a deny apply and an allow not apply.
//! Not here:   parsing (`document`), several policies together (`decision`).

use crate::condition::Condition;
use crate::pattern::{Case, Pattern};
use crate::principal::{Fit, Principals};
use crate::request::Request;
use crate::truth::Truth;

/// A list, or everything except a list (`NotAction` and the like).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listed<T> {
    These(T),
    AllBut(T),
}

impl<T> Listed<T> {
    pub(crate) fn read<J>(
        these: Option<J>,
        but: Option<J>,
        read: impl FnOnce(J) -> Result<T, String>,
    ) -> Result<Option<Listed<T>>, String> {
        match (these, but) {
            (Some(_), Some(_)) => Err("an element and its Not... form exclude each other".to_owned()),
            (Some(these), None) => Ok(Some(Listed::These(read(these)?))),
            (None, Some(but)) => Ok(Some(Listed::AllBut(read(but)?))),
            (None, None) => Ok(None),
        }
    }
}

/// One statement of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Its Sid, or `#` and its position, counted from 1.
    pub name: String,
    pub allows: bool,
    /// `None` in the policy of an identity: it applies to whom it is attached to.
    pub principals: Option<Listed<Principals>>,
    pub actions: Listed<Vec<Pattern>>,
    pub resources: Option<Listed<Vec<Pattern>>>,
    pub conditions: Vec<Condition>,
}

impl Statement {
    /// Whether it applies to this request, and how exactly it names the caller.
    fn applies(&self, request: &Request<'_>) -> (Truth, Fit) {
        let fit = match &self.principals {
            None => Fit::Caller,
            Some(Listed::These(principals)) => principals.fit(request.caller),
            Some(Listed::AllBut(principals)) => match principals.fit(request.caller) {
                Fit::No => Fit::Caller,
                Fit::Account | Fit::Caller | Fit::Session => Fit::No,
            },
        };
        if fit == Fit::No {
            return (Truth::No, fit);
        }
        let actions = listed(&self.actions, |pattern| pattern.matches(request.action, Case::Ignored, request.context));
        if actions == Truth::No {
            return (Truth::No, fit);
        }
        let resources = self.resources.as_ref().map_or(Truth::Yes, |resources| {
            listed(resources, |pattern| pattern.matches(request.resource, Case::Exact, request.context))
        });
        if resources == Truth::No {
            return (Truth::No, fit);
        }
        let conditions = Truth::all(self.conditions.iter().map(|condition| condition.holds(request.context)));
        (actions.and(resources).and(conditions), fit)
    }
}

fn listed(listed: &Listed<Vec<Pattern>>, matches: impl Fn(&Pattern) -> Truth) -> Truth {
    match listed {
        Listed::These(patterns) => Truth::any(patterns.iter().map(matches)),
        Listed::AllBut(patterns) => !Truth::any(patterns.iter().map(matches)),
    }
}

/// The result of one policy for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opinion<'p> {
    Denies(&'p str),
    /// The statement that names the caller most exactly.
    Allows(&'p str, Fit),
    Silent,
}

/// An unknown condition makes a deny apply and an allow not apply.
pub(crate) fn opinion<'p>(statements: &'p [Statement], request: &Request<'_>) -> Opinion<'p> {
    let mut opinion = Opinion::Silent;
    for statement in statements {
        let (truth, fit) = statement.applies(request);
        match (statement.allows, truth) {
            (false, Truth::Yes | Truth::Unknown) => return Opinion::Denies(&statement.name),
            (true, Truth::Yes) if !matches!(opinion, Opinion::Allows(_, earlier) if earlier >= fit) => {
                opinion = Opinion::Allows(&statement.name, fit);
            }
            _ => {}
        }
    }
    opinion
}
