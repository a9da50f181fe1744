//! Parses a policy from AWS's JSON.
//!
//! Why:        a new policy is refused with the reason if anything in it is wrong; a stored one is parsed again without
//!             trust.
//! Invariants: D1 a duplicate or unknown element or key is refused.
//!             D2 a policy of a bucket or a role names principals, one of an identity never does.
//! Not here:   whether a bucket's policy names that bucket (the door).

use serde::Deserialize;

use crate::action::is_action_pattern;
use crate::condition::{Condition, Values};
use crate::json::{OneOrMany, UniqueMap};
use crate::pattern::{Pattern, Syntax};
use crate::principal::{PrincipalJson, Principals};
use crate::request::Request;
use crate::statement::{Listed, Opinion, Statement, opinion};

/// Maximum size of a policy, in bytes of JSON.
pub const POLICY_BYTES_MAX: usize = 20 * 1024;

/// What a policy is attached to, which decides the elements that it may and must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A user, group, role or session: says what it may do.
    Identity,
    /// A bucket: says who may do what with it.
    Bucket,
    /// A role: says who may assume it.
    Trust,
}

/// Why a policy is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the policy is longer than {POLICY_BYTES_MAX} bytes")]
    TooLong,
    /// Not JSON, or an element that is not allowed there.
    #[error("the policy is not in the form of a policy: {0}")]
    Form(String),
    #[error("Version must be 2012-10-17 or 2008-10-17")]
    Version,
    #[error("statement {statement}: {reason}")]
    Statement { statement: String, reason: String },
}

/// A parsed policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) statements: Vec<Statement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct PolicyJson {
    version: Option<String>,
    #[serde(rename = "Id")]
    _id: Option<String>,
    statement: OneOrMany<StatementJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", deny_unknown_fields)]
struct StatementJson {
    sid: Option<String>,
    effect: String,
    principal: Option<PrincipalJson>,
    not_principal: Option<PrincipalJson>,
    action: Option<OneOrMany<String>>,
    not_action: Option<OneOrMany<String>>,
    resource: Option<OneOrMany<String>>,
    not_resource: Option<OneOrMany<String>>,
    condition: Option<UniqueMap<UniqueMap<Values>>>,
}

impl Policy {
    /// Parses a policy that a caller wants to set: anything unknown is refused.
    pub fn parse(kind: Kind, json: &[u8]) -> Result<Policy, PolicyError> {
        Policy::read(kind, json, true)
    }

    /// Parses a stored policy, which a later version of this program may have written: an unknown operator becomes a
    /// condition that never allows and never lifts a deny.
    pub fn parse_stored(kind: Kind, json: &[u8]) -> Result<Policy, PolicyError> {
        Policy::read(kind, json, false)
    }

    fn read(kind: Kind, json: &[u8], strict: bool) -> Result<Policy, PolicyError> {
        if json.len() > POLICY_BYTES_MAX {
            return Err(PolicyError::TooLong);
        }
        let policy: PolicyJson = serde_json::from_slice(json).map_err(|error| PolicyError::Form(error.to_string()))?;
        let variables = match policy.version.as_deref() {
            Some("2012-10-17") => true,
            None | Some("2008-10-17") => false,
            Some(_) => return Err(PolicyError::Version),
        };
        let statements = policy.statement.into_vec();
        if statements.is_empty() {
            return Err(PolicyError::Form("there is no statement".to_owned()));
        }
        let mut sids: Vec<&str> =
            statements.iter().filter_map(|statement| statement.sid.as_deref()).filter(|sid| !sid.is_empty()).collect();
        sids.sort_unstable();
        if strict && let Some(pair) = sids.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PolicyError::Form(format!("several statements have the Sid {}", pair[0])));
        }
        let read = |(index, statement): (usize, StatementJson)| {
            let name = statement.sid.clone().filter(|sid| !sid.is_empty()).unwrap_or_else(|| format!("#{}", index + 1));
            let fail = |reason| PolicyError::Statement { statement: name.clone(), reason };
            read_statement(statement, name.clone(), kind, Form { variables, strict }).map_err(fail)
        };
        Ok(Policy { statements: statements.into_iter().enumerate().map(read).collect::<Result<_, _>>()? })
    }

    /// Puts the account that owns the policy into principals without an account.
    #[must_use]
    pub fn owned_by(mut self, account: &str) -> Policy {
        for statement in &mut self.statements {
            if let Some(Listed::These(principals) | Listed::AllBut(principals)) = &mut statement.principals {
                principals.owned_by(account);
            }
        }
        self
    }

    /// The result of this policy alone.
    pub(crate) fn opinion(&self, request: &Request<'_>) -> Opinion<'_> {
        opinion(&self.statements, request)
    }

    /// Whether any condition or variable uses a condition key with this prefix (in lower case).
    pub fn asks_for(&self, beginning: &str) -> bool {
        let fits = |key: &str| key.starts_with(beginning);
        self.statements.iter().any(|statement| {
            let resources = match &statement.resources {
                Some(Listed::These(patterns) | Listed::AllBut(patterns)) => patterns.as_slice(),
                None => &[],
            };
            statement.conditions.iter().any(|condition| condition.asks_for(&fits))
                || resources.iter().any(|pattern| pattern.asks_for(&fits))
        })
    }
}

#[derive(Clone, Copy)]
struct Form {
    variables: bool,
    strict: bool,
}

fn read_statement(json: StatementJson, name: String, kind: Kind, form: Form) -> Result<Statement, String> {
    let allows = match json.effect.as_str() {
        "Allow" => true,
        "Deny" => false,
        _ => return Err("Effect must be Allow or Deny".to_owned()),
    };
    let principals = Listed::read(json.principal, json.not_principal, |json| Ok(Principals::parse(json)?))?;
    match (kind, &principals) {
        (Kind::Identity, Some(_)) => return Err("a policy of an identity has no Principal".to_owned()),
        (Kind::Bucket | Kind::Trust, None) => return Err("Principal is missing".to_owned()),
        _ => {}
    }
    let actions = Listed::read(json.action, json.not_action, |names| read_actions(names, form))?;
    let actions = actions.ok_or("Action is missing")?;
    let resources = Listed::read(json.resource, json.not_resource, |names| read_resources(names, kind, form))?;
    match (kind, &resources) {
        (Kind::Trust, Some(_)) => return Err("a trust policy has no Resource".to_owned()),
        (Kind::Identity | Kind::Bucket, None) => return Err("Resource is missing".to_owned()),
        _ => {}
    }
    let syntax = Syntax { wildcards: false, variables: form.variables };
    let mut conditions = Vec::new();
    for (operator, keys) in json.condition.into_iter().flat_map(|operators| operators.0) {
        for (key, values) in keys.0 {
            conditions.push(Condition::parse(&operator, &key, values, syntax, form.strict)?);
        }
    }
    Ok(Statement { name, allows, principals, actions, resources, conditions })
}

fn read_actions(names: OneOrMany<String>, form: Form) -> Result<Vec<Pattern>, String> {
    let names = names.into_vec();
    if names.is_empty() {
        return Err("Action is empty".to_owned());
    }
    let read = |name: String| {
        if form.strict && !is_action_pattern(&name) {
            return Err(format!("there is no action {name}"));
        }
        Ok(Pattern::parse(&name, Syntax { wildcards: true, variables: false })?)
    };
    names.into_iter().map(read).collect()
}

fn read_resources(names: OneOrMany<String>, kind: Kind, form: Form) -> Result<Vec<Pattern>, String> {
    let names = names.into_vec();
    if names.is_empty() {
        return Err("Resource is empty".to_owned());
    }
    let read = |name: String| {
        let s3 = name.starts_with("arn:aws:s3:");
        let fits = name == "*" || s3 || (kind == Kind::Identity && name.starts_with("arn:aws:"));
        if form.strict && !fits {
            return Err(format!("the resource {name} is no ARN like arn:aws:s3:::bucket or arn:aws:s3:::bucket/key"));
        }
        Ok(Pattern::parse(&name, Syntax { wildcards: true, variables: form.variables })?)
    };
    names.into_iter().map(read).collect()
}
