//! Functions over all records, one record at a time.
//!
//! Invariants: what is held does not grow with the number of records, and is at most `HELD_BYTES_MAX` for all functions
//!             together; nothing (NULL, MISSING) counts for nothing.

use crate::ast::{AggregateFunction, Operator};
use crate::error::{Error, Kind};
use crate::evaluate::{arithmetic, number};
use crate::value::{Number, Value};

/// Most bytes of texts that the functions of a statement hold: smallest and largest ones.
pub const HELD_BYTES_MAX: usize = 16 << 20;

/// Adds up what the functions hold, which must not be too much.
pub(crate) fn check_held(running: &[Running]) -> Result<(), Error> {
    let held: usize = running.iter().filter_map(|running| running.value.as_ref()).map(Value::weight).sum();
    if held <= HELD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(Kind::RecordTooLong, "The aggregates of the statement hold more than 16 MiB of text"))
}

/// What was seen so far.
#[derive(Debug)]
pub(crate) struct Running {
    function: AggregateFunction,
    count: i64,
    /// The sum, the smallest or the largest one.
    value: Option<Value<'static>>,
}

impl Running {
    pub(crate) fn new(function: AggregateFunction) -> Running {
        Running { function, count: 0, value: None }
    }

    pub(crate) fn add(&mut self, value: Value<'_>) -> Result<(), Error> {
        let overflow = || Error::new(Kind::IntegerOverflow, "There are too many records to count");
        if value.is_nothing() {
            return Ok(());
        }
        self.count = self.count.checked_add(1).ok_or_else(overflow)?;
        match self.function {
            AggregateFunction::Count => {}
            AggregateFunction::Sum | AggregateFunction::Avg => {
                let added = match self.value.as_ref().and_then(Value::number) {
                    None => number(&value)?,
                    Some(sum) => arithmetic(Operator::Add, sum, number(&value)?)?,
                };
                self.value = Some(Value::of_number(added));
            }
            AggregateFunction::Max | AggregateFunction::Min => self.choose(value),
        }
        Ok(())
    }

    fn choose(&mut self, value: Value<'_>) {
        // Fields of CSV that read as numbers are compared as such.
        let value = value.number().map_or(value, Value::of_number);
        let wanted = match self.function {
            AggregateFunction::Max => std::cmp::Ordering::Greater,
            _ => std::cmp::Ordering::Less,
        };
        if self.value.as_ref().is_none_or(|best| value.order(best) == Some(wanted)) {
            self.value = Some(value.into_owned());
        }
    }

    pub(crate) fn total(self) -> Value<'static> {
        match (self.function, self.value) {
            (AggregateFunction::Count, _) => Value::Integer(self.count),
            (AggregateFunction::Avg, Some(sum)) => {
                let sum = sum.number().map_or(f64::NAN, Number::float);
                Value::Float(sum / self.count as f64)
            }
            (_, value) => value.unwrap_or(Value::Null),
        }
    }
}
