//! The value of an expression, comparison of values and conversions.
//!
//! Why:        CSV fields have no type, so a text that parses as a number is one wherever a number is needed.
//! Invariants: U1 texts of the record are borrowed, never copied, until a function makes new ones.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::ast::{Literal, Type};
use crate::error::{Error, Kind};
use crate::json::Json;
use crate::timestamp::Timestamp;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'r> {
    /// The record has no such field or key.
    Missing,
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(Cow<'r, str>),
    Timestamp(Timestamp),
    /// An object or array.
    Json(&'r Json),
}

/// A number, an integer as long as possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl Number {
    pub(crate) fn float(self) -> f64 {
        match self {
            Number::Integer(number) => number as f64,
            Number::Float(number) => number,
        }
    }

    /// `None` if the text is not a number.
    pub(crate) fn parse(text: &str) -> Option<Number> {
        let text = text.trim();
        if let Ok(number) = text.parse() {
            return Some(Number::Integer(number));
        }
        // Not `inf` or `nan`, which are words here.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        text.parse::<f64>().ok().filter(|number| is_number && number.is_finite()).map(Number::Float)
    }
}

impl<'r> Value<'r> {
    pub(crate) fn of_literal(literal: &'r Literal) -> Value<'r> {
        match literal {
            Literal::Null => Value::Null,
            Literal::Missing => Value::Missing,
            Literal::Bool(truth) => Value::Bool(*truth),
            Literal::Integer(number) => Value::Integer(*number),
            Literal::Float(number) => Value::Float(*number),
            Literal::Text(text) => Value::Text(Cow::Borrowed(text)),
            Literal::Timestamp(moment) => Value::Timestamp(*moment),
        }
    }

    pub(crate) fn of_json(json: &'r Json) -> Value<'r> {
        match json {
            Json::Null => Value::Null,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Integer(number) => Value::Integer(*number),
            Json::Float(number) => Value::Float(*number),
            Json::Text(text) => Value::Text(Cow::Borrowed(text)),
            Json::Array(_) | Json::Object(_) => Value::Json(json),
        }
    }

    pub(crate) fn of_number(number: Number) -> Value<'r> {
        match number {
            Number::Integer(number) => Value::Integer(number),
            Number::Float(number) => Value::Float(number),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Value::Missing | Value::Null)
    }

    /// Number of characters and values in it.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Value::Text(text) => text.len(),
            Value::Json(json) => json.weight(),
            _ => 0,
        }
    }

    /// A value that outlives the record; an object or array becomes its text.
    pub(crate) fn into_owned(self) -> Value<'static> {
        match self {
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Value::Json(json) => Value::Text(Cow::Owned(json.to_string())),
            Value::Missing => Value::Missing,
            Value::Null => Value::Null,
            Value::Bool(truth) => Value::Bool(truth),
            Value::Integer(number) => Value::Integer(number),
            Value::Float(number) => Value::Float(number),
            Value::Timestamp(moment) => Value::Timestamp(moment),
        }
    }

    /// As text; NULL and MISSING are empty.
    pub(crate) fn into_text(self) -> Cow<'r, str> {
        match self {
            Value::Missing | Value::Null => Cow::Borrowed(""),
            Value::Bool(truth) => Cow::Borrowed(if truth { "true" } else { "false" }),
            Value::Integer(number) => Cow::Owned(number.to_string()),
            // With a point or exponent, so that it parses as a float again.
            Value::Float(number) => Cow::Owned(format!("{number:?}")),
            Value::Text(text) => text,
            Value::Timestamp(moment) => Cow::Owned(moment.to_string()),
            Value::Json(json) => Cow::Owned(json.to_string()),
        }
    }

    pub(crate) fn number(&self) -> Option<Number> {
        match self {
            Value::Integer(number) => Some(Number::Integer(*number)),
            Value::Float(number) => Some(Number::Float(*number)),
            Value::Text(text) => Number::parse(text),
            _ => None,
        }
    }

    /// Whether a condition holds; `None`: unknown.
    pub(crate) fn truth(&self) -> Result<Option<bool>, Error> {
        match self {
            Value::Missing | Value::Null => Ok(None),
            Value::Bool(truth) => Ok(Some(*truth)),
            Value::Text(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Value::Text(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Value::Integer(number) => Ok(Some(*number != 0)),
            other => Err(Error::new(Kind::InvalidArguments, format!("{} is neither true nor false", other.shown()))),
        }
    }

    pub(crate) fn from_truth(truth: Option<bool>) -> Value<'r> {
        truth.map_or(Value::Null, Value::Bool)
    }

    /// `None`: one of them is NULL or MISSING, or they cannot be compared.
    pub(crate) fn order(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Value::Text(left), Value::Text(right)) => Some(left.as_ref().cmp(right.as_ref())),
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            (Value::Bool(_), Value::Text(_)) | (Value::Text(_), Value::Bool(_)) => {
                let (left, right) = (self.truth().ok()??, other.truth().ok()??);
                Some(left.cmp(&right))
            }
            (Value::Timestamp(left), Value::Timestamp(right)) => Some(order_of_moments(left, right)),
            (Value::Timestamp(left), Value::Text(right)) => Some(order_of_moments(left, &Timestamp::parse(right)?)),
            (Value::Text(left), Value::Timestamp(right)) => Some(order_of_moments(&Timestamp::parse(left)?, right)),
            _ => match (self.number()?, other.number()?) {
                (Number::Integer(left), Number::Integer(right)) => Some(left.cmp(&right)),
                (left, right) => left.float().partial_cmp(&right.float()),
            },
        }
    }

    /// `None`: one of them is NULL or MISSING.
    pub(crate) fn equals(&self, other: &Value<'_>) -> Option<bool> {
        if self.is_nothing() || other.is_nothing() {
            return None;
        }
        if let (Value::Json(left), Value::Json(right)) = (self, other) {
            return Some(left == right);
        }
        Some(self.order(other) == Some(Ordering::Equal))
    }

    pub(crate) fn cast(self, wanted: Type) -> Result<Value<'r>, Error> {
        if self.is_nothing() {
            return Ok(self);
        }
        let failed = || {
            let name = match wanted {
                Type::Bool => "BOOL",
                Type::Float => "FLOAT",
                Type::Integer => "INT",
                Type::Text => "STRING",
                Type::Timestamp => "TIMESTAMP",
            };
            Error::new(Kind::CastFailed, format!("Attempt to convert {} to {name} failed", self.shown()))
        };
        Ok(match wanted {
            Type::Bool => Value::Bool(match (&self, self.number()) {
                (_, Some(number)) => number.float() != 0.0,
                _ => self.truth().ok().flatten().ok_or_else(failed)?,
            }),
            Type::Float => Value::Float(self.to_number().ok_or_else(failed)?.float()),
            Type::Integer => Value::Integer(self.to_number().and_then(whole).ok_or_else(failed)?),
            Type::Text => Value::Text(self.into_text()),
            Type::Timestamp => match &self {
                Value::Timestamp(moment) => Value::Timestamp(*moment),
                Value::Text(text) => Value::Timestamp(Timestamp::parse(text).ok_or_else(failed)?),
                _ => return Err(failed()),
            },
        })
    }

    fn to_number(&self) -> Option<Number> {
        match self {
            Value::Bool(truth) => Some(Number::Integer(i64::from(*truth))),
            other => other.number(),
        }
    }

    /// Shortened, for messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Value::Text(text) => format!("{:?}", text.chars().take(64).collect::<String>()),
            Value::Json(_) => "an object or array".to_owned(),
            other => other.clone().into_text().into_owned(),
        }
    }
}

fn order_of_moments(left: &Timestamp, right: &Timestamp) -> Ordering {
    if left.same_moment(right) {
        Ordering::Equal
    } else if left.is_before(right) {
        Ordering::Less
    } else {
        Ordering::Greater
    }
}

/// The integer part; `None` if it is out of range.
fn whole(number: Number) -> Option<i64> {
    match number {
        Number::Integer(number) => Some(number),
        // 2^63 itself is out of range, and i64::MAX would round to it.
        Number::Float(number) => {
            let (low, high) = (i64::MIN as f64, -(i64::MIN as f64));
            (low..high).contains(&number).then_some(number as i64)
        }
    }
}
