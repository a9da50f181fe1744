//! Keys of queued events.

use super::escape::{escape, unescape};
use super::{EVENT, Range, range, table};
use crate::record::Damaged;

/// An event in a target's queue.
pub fn event(target: &str, number: u64) -> Vec<u8> {
    let mut row = events(target).0;
    row.extend_from_slice(&number.to_be_bytes());
    row
}

/// All events in a target's queue.
pub fn events(target: &str) -> Range {
    let mut row = table(EVENT, &[]);
    escape(target.as_bytes(), &mut row);
    range(row)
}

pub fn all_events() -> Range {
    range(vec![EVENT])
}

/// The target and the number of an event.
pub fn parse_event(key: &[u8]) -> Result<(String, u64), Damaged> {
    let (target, number) = unescape(key.get(1..).unwrap_or_default())?;
    let target = String::from_utf8(target).map_err(|_| Damaged("an event's target is not UTF-8"))?;
    let number = number.try_into().map_err(|_| Damaged("an event's key has a wrong length"))?;
    Ok((target, u64::from_be_bytes(number)))
}
