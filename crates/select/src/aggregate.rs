//! Aggregate functions (SUM, MIN, ...), computed one record at a time.
//!
//! Invariants: A1 memory does not grow with the number of records, and is at most `HELD_BYTES_MAX` for all functions
//!                together.
//!             A2 NULL and MISSING values are ignored.

use crate::ast::{AggregateFunction, Operator};
use crate::error::{Error, Kind};
use crate::evaluate::{arithmetic, number};
use crate::value::{Number, Value};

/// Maximum size of the texts that all aggregates of a statement keep (minima and maxima), in bytes.
pub const HELD_BYTES_MAX: usize = 16 << 20;

/// Adds up the sizes of the kept texts and refuses when they exceed the limit.
pub(crate) fn check_held(running: &[Running]) -> Result<(), Error> {
    let held: usize = running.iter().filter_map(|running| running.value.as_ref()).map(Value::weight).sum();
    if held <= HELD_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(Kind::RecordTooLong, "The aggregates of the statement hold more than 16 MiB of text"))
}

/// The state of one aggregate.
#[derive(Debug)]
pub(crate) struct Running {
    function: AggregateFunction,
    count: i64,
    /// The current sum, minimum or maximum.
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
        // CSV fields that parse as numbers are compared as numbers.
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
