//! The policy of a form: its expiry, and conditions on the fields and the file.
//!
//! Invariants: P1 a field without a condition is refused, and so is an unknown condition.
//! Not here:   bucket policies, the policy's signature (`auth`).

use margay_env::Timestamp;
use serde_json::Value;

use super::{Form, FormError};

/// A policy document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyDocument {
    expires: Timestamp,
    conditions: Vec<Condition>,
    size_min: u64,
    size_max: u64,
}

/// A condition on a field, with the field's name in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Equals(String, String),
    StartsWith(String, String),
}

fn bad(reason: impl Into<String>) -> FormError {
    FormError::BadPolicy(reason.into())
}

impl PolicyDocument {
    /// Decodes the form field `policy`, which is Base64.
    pub(crate) fn decode(base64: &str) -> Result<PolicyDocument, FormError> {
        use base64::Engine as _;
        let stripped: String = base64.split_ascii_whitespace().collect();
        let bytes = base64::engine::general_purpose::STANDARD.decode(stripped);
        PolicyDocument::parse(&bytes.map_err(|_| bad("it is not Base64."))?)
    }

    pub(crate) fn parse(json: &[u8]) -> Result<PolicyDocument, FormError> {
        let Ok(Value::Object(members)) = serde_json::from_slice(json) else { return Err(bad("Invalid JSON.")) };
        if let Some(name) = members.keys().find(|name| !["expiration", "conditions"].contains(&name.as_str())) {
            return Err(bad(format!("Unexpected: '{name}'")));
        }
        let expiration = members.get("expiration").and_then(Value::as_str).ok_or(bad("Policy missing expiration."))?;
        let Some(Value::Array(listed)) = members.get("conditions") else {
            return Err(bad("Policy missing conditions."));
        };
        let mut document = PolicyDocument {
            expires: expires(expiration).ok_or_else(|| bad(format!("Invalid 'expiration' value: '{expiration}'")))?,
            conditions: Vec::with_capacity(listed.len()),
            size_min: 0,
            size_max: u64::MAX,
        };
        for condition in listed {
            match condition {
                Value::Object(pairs) => document.add_simple(pairs)?,
                Value::Array(words) => document.add(words)?,
                _ => return Err(bad("a condition is neither an object nor a list.")),
            }
        }
        Ok(document)
    }

    fn add_simple(&mut self, pairs: &serde_json::Map<String, Value>) -> Result<(), FormError> {
        let mut pairs = pairs.iter();
        match (pairs.next(), pairs.next()) {
            (Some((name, Value::String(value))), None) => {
                self.conditions.push(Condition::Equals(name.to_lowercase(), value.clone()));
                Ok(())
            }
            _ => Err(bad("Invalid Simple-Condition: it must have exactly one property, and its value must be a text.")),
        }
    }

    fn add(&mut self, words: &[Value]) -> Result<(), FormError> {
        let [Value::String(operator), first, second] = words else {
            return Err(bad("a condition must have an operator and two arguments."));
        };
        let operator = operator.to_ascii_lowercase();
        if operator == "content-length-range" {
            let (Some(min), Some(max)) = (number(first), number(second)) else {
                return Err(bad("content-length-range takes two whole numbers."));
            };
            self.size_min = self.size_min.max(min);
            self.size_max = self.size_max.min(max);
            return Ok(());
        }
        let (Value::String(name), Value::String(value)) = (first, second) else {
            return Err(bad("the arguments of a condition must be texts."));
        };
        let name =
            name.strip_prefix('$').ok_or_else(|| bad("a field's name begins with $ in a condition."))?.to_lowercase();
        self.conditions.push(match operator.as_str() {
            "eq" => Condition::Equals(name, value.clone()),
            "starts-with" => Condition::StartsWith(name, value.clone()),
            _ => return Err(bad(format!("there is no operator '{operator}'."))),
        });
        Ok(())
    }

    /// Whether the policy allows the form for this bucket now.
    pub(crate) fn check(&self, form: &Form, bucket: &str, now: Timestamp) -> Result<(), FormError> {
        if now >= self.expires {
            return Err(FormError::AgainstPolicy("Policy expired.".to_owned()));
        }
        // The bucket comes from the URL, not from the form.
        let value = |name: &str| if name == "bucket" { bucket } else { form.get(name).unwrap_or_default() };
        for condition in &self.conditions {
            if !condition.holds(&value) {
                return Err(FormError::AgainstPolicy(format!("Policy Condition failed: {condition}")));
            }
        }
        let named = |name: &str| self.conditions.iter().any(|condition| condition.name() == name);
        let stray = form.covered().map(|(name, _)| name).chain(["bucket"]).find(|name| !named(name));
        match stray {
            Some(name) => Err(FormError::AgainstPolicy(format!("Extra input fields: {name}"))),
            None => Ok(()),
        }
    }

    /// Minimum and maximum size of the file, in bytes.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.size_min, self.size_max)
    }
}

impl Condition {
    fn name(&self) -> &str {
        match self {
            Condition::Equals(name, _) | Condition::StartsWith(name, _) => name,
        }
    }

    fn holds<'f>(&self, value: &impl Fn(&str) -> &'f str) -> bool {
        match self {
            Condition::Equals(name, wanted) => value(name) == wanted,
            // Every type in a list must satisfy the condition.
            Condition::StartsWith(name, prefix) if name == "content-type" => {
                value(name).split(',').all(|one| one.trim_start().starts_with(prefix.as_str()))
            }
            Condition::StartsWith(name, prefix) => value(name).starts_with(prefix.as_str()),
        }
    }
}

impl std::fmt::Display for Condition {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (operator, name, value) = match self {
            Condition::Equals(name, value) => ("eq", name, value),
            Condition::StartsWith(name, value) => ("starts-with", name, value),
        };
        write!(formatter, "[\"{operator}\", \"${name}\", \"{value}\"]")
    }
}

/// Parses a time such as `2007-12-01T12:00:00.000Z`.
fn expires(text: &str) -> Option<Timestamp> {
    if text.as_bytes().get(10) != Some(&b'T') || !text.ends_with('Z') {
        return None;
    }
    let moment: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp(i64::try_from(moment.as_nanosecond()).ok()?))
}

/// Some clients write numbers as strings.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}
