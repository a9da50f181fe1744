//! Keys of sessions and leases: table byte, `s` and a number, or `l` and a name.

use super::{Range, SESSION, range, table};
use crate::ino::Ino;
use crate::record::Damaged;

/// The session of one process.
pub fn session(number: Ino) -> Vec<u8> {
    table(SESSION, &[b"s", &number.0.to_be_bytes()])
}

pub fn sessions() -> Range {
    range(table(SESSION, &[b"s"]))
}

/// Whether a row is about a process that has the volume open, or about what such a one does: it means nothing in a copy of the rows.
pub fn is_of_process(key: &[u8]) -> bool {
    key.first() == Some(&SESSION)
}

/// The number of a session.
pub fn parse_session(key: &[u8]) -> Result<Ino, Damaged> {
    let number = key.get(2..).and_then(|rest| rest.try_into().ok()).map(u64::from_be_bytes);
    number.map(Ino).ok_or(Damaged("a session's key has a wrong length"))
}

/// The lease of a job by its name.
pub fn lease(name: &str) -> Vec<u8> {
    table(SESSION, &[b"l", name.as_bytes()])
}
