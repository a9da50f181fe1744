//! Writes result records as JSON.

use std::fmt::Write as _;

use crate::json::write_text;
use crate::value::Value;

/// The members of one object; a MISSING value has no key.
#[derive(Debug)]
pub(crate) struct Row<'o> {
    out: &'o mut String,
    start: usize,
    is_first: bool,
}

impl<'o> Row<'o> {
    pub(crate) fn begin(out: &'o mut String) -> Row<'o> {
        let start = out.len();
        out.push('{');
        Row { out, start, is_first: true }
    }

    /// Bytes written so far.
    pub(crate) fn len(&self) -> usize {
        self.out.len() - self.start
    }

    pub(crate) fn value(&mut self, name: &str, value: &Value<'_>) {
        if *value == Value::Missing {
            return;
        }
        if !std::mem::take(&mut self.is_first) {
            self.out.push(',');
        }
        let out = &mut *self.out;
        let written = write_text(out, name).and_then(|()| out.write_str(":")).and_then(|()| match value {
            Value::Missing | Value::Null => out.write_str("null"),
            Value::Bool(truth) => write!(out, "{truth}"),
            Value::Integer(number) => write!(out, "{number}"),
            Value::Float(number) => write!(out, "{number:?}"),
            Value::Text(text) => write_text(out, text),
            Value::Timestamp(moment) => write_text(out, &moment.to_string()),
            Value::Json(json) => write!(out, "{json}"),
        });
        written.expect("a String takes every write");
    }

    pub(crate) fn end(self, delimiter: &str) {
        self.out.push('}');
        self.out.push_str(delimiter);
    }
}
