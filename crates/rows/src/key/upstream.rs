//! Keys of what a bucket of another store has of a volume: table byte, a kind, and a number.

use super::{Range, UPSTREAM, range, table};
use crate::ino::Ino;
use crate::record::Damaged;

/// The object that a file or the marker that a directory has in the bucket.
const OBJECT: &[u8] = b"o";
/// A file or directory of which the bucket does not have the local state.
const DIRTY: &[u8] = b"d";
/// A directory whose entries were not listed yet.
const UNLISTED: &[u8] = b"u";
/// Which file an object belongs to, by the number of its bytes.
const BYTES: &[u8] = b"b";
/// The volume belongs to a bucket, and its root was marked as not listed.
const BEGUN: &[u8] = b"g";

fn numbered(kind: &[u8], number: u64) -> Vec<u8> {
    table(UPSTREAM, &[kind, &number.to_be_bytes()])
}

pub fn upstream_object(ino: Ino) -> Vec<u8> {
    numbered(OBJECT, ino.0)
}

pub fn all_upstream_objects() -> Range {
    range(table(UPSTREAM, &[OBJECT]))
}

pub fn upstream_dirty(ino: Ino) -> Vec<u8> {
    numbered(DIRTY, ino.0)
}

pub fn all_upstream_dirty() -> Range {
    range(table(UPSTREAM, &[DIRTY]))
}

pub fn upstream_unlisted(directory: Ino) -> Vec<u8> {
    numbered(UNLISTED, directory.0)
}

pub fn all_upstream_unlisted() -> Range {
    range(table(UPSTREAM, &[UNLISTED]))
}

pub fn upstream_bytes(number: u64) -> Vec<u8> {
    numbered(BYTES, number)
}

pub fn upstream_begun() -> Vec<u8> {
    table(UPSTREAM, &[BEGUN])
}

/// The number at the end of any of these keys.
pub fn parse_upstream(key: &[u8]) -> Result<Ino, Damaged> {
    let number = key.get(2..).and_then(|rest| rest.try_into().ok()).map(u64::from_be_bytes);
    number.map(Ino).ok_or(Damaged("the key of an upstream row has a wrong length"))
}
