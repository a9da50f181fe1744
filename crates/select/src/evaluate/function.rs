//! The SQL functions of the dialect.
//!
//! Source: the SQL reference for S3 Select: conditional, conversion, date and string functions.

use std::borrow::Cow;
use std::ops::Range;

use super::{Scope, number};
use crate::ast::{Expression, Function, Side};
use crate::error::{Error, Kind};
use crate::json::Json;
use crate::timestamp::{Part, Timestamp};
use crate::timestamp_pattern;
use crate::value::{Number, Value};

/// Maximum number of characters that TRIM removes.
const TRIMMED_CHARS_MAX: usize = 256;

/// The parser has checked the number of arguments.
pub(crate) fn call<'r>(scope: &Scope<'r>, function: Function, arguments: &'r [Expression]) -> Result<Value<'r>, Error> {
    match function {
        Function::Coalesce => return coalesce(scope, arguments),
        Function::UtcNow => return Ok(Value::Timestamp(scope.now)),
        _ => {}
    }
    let mut values = Vec::with_capacity(arguments.len());
    for argument in arguments {
        values.push(scope.evaluate(argument)?);
    }
    if function == Function::NullIf {
        let same = values[0].equals(&values[1]) == Some(true);
        return Ok(if same { Value::Null } else { values.swap_remove(0) });
    }
    // A NULL or MISSING argument gives NULL.
    if values.iter().any(Value::is_nothing) {
        return Ok(Value::Null);
    }
    let made = match function {
        Function::CharLength => Value::Integer(text(&values[0])?.chars().count() as i64),
        Function::Lower => Value::Text(Cow::Owned(text(&values[0])?.to_lowercase())),
        Function::Upper => Value::Text(Cow::Owned(text(&values[0])?.to_uppercase())),
        Function::Size => Value::Integer(size(&values[0])?),
        Function::Substring => substring(values)?,
        Function::Trim(side) => trim(scope, values, side)?,
        Function::ToTimestamp => Value::Timestamp(moment(&values[0])?),
        Function::ToText => {
            let pattern = text(&values[1])?;
            let made = timestamp_pattern::format(&moment(&values[0])?, pattern).ok_or_else(|| {
                let pattern: String = pattern.chars().take(64).collect();
                Error::new(Kind::TimestampPattern, format!("The pattern {pattern:?} has a letter that means nothing"))
            })?;
            Value::Text(Cow::Owned(made))
        }
        Function::Extract(part) => Value::Integer(moment(&values[0])?.part(part)),
        Function::DateAdd(part) => date_add(part, &values)?,
        Function::DateDiff(part) => {
            let count = moment(&values[0])?.until(&moment(&values[1])?, part);
            Value::Integer(count.ok_or_else(|| not_with(part))?)
        }
        Function::Coalesce | Function::NullIf | Function::UtcNow => Value::Null,
    };
    scope.made(made)
}

fn coalesce<'r>(scope: &Scope<'r>, arguments: &'r [Expression]) -> Result<Value<'r>, Error> {
    for argument in arguments {
        let value = scope.evaluate(argument)?;
        if !value.is_nothing() {
            return Ok(value);
        }
    }
    Ok(Value::Null)
}

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, Error> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(Error::new(Kind::InvalidArguments, format!("{} is not a text", other.shown()))),
    }
}

fn moment(value: &Value<'_>) -> Result<Timestamp, Error> {
    let found = match value {
        Value::Timestamp(moment) => Some(*moment),
        Value::Text(text) => Timestamp::parse(text),
        _ => None,
    };
    found.ok_or_else(|| Error::new(Kind::CastFailed, format!("{} is no timestamp", value.shown())))
}

fn whole(value: &Value<'_>) -> Result<i64, Error> {
    match number(value)? {
        Number::Integer(number) => Ok(number),
        Number::Float(number) => Ok(number as i64),
    }
}

fn size(value: &Value<'_>) -> Result<i64, Error> {
    match value {
        Value::Json(Json::Array(values)) => Ok(values.len() as i64),
        Value::Json(Json::Object(members)) => Ok(members.len() as i64),
        other => Err(Error::new(Kind::InvalidArguments, format!("{} has no size", other.shown()))),
    }
}

/// Characters count from 1; positions before the first exist but are empty, as SQL defines.
fn substring<'r>(mut values: Vec<Value<'r>>) -> Result<Value<'r>, Error> {
    let start = whole(&values[1])?;
    let count = values.get(2).map(whole).transpose()?;
    if count.is_some_and(|count| count < 0) {
        return Err(Error::new(Kind::InvalidArguments, "The length of a substring is negative"));
    }
    let end = count.map_or(i64::MAX, |count| start.saturating_add(count));
    let skipped = usize::try_from(start.max(1) - 1).unwrap_or(usize::MAX);
    let taken = usize::try_from(end.saturating_sub(start.max(1)).max(0)).unwrap_or(usize::MAX);
    text(&values[0])?;
    Ok(cut(values.swap_remove(0), |text| {
        let place = |text: &str, count| text.char_indices().nth(count).map_or(text.len(), |(place, _)| place);
        let from = place(text, skipped);
        from..from + place(&text[from..], taken)
    }))
}

fn trim<'r>(scope: &Scope<'r>, mut values: Vec<Value<'r>>, side: Side) -> Result<Value<'r>, Error> {
    let characters: Vec<char> = text(&values[1])?.chars().take(TRIMMED_CHARS_MAX + 1).collect();
    if characters.len() > TRIMMED_CHARS_MAX {
        let message = format!("TRIM takes at most {TRIMMED_CHARS_MAX} characters");
        return Err(Error::new(Kind::InvalidArguments, message));
    }
    let len = text(&values[0])?.len();
    let trimmed = cut(values.swap_remove(0), |text| {
        let from = if side == Side::Trailing { text } else { text.trim_start_matches(characters.as_slice()) };
        let start = text.len() - from.len();
        let kept = if side == Side::Leading { from } else { from.trim_end_matches(characters.as_slice()) };
        start..start + kept.len()
    });
    scope.worked((len - trimmed.weight()) * characters.len())?;
    Ok(trimmed)
}

/// Part of a text; a borrowed text stays borrowed.
fn cut<'r>(value: Value<'r>, part: impl FnOnce(&str) -> Range<usize>) -> Value<'r> {
    match value {
        Value::Text(Cow::Borrowed(text)) => Value::Text(Cow::Borrowed(&text[part(text)])),
        Value::Text(Cow::Owned(text)) => Value::Text(Cow::Owned(text[part(&text)].to_owned())),
        other => other,
    }
}

fn date_add<'r>(part: Part, values: &[Value<'r>]) -> Result<Value<'r>, Error> {
    if matches!(part, Part::TimezoneHour | Part::TimezoneMinute) {
        return Err(not_with(part));
    }
    let moved = moment(&values[1])?.add(part, whole(&values[0])?);
    let out_of_range = || Error::new(Kind::InvalidArguments, "A date is out of range");
    moved.map(Value::Timestamp).ok_or_else(out_of_range)
}

fn not_with(part: Part) -> Error {
    Error::new(Kind::InvalidArguments, format!("Dates have no {part:?} to count"))
}
