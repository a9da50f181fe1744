//! Keys of sessions and leases: table byte, `s` and a number, or `l` and a name; of mounts `m` and the number of the bucket's
//! root, then nothing (the row that orders their takings) or the number of the lease; `i` and the number of a session for the
//! identities that its process knows; `k`, the number of the bucket's root and that of a file for the locks of programs on it.

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

/// The number of a session, also of the row with what its process knows.
pub fn parse_session(key: &[u8]) -> Result<Ino, Damaged> {
    let number = key.get(2..).and_then(|rest| rest.try_into().ok()).map(u64::from_be_bytes);
    number.map(Ino).ok_or(Damaged("a session's key has a wrong length"))
}

/// Which identities the process of a session knows.
pub fn known_identities(session: Ino) -> Vec<u8> {
    table(SESSION, &[b"i", &session.0.to_be_bytes()])
}

/// Those of all sessions.
pub fn all_known_identities() -> Range {
    range(table(SESSION, &[b"i"]))
}

/// The lease of a job by its name.
pub fn lease(name: &str) -> Vec<u8> {
    table(SESSION, &[b"l", name.as_bytes()])
}

/// Orders the takings of mounts of a bucket, by the number of its root; sorts before its leases.
pub fn mount_takings(root: Ino) -> Vec<u8> {
    table(SESSION, &[b"m", &root.0.to_be_bytes()])
}

/// The lease of one mount that writes to a bucket.
pub fn mount_lease(root: Ino, number: Ino) -> Vec<u8> {
    table(SESSION, &[b"m", &root.0.to_be_bytes(), &number.0.to_be_bytes()])
}

/// The leases of all mounts of a bucket.
pub fn mount_leases(root: Ino) -> Range {
    (mount_lease(root, Ino(0)), range(mount_takings(root)).1)
}

/// The locks of programs on a file, by the number of its bucket's root and its own.
pub fn file_locks(root: Ino, file: Ino) -> Vec<u8> {
    table(SESSION, &[b"k", &root.0.to_be_bytes(), &file.0.to_be_bytes()])
}

/// Those on all files of a bucket.
pub fn all_file_locks(root: Ino) -> Range {
    range(table(SESSION, &[b"k", &root.0.to_be_bytes()]))
}

/// The root of the bucket and the number of a lease.
pub fn parse_mount_lease(key: &[u8]) -> Result<(Ino, Ino), Damaged> {
    let rest = key.get(1..).and_then(|rest| rest.strip_prefix(b"m"));
    let numbers = rest.and_then(|rest| rest.split_first_chunk::<8>());
    let parsed = numbers.and_then(|(root, number)| Some((root, number.try_into().ok()?)));
    let (root, number) = parsed.ok_or(Damaged("the key of a mount's lease is none"))?;
    Ok((Ino(u64::from_be_bytes(*root)), Ino(u64::from_be_bytes(number))))
}
