//! Keys of identities: table byte, kind, name; the table byte alone is the row that counts changes.

use super::{IDENTITY, Range, after, range, table};
use crate::record::Damaged;

/// Changes with every change of an identity.
pub fn identity_generation() -> Vec<u8> {
    vec![IDENTITY]
}

/// The record of an account, a user, a key, ...
pub fn identity(kind: u8, name: &str) -> Vec<u8> {
    table(IDENTITY, &[&[kind], name.as_bytes()])
}

/// All records.
pub fn identities() -> Range {
    let (generation, end) = range(identity_generation());
    (after(generation), end)
}

/// The kind and the name of a record.
pub fn parse_identity(key: &[u8]) -> Result<(u8, &str), Damaged> {
    let (kind, name) = key.get(1..).and_then(<[u8]>::split_first).ok_or(Damaged("a key is too short"))?;
    Ok((*kind, std::str::from_utf8(name).map_err(|_| Damaged("a name is not UTF-8"))?))
}
