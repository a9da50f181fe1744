//! JSON values that keep the order of their keys, and their text.
//!
//! Why:        a record is written with its keys in the order in which they were read.
//! Invariants: J1 the parser bounds nesting (128 levels), so recursion over a value is bounded.
//! Layout:     `reader` finds records in a document.
//! Not here:   writing the result (`writer`).

pub(crate) mod reader;

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::ast::Step;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Array(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Number of members or elements.
    pub(crate) fn len(&self) -> usize {
        match self {
            Json::Array(values) => values.len(),
            Json::Object(members) => members.len(),
            Json::Null | Json::Bool(_) | Json::Integer(_) | Json::Float(_) | Json::Text(_) => 0,
        }
    }

    /// Number of characters and values in it.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Json::Text(text) => text.len(),
            Json::Array(values) => values.iter().map(|value| 1 + value.weight()).sum(),
            Json::Object(members) => members.iter().map(|(key, value)| 1 + key.len() + value.weight()).sum(),
            Json::Null | Json::Bool(_) | Json::Integer(_) | Json::Float(_) => 0,
        }
    }

    /// The value that a step leads to.
    pub(crate) fn at(&self, step: &Step) -> Option<&Json> {
        match (self, step) {
            (Json::Object(members), Step::Key { name, .. }) => {
                let exact = members.iter().find(|(key, _)| key == name);
                let found = exact.or_else(|| members.iter().find(|(key, _)| step.is_key(key)));
                found.map(|(_, value)| value)
            }
            (Json::Array(values), Step::Index(index)) => values.get(*index),
            _ => None,
        }
    }
}

impl fmt::Display for Json {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Json::Null => formatter.write_str("null"),
            Json::Bool(truth) => write!(formatter, "{truth}"),
            Json::Integer(number) => write!(formatter, "{number}"),
            Json::Float(number) => write!(formatter, "{number:?}"),
            Json::Text(text) => write_text(formatter, text),
            Json::Array(values) => {
                formatter.write_str("[")?;
                for (index, value) in values.iter().enumerate() {
                    formatter.write_str(if index > 0 { "," } else { "" })?;
                    value.fmt(formatter)?;
                }
                formatter.write_str("]")
            }
            Json::Object(members) => {
                formatter.write_str("{")?;
                for (index, (key, value)) in members.iter().enumerate() {
                    formatter.write_str(if index > 0 { "," } else { "" })?;
                    write_text(formatter, key)?;
                    formatter.write_str(":")?;
                    value.fmt(formatter)?;
                }
                formatter.write_str("}")
            }
        }
    }
}

/// Writes a quoted text.
pub(crate) fn write_text(out: &mut impl fmt::Write, text: &str) -> fmt::Result {
    out.write_str("\"")?;
    let mut rest = text;
    while let Some(at) = rest.find(|character: char| character < ' ' || character == '"' || character == '\\') {
        out.write_str(&rest[..at])?;
        match rest.as_bytes()[at] {
            b'"' => out.write_str("\\\"")?,
            b'\\' => out.write_str("\\\\")?,
            b'\n' => out.write_str("\\n")?,
            b'\r' => out.write_str("\\r")?,
            b'\t' => out.write_str("\\t")?,
            control => write!(out, "\\u{control:04x}")?,
        }
        rest = &rest[at + 1..];
    }
    out.write_str(rest)?;
    out.write_str("\"")
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        deserializer.deserialize_any(Reading)
    }
}

struct Reading;

impl<'de> Visitor<'de> for Reading {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Json, E> {
        Ok(Json::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Integer(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(i64::try_from(number).map_or(Json::Float(number as f64), Json::Integer))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Json, E> {
        if number.is_finite() { Ok(Json::Float(number)) } else { Err(E::custom("a number out of range")) }
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(Json::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Json, A::Error> {
        let mut members: Vec<(String, Json)> = Vec::new();
        while let Some(member) = entries.next_entry()? {
            if members.len() == crate::COLUMNS_MAX {
                return Err(A::Error::custom("an object has too many keys"));
            }
            members.push(member);
        }
        Ok(Json::Object(members))
    }
}
