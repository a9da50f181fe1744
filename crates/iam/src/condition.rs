//! One condition of a statement: an operator, a key and the values it is compared with.
//!
//! Why:        `ForAllValues:StringLikeIfExists` combines four independent properties; it is parsed into them once.
//! Layout:     `operator` parses the operator's name; `compare` has one comparison for each family of operators.
//! Invariants: C1 an unknown operator or key evaluates to `Unknown`, whatever else holds.
//!             C2 a negated operator is the exact opposite of its positive one, also for an absent key.

mod compare;
mod operator;

use serde::Deserialize;

use self::compare::Wanted;
use self::operator::{Comparison, Operator, Quantifier};
use crate::json::OneOrMany;
use crate::key::normal;
use crate::pattern::{Pattern, Syntax};
use crate::request::{Context, Lookup};
use crate::truth::Truth;

/// Values of a condition: text, numbers and booleans all become text.
pub(crate) type Values = OneOrMany<Scalar>;

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Scalar {
    Text(String),
    Boolean(bool),
    Number(serde_json::Number),
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Scalar::Text(text) => text,
            Scalar::Boolean(boolean) => boolean.to_string(),
            Scalar::Number(number) => number.to_string(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    /// `None`: an unknown operator.
    operator: Option<Operator>,
    key: String,
    wanted: Vec<Wanted>,
    /// Whether no value has a wildcard or a variable.
    fixed: bool,
}

impl Condition {
    /// The error says what is wrong. Without `strict` an unknown operator is kept as `None`.
    pub(crate) fn parse(
        operator: &str,
        key: &str,
        values: Values,
        syntax: Syntax,
        strict: bool,
    ) -> Result<Condition, String> {
        if !key.contains(':') || key.contains(['*', '?', '$']) {
            return Err(format!("{key} is no condition key"));
        }
        let key = normal(key);
        let known = Operator::parse(operator);
        if known.is_none() && strict {
            return Err(format!("there is no condition operator {operator}"));
        }
        let texts: Vec<String> = values.into_vec().into_iter().map(Scalar::into_text).collect();
        if texts.is_empty() {
            return Err(format!("the condition {operator} of {key} has no value"));
        }
        let Some(known) = known else {
            return Ok(Condition { operator: None, key, wanted: Vec::new(), fixed: false });
        };
        let wildcards = known.comparison.has_wildcards();
        let read = |text: &String| {
            let pattern = Pattern::parse(text, Syntax { wildcards, variables: syntax.variables })?;
            let wanted = Wanted::of(known.comparison, pattern);
            match strict && !wanted.is_well_formed(known.comparison) {
                true => Err(format!("{text} is no value for {operator}")),
                false => Ok(wanted),
            }
        };
        let wanted: Vec<Wanted> = texts.iter().map(read).collect::<Result<_, String>>()?;
        let fixed = wanted.iter().all(Wanted::is_fixed);
        Ok(Condition { operator: Some(known), key, wanted, fixed })
    }

    pub(crate) fn asks_for(&self, fits: &dyn Fn(&str) -> bool) -> bool {
        fits(&self.key) || self.wanted.iter().any(|wanted| wanted.asks_for(fits))
    }

    /// Whether the condition restricts the statement to fixed values of one of these keys.
    pub(crate) fn confines(&self, keys: &[&str]) -> bool {
        let confining = self.operator.is_some_and(Operator::confines);
        confining
            && self.fixed
            && keys.contains(&self.key.as_str())
            && !self.wanted.iter().any(Wanted::is_every_address)
    }

    /// Whether it holds for a request.
    pub(crate) fn holds(&self, context: &dyn Context) -> Truth {
        let Some(operator) = self.operator else { return Truth::Unknown };
        let values = match context.lookup(&self.key) {
            Lookup::Unknown => return Truth::Unknown,
            Lookup::Absent => Vec::new(),
            Lookup::Values(values) => values,
        };
        if operator.comparison == Comparison::Null {
            let absent = if values.is_empty() { "true" } else { "false" };
            return Truth::any(self.wanted.iter().map(|wanted| wanted.matches(Comparison::Bool, absent, context)));
        }
        if values.is_empty() {
            let vacuous = operator.if_exists || operator.quantifier == Quantifier::All;
            return (vacuous || (operator.negated && operator.quantifier == Quantifier::Single)).into();
        }
        let fits = |value: &str| {
            let fit = Truth::any(self.wanted.iter().map(|wanted| wanted.matches(operator.comparison, value, context)));
            if operator.negated { !fit } else { fit }
        };
        let fits = values.iter().map(|value| fits(value));
        match operator.quantifier {
            // A negated operator must hold for all values of the request, a positive one for some.
            Quantifier::Single if operator.negated => Truth::all(fits),
            Quantifier::All => Truth::all(fits),
            Quantifier::Single | Quantifier::Any => Truth::any(fits),
        }
    }
}
