//! Evaluates an expression for one record.
//!
//! Why:        SQL's three-valued logic: a comparison with NULL is unknown.
//! Invariants: V1 a result column that others refer to is evaluated once per record.
//!             V2 for one record, functions make at most `MADE_BYTES_MAX` bytes of text and visit at most `WORK_MAX`
//!                characters and values, whatever the expression repeats.
//! Not here:   functions (`function`), state across records (`aggregate`).

mod function;

use std::cell::{Cell, RefCell};

use crate::Dialect;
use crate::ast::{Column, Condition, Expression, Operation, Operator, Step};
use crate::csv::reader::Record as Fields;
use crate::error::{Error, Kind};
use crate::json::Json;
use crate::like::Pattern;
use crate::timestamp::Timestamp;
use crate::value::{Number, Value};

/// Maximum size of the texts that functions make for one record, in bytes.
pub const MADE_BYTES_MAX: usize = 16 << 20;
/// Maximum number of characters and values visited for one record.
pub const WORK_MAX: usize = 1 << 26;

/// The input of an evaluation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Record<'r> {
    Csv(&'r Fields),
    Json(&'r Json),
    /// No record: the results of aggregates.
    Totals(&'r [Value<'static>]),
}

/// One record and the values cached for it.
#[derive(Debug)]
pub(crate) struct Scope<'r> {
    pub record: Record<'r>,
    pub dialect: Dialect,
    /// The value of `UTCNOW()`.
    pub now: Timestamp,
    columns: &'r [Column],
    known: RefCell<Vec<Option<Value<'r>>>>,
    made: Cell<usize>,
    work: Cell<usize>,
}

impl<'r> Scope<'r> {
    pub(crate) fn new(record: Record<'r>, columns: &'r [Column], dialect: Dialect, now: Timestamp) -> Scope<'r> {
        let (known, made, work) = (RefCell::new(Vec::new()), Cell::new(0), Cell::new(0));
        Scope { record, dialect, now, columns, known, made, work }
    }

    pub(crate) fn evaluate(&self, expression: &'r Expression) -> Result<Value<'r>, Error> {
        use Expression as E;
        let value = match expression {
            E::Literal(literal) => Value::of_literal(literal),
            E::Field(index) => self.field(*index)?,
            E::Member(path) => self.member(path)?,
            E::Aggregate(index) => match self.record {
                Record::Totals(totals) => totals.get(*index).cloned().unwrap_or(Value::Null),
                Record::Csv(_) | Record::Json(_) => Value::Null,
            },
            E::Alias(index) => self.column(*index)?,
            // Binding leaves no names.
            E::Name(..) => Value::Missing,
            E::Made(operation, parts) => self.operation(*operation, parts)?,
        };
        self.worked(1 + value.weight())?;
        Ok(value)
    }

    /// The parser has checked the number of parts.
    fn operation(&self, operation: Operation, parts: &'r [Expression]) -> Result<Value<'r>, Error> {
        use Operation as O;
        Ok(match operation {
            O::Not => Value::from_truth(self.truth(&parts[0])?.map(|truth| !truth)),
            O::Negate => self.negate(&parts[0])?,
            O::Binary(operator) => self.binary(operator, parts)?,
            O::All => self.logic(parts, false)?,
            O::Any => self.logic(parts, true)?,
            O::Like => self.like(parts)?,
            O::Between => {
                let value = self.evaluate(&parts[0])?;
                let above = value.order(&self.evaluate(&parts[1])?).map(std::cmp::Ordering::is_ge);
                let below = value.order(&self.evaluate(&parts[2])?).map(std::cmp::Ordering::is_le);
                match (above, below) {
                    (Some(false), _) | (_, Some(false)) => Value::Bool(false),
                    (Some(true), Some(true)) => Value::Bool(true),
                    _ => Value::Null,
                }
            }
            O::In => self.is_in(parts)?,
            O::Is(condition) => {
                let value = self.evaluate(&parts[0])?;
                Value::Bool(match condition {
                    Condition::Null => value.is_nothing(),
                    Condition::Missing => value == Value::Missing,
                    Condition::Bool(wanted) => value.truth()? == Some(wanted),
                })
            }
            O::Case => self.case(parts)?,
            O::Match => self.matched(parts)?,
            O::Cast(wanted) => {
                let value = self.evaluate(&parts[0])?;
                let is_made = !matches!(value, Value::Text(_));
                let cast = value.cast(wanted)?;
                if is_made { self.made(cast)? } else { cast }
            }
            O::Call(function) => function::call(self, function, parts)?,
        })
    }

    /// Whether a condition holds; `None`: unknown.
    pub(crate) fn truth(&self, expression: &'r Expression) -> Result<Option<bool>, Error> {
        self.evaluate(expression)?.truth()
    }

    /// The value of a result column.
    pub(crate) fn column(&self, index: usize) -> Result<Value<'r>, Error> {
        if let Some(Some(known)) = self.known.borrow().get(index) {
            return self.made(known.clone());
        }
        let value = self.evaluate(&self.columns[index].expression)?;
        let mut known = self.known.borrow_mut();
        known.resize(self.columns.len(), None);
        known[index] = Some(value.clone());
        drop(known);
        self.made(value)
    }

    /// Counts the bytes of a text made for the record.
    pub(crate) fn made(&self, value: Value<'r>) -> Result<Value<'r>, Error> {
        if let Value::Text(std::borrow::Cow::Owned(text)) = &value {
            self.made.set(self.made.get() + text.len());
            if self.made.get() > MADE_BYTES_MAX {
                let message = "The functions of the expression make more than 16 MiB of text of one record";
                return Err(Error::new(Kind::RecordTooLong, message));
            }
        }
        Ok(value)
    }

    /// Counts characters and values visited for the record.
    pub(crate) fn worked(&self, count: usize) -> Result<(), Error> {
        self.work.set(self.work.get().saturating_add(count));
        if self.work.get() <= WORK_MAX {
            return Ok(());
        }
        Err(Error::new(
            Kind::RecordTooLong,
            "The expression looks at more than 64 Mi characters and values of one record",
        ))
    }

    /// Characters and values visited so far.
    pub(crate) fn work(&self) -> usize {
        self.work.get()
    }

    fn member(&self, path: &[Step]) -> Result<Value<'r>, Error> {
        let Record::Json(json) = self.record else { return Ok(Value::Missing) };
        let mut found = json;
        for step in path {
            self.worked(found.len())?;
            match found.at(step) {
                Some(next) => found = next,
                None => return Ok(Value::Missing),
            }
        }
        Ok(Value::of_json(found))
    }

    fn field(&self, index: usize) -> Result<Value<'r>, Error> {
        let Record::Csv(fields) = self.record else { return Ok(Value::Missing) };
        Ok(match fields.field(index)? {
            Some("") | None if self.dialect == Dialect::Ceph => Value::Null,
            None => Value::Missing,
            Some(text) => Value::Text(text.into()),
        })
    }

    fn negate(&self, part: &'r Expression) -> Result<Value<'r>, Error> {
        let value = self.evaluate(part)?;
        if value.is_nothing() {
            return Ok(Value::Null);
        }
        Ok(match number(&value)? {
            Number::Integer(number) => Value::Integer(number.checked_neg().ok_or_else(overflow)?),
            Number::Float(number) => Value::Float(-number),
        })
    }

    /// `decisive`: the value that decides the whole, as true does in an `OR`.
    fn logic(&self, parts: &'r [Expression], decisive: bool) -> Result<Value<'r>, Error> {
        let mut unknown = false;
        for part in parts {
            match self.truth(part)? {
                Some(truth) if truth == decisive => return Ok(Value::Bool(decisive)),
                Some(_) => {}
                None => unknown = true,
            }
        }
        Ok(if unknown { Value::Null } else { Value::Bool(!decisive) })
    }

    fn binary(&self, operator: Operator, parts: &'r [Expression]) -> Result<Value<'r>, Error> {
        use Operator as O;
        let (left, right) = (self.evaluate(&parts[0])?, self.evaluate(&parts[1])?);
        let ordered = |holds: fn(std::cmp::Ordering) -> bool| Ok(Value::from_truth(left.order(&right).map(holds)));
        match operator {
            O::Equal => Ok(Value::from_truth(left.equals(&right))),
            O::NotEqual => Ok(Value::from_truth(left.equals(&right).map(|equal| !equal))),
            O::Less => ordered(std::cmp::Ordering::is_lt),
            O::LessOrEqual => ordered(std::cmp::Ordering::is_le),
            O::Greater => ordered(std::cmp::Ordering::is_gt),
            O::GreaterOrEqual => ordered(std::cmp::Ordering::is_ge),
            _ if left.is_nothing() || right.is_nothing() => Ok(Value::Null),
            O::Concatenate => {
                let mut text = left.into_text().into_owned();
                text.push_str(&right.into_text());
                self.made(Value::Text(text.into()))
            }
            O::Add | O::Subtract | O::Multiply | O::Divide | O::Modulo | O::Power => {
                arithmetic(operator, number(&left)?, number(&right)?).map(Value::of_number)
            }
        }
    }

    fn like(&self, parts: &'r [Expression]) -> Result<Value<'r>, Error> {
        let (text, pattern) = (self.evaluate(&parts[0])?, self.evaluate(&parts[1])?);
        let escape = parts.get(2).map(|part| self.evaluate(part)).transpose()?;
        if text.is_nothing() || pattern.is_nothing() {
            return Ok(Value::Null);
        }
        let (Value::Text(text), Value::Text(pattern)) = (text, pattern) else {
            return Err(Error::new(Kind::InvalidArguments, "LIKE compares texts"));
        };
        let escape = match escape {
            None => None,
            Some(escape) => {
                let escape = escape.into_text();
                let mut characters = escape.chars();
                match (characters.next(), characters.next()) {
                    (Some(character), None) => Some(character),
                    _ => return Err(Error::new(Kind::InvalidArguments, "The escape of LIKE is one character")),
                }
            }
        };
        let pattern = Pattern::new(&pattern, escape, self.dialect == Dialect::Ceph)?;
        let (matches, looked_at) = pattern.matches(&text, WORK_MAX);
        self.worked(looked_at)?;
        Ok(Value::Bool(matches))
    }

    fn is_in(&self, parts: &'r [Expression]) -> Result<Value<'r>, Error> {
        let value = self.evaluate(&parts[0])?;
        let mut unknown = false;
        for part in &parts[1..] {
            match value.equals(&self.evaluate(part)?) {
                Some(true) => return Ok(Value::Bool(true)),
                Some(false) => {}
                None => unknown = true,
            }
        }
        Ok(if unknown { Value::Null } else { Value::Bool(false) })
    }

    fn case(&self, parts: &'r [Expression]) -> Result<Value<'r>, Error> {
        let (arms, rest) = parts.as_chunks::<2>();
        for [condition, result] in arms {
            if self.truth(condition)? == Some(true) {
                return self.evaluate(result);
            }
        }
        rest.first().map_or(Ok(Value::Null), |otherwise| self.evaluate(otherwise))
    }

    fn matched(&self, parts: &'r [Expression]) -> Result<Value<'r>, Error> {
        let value = self.evaluate(&parts[0])?;
        let (arms, rest) = parts[1..].as_chunks::<2>();
        for [wanted, result] in arms {
            if value.equals(&self.evaluate(wanted)?) == Some(true) {
                return self.evaluate(result);
            }
        }
        rest.first().map_or(Ok(Value::Null), |otherwise| self.evaluate(otherwise))
    }
}

fn overflow() -> Error {
    Error::new(Kind::IntegerOverflow, "Integer overflow or underflow in the expression")
}

/// The operand as a number.
pub(crate) fn number(value: &Value<'_>) -> Result<Number, Error> {
    let found = value.number();
    found.ok_or_else(|| Error::new(Kind::CastFailed, format!("{} is not a number", value.shown())))
}

pub(crate) fn arithmetic(operator: Operator, left: Number, right: Number) -> Result<Number, Error> {
    use Operator as O;
    let by_zero = || Error::new(Kind::InvalidArguments, "Division by zero");
    if let (Number::Integer(left), Number::Integer(right)) = (left, right)
        && operator != O::Power
    {
        let result = match operator {
            O::Add => left.checked_add(right),
            O::Subtract => left.checked_sub(right),
            O::Multiply => left.checked_mul(right),
            O::Divide | O::Modulo if right == 0 => return Err(by_zero()),
            O::Divide => left.checked_div(right),
            O::Modulo => left.checked_rem(right),
            _ => None,
        };
        return result.map(Number::Integer).ok_or_else(overflow);
    }
    let (left, right) = (left.float(), right.float());
    let result = match operator {
        O::Add => left + right,
        O::Subtract => left - right,
        O::Multiply => left * right,
        O::Divide | O::Modulo if right == 0.0 => return Err(by_zero()),
        O::Divide => left / right,
        O::Modulo => left % right,
        _ => left.powf(right),
    };
    // Neither CSV nor JSON can represent infinities or NaN.
    let not_finite = || Error::new(Kind::InvalidArguments, "The result of a calculation is no finite number");
    if result.is_finite() { Ok(Number::Float(result)) } else { Err(not_finite()) }
}
