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
/// A multipart upload that was begun.
const UPLOAD: &[u8] = b"m";
/// The volume belongs to a bucket, and its root was marked as not listed.
const BEGUN: &[u8] = b"g";
/// A state of a file that is to be sent before a later one.
const KEPT: &[u8] = b"k";
/// An epoch ends with a change.
const EPOCH: &[u8] = b"e";

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

pub fn upstream_upload(number: u64) -> Vec<u8> {
    numbered(UPLOAD, number)
}

pub fn all_upstream_uploads() -> Range {
    range(table(UPSTREAM, &[UPLOAD]))
}

pub fn upstream_begun() -> Vec<u8> {
    table(UPSTREAM, &[BEGUN])
}

/// The state that a file had after this change.
pub fn upstream_kept(ino: Ino, changed: u64) -> Vec<u8> {
    table(UPSTREAM, &[KEPT, &ino.0.to_be_bytes(), &changed.to_be_bytes()])
}

pub fn all_upstream_kept() -> Range {
    range(table(UPSTREAM, &[KEPT]))
}

/// The file of a kept state.
pub fn parse_upstream_kept(key: &[u8]) -> Result<Ino, Damaged> {
    parse_upstream(key.get(..10).unwrap_or_default())
}

pub fn upstream_epoch(last: u64) -> Vec<u8> {
    numbered(EPOCH, last)
}

pub fn all_upstream_epochs() -> Range {
    range(table(UPSTREAM, &[EPOCH]))
}

/// The number at the end of any of these keys but those of kept states.
pub fn parse_upstream(key: &[u8]) -> Result<Ino, Damaged> {
    let number = key.get(2..).and_then(|rest| rest.try_into().ok()).map(u64::from_be_bytes);
    number.map(Ino).ok_or(Damaged("the key of an upstream row has a wrong length"))
}
