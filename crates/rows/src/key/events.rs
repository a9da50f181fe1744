//! Keys of queued events.

use super::escape::{escape, unescape};
use super::{EVENT, EVENT_BASE, Range, range, table};
use crate::record::Damaged;

/// The number of an event: the upper half orders the events of a key, the lower one is used once in a volume. That of an
/// event from before there were two halves has 0 in the lower one.
pub type EventNumber = u128;

/// The number of these two halves.
pub fn event_number(order: u64, unique: u64) -> EventNumber {
    u128::from(order) << 64 | u128::from(unique)
}

/// The upper half.
pub fn event_order(number: EventNumber) -> u64 {
    (number >> 64) as u64
}

/// An event in a target's queue.
pub fn event(target: &str, number: EventNumber) -> Vec<u8> {
    let mut row = events(target).0;
    row.extend_from_slice(&event_order(number).to_be_bytes());
    let unique = number as u64;
    if unique != 0 {
        row.extend_from_slice(&unique.to_be_bytes());
    }
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
pub fn parse_event(key: &[u8]) -> Result<(String, EventNumber), Damaged> {
    let (target, number) = unescape(key.get(1..).unwrap_or_default())?;
    let target = String::from_utf8(target).map_err(|_| Damaged("an event's target is not UTF-8"))?;
    let (order, unique) = number.split_first_chunk::<8>().ok_or(Damaged("an event's key is too short"))?;
    let unique = match unique {
        [] => 0,
        unique => match unique.try_into().map(u64::from_be_bytes) {
            Ok(0) | Err(_) => return Err(Damaged("an event's key has a wrong end")),
            Ok(unique) => unique,
        },
    };
    Ok((target, event_number(u64::from_be_bytes(*order), unique)))
}

/// What the order of every event begins at.
pub fn event_base() -> Vec<u8> {
    vec![EVENT_BASE]
}
