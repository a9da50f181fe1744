//! The key map: every row key is built and parsed here.
//!
//! Why:        one module defines the sort order of all rows.
//! Layout:     one table byte, then fixed-width big-endian numbers, then a name to the end; docs/format/keys.md.
//! Invariants: K1 no key of one table is a prefix of another table's.
//!             K2 sort names contain `/` only at the end, so the keys below a directory are one range in byte order.
//!             K3 an escaped string ends in 00 01 and sorts like its bytes (`escaped_keys_round_trip_in_order`).

mod escape;
mod events;
mod fingerprint;
mod identity;
mod lengths;
mod segments;
mod sessions;
mod table;
mod upstream;

use self::escape::{escape, escape_open, unescape};
use crate::ino::Ino;
use crate::kinds::{Document, Setting};
use crate::numbered::{Numbered, kind_of};
use crate::record::Damaged;

pub use self::events::{EventNumber, all_events, event, event_base, event_number, event_order, events, parse_event};
pub use self::fingerprint::fingerprint;
pub use self::identity::{identities, identity, identity_generation, parse_identity};
pub use self::lengths::OBJECT_KEY_BYTES_MAX;
pub use self::segments::{
    BACK_OFFSET_AT, BACK_SEGMENT_AT, LIVE_SEGMENT_AT, Live, all_backs, all_live, all_locations, all_segments,
    all_shares, all_stores, back, backs_of_run, backs_of_segment, copies, gained_segment, is_segment, live, location,
    parse_back, parse_live, parse_segment, parse_store, segment, segments_of, store,
};
pub use self::sessions::{
    all_file_locks, all_known_identities, file_locks, is_of_process, known_identities, lease, mount_lease,
    mount_leases, mount_takings, parse_mount_lease, parse_session, session, sessions,
};
pub use self::table::Table;
pub use self::upstream::{
    all_upstream_dirty, all_upstream_epochs, all_upstream_kept, all_upstream_objects, all_upstream_unlisted,
    all_upstream_uploads, parse_upstream, parse_upstream_kept, upstream_begun, upstream_bytes, upstream_dirty,
    upstream_epoch, upstream_kept, upstream_object, upstream_unlisted, upstream_upload,
};

const BUCKET: u8 = b'b';
const EVENT: u8 = b'q';
const EVENT_BASE: u8 = b'Q';
const FINGERPRINT: u8 = b'F';
const USAGE: u8 = b'c';
const DIRECTORY: u8 = b'd';
const ENTRY: u8 = b'e';
const SUBDIRECTORIES: u8 = b'f';
const SETTING: u8 = b'g';
const HEADER: u8 = b'h';
const INOS: u8 = b'i';
const DOCUMENT: u8 = b'k';
const INODE: u8 = b'n';
const LIVE: u8 = b'l';
const FORMAT: u8 = b'm';
/// Follows the table byte of the format row.
const UPGRADE: u8 = b'u';
const ORPHAN: u8 = b'o';
const PART: u8 = b'p';
const SESSION: u8 = b'j';
const SHARE: u8 = b's';
const SEGMENT: u8 = b'S';
const TIMES: u8 = b't';
const UPLOAD: u8 = b'u';
const VERSION: u8 = b'v';
const NULL_VERSION: u8 = b'w';
const XATTR: u8 = b'a';
const BACK: u8 = b'r';
const LOCATION: u8 = b'X';
const EXTENT: u8 = b'x';
const IDENTITY: u8 = b'y';
const PART_SIZES: u8 = b'z';
const UPSTREAM: u8 = b'U';

/// `start..end` in key order.
pub type Range = (Vec<u8>, Vec<u8>);

/// The first key after every key with this prefix; `None` if there is none.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

/// The first key after `key`.
pub fn after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

fn table(byte: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|part| part.len()).sum::<usize>());
    key.push(byte);
    parts.iter().for_each(|part| key.extend_from_slice(part));
    key
}

fn range(prefix: Vec<u8>) -> Range {
    let end = successor(&prefix).expect("a table byte is never 0xff");
    (prefix, end)
}

pub fn format() -> Vec<u8> {
    vec![FORMAT]
}

/// Progress of an upgrade; absent if none is in progress.
pub fn upgrade() -> Vec<u8> {
    vec![FORMAT, UPGRADE]
}

pub fn inos() -> Vec<u8> {
    vec![INOS]
}

pub fn bucket(name: &str) -> Vec<u8> {
    table(BUCKET, &[name.as_bytes()])
}

pub fn buckets() -> Range {
    range(vec![BUCKET])
}

pub fn parse_bucket(key: &[u8]) -> Result<&str, Damaged> {
    std::str::from_utf8(key.get(1..).unwrap_or_default()).map_err(|_| Damaged("a bucket's name is not UTF-8"))
}

pub fn entry(directory: Ino, sort_name: &[u8]) -> Vec<u8> {
    table(ENTRY, &[&directory.0.to_be_bytes(), sort_name])
}

/// All entries of a directory.
pub fn entries(directory: Ino) -> Range {
    range(entry(directory, b""))
}

/// The entries of a directory before and after the entry `but`.
pub fn entries_beside(directory: Ino, but: &[u8]) -> [Range; 2] {
    let (start, end) = entries(directory);
    [(after(but.to_vec()), end), (start, but.to_vec())]
}

pub fn is_entry(key: &[u8]) -> bool {
    key.first() == Some(&ENTRY)
}

pub fn all_entries() -> Range {
    range(vec![ENTRY])
}

/// The directory and sort name of an entry's key.
pub fn parse_entry(key: &[u8]) -> Result<(Ino, &str), Damaged> {
    let (directory, name) = parse_ino(key)?;
    Ok((directory, std::str::from_utf8(name).map_err(|_| Damaged("a name is not UTF-8"))?))
}

/// The number after the table byte, and the rest.
pub fn parse_ino(key: &[u8]) -> Result<(Ino, &[u8]), Damaged> {
    let rest = key.get(1..).unwrap_or_default();
    let (number, rest) = rest.split_first_chunk::<8>().ok_or(Damaged("a key is too short"))?;
    Ok((Ino(u64::from_be_bytes(*number)), rest))
}

/// The key of the corresponding row of another number, in a table whose keys begin with one.
pub fn of_another(key: &[u8], ino: Ino) -> Vec<u8> {
    [&key[..1], &ino.0.to_be_bytes(), &key[9..]].concat()
}

pub fn directory(ino: Ino) -> Vec<u8> {
    table(DIRECTORY, &[&ino.0.to_be_bytes()])
}

pub fn directories() -> Range {
    range(vec![DIRECTORY])
}

/// The attributes of a hard-linked file, or of a bucket's root.
pub fn inode(ino: Ino) -> Vec<u8> {
    table(INODE, &[&ino.0.to_be_bytes()])
}

pub fn is_inode(key: &[u8]) -> bool {
    key.first() == Some(&INODE)
}

/// Whether the row is a directory's record, times or counter, or the attributes of a root.
pub fn is_directory_attributes(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(DIRECTORY | INODE | TIMES | SUBDIRECTORIES)))
}

pub fn all_inodes() -> Range {
    range(vec![INODE])
}

/// One extended attribute; the row's value is the attribute's, without a layout byte.
pub fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    table(XATTR, &[&ino.0.to_be_bytes(), name])
}

pub fn xattrs(ino: Ino) -> Range {
    range(xattr(ino, b""))
}

pub fn all_xattrs() -> Range {
    range(vec![XATTR])
}

pub fn times(ino: Ino) -> Vec<u8> {
    table(TIMES, &[&ino.0.to_be_bytes()])
}

pub fn all_times() -> Range {
    range(vec![TIMES])
}

/// The number of a directory's subdirectories; absent means none.
pub fn subdirectories(ino: Ino) -> Vec<u8> {
    table(SUBDIRECTORIES, &[&ino.0.to_be_bytes()])
}

pub fn all_subdirectories() -> Range {
    range(vec![SUBDIRECTORIES])
}

/// A noncurrent version or a delete marker of a key; newest first.
pub fn version(root: Ino, key: &str, sequence: u64) -> Vec<u8> {
    let mut row = versions_of_key(root, key);
    row.extend_from_slice(&(!sequence).to_be_bytes());
    row
}

/// The prefix of all version rows of exactly this key.
fn versions_of_key(root: Ino, key: &str) -> Vec<u8> {
    let mut row = table(VERSION, &[&root.0.to_be_bytes()]);
    escape(key.as_bytes(), &mut row);
    row
}

/// The version rows of a key with a smaller sequence.
pub fn versions_below(root: Ino, key: &str, sequence: u64) -> Range {
    (after(version(root, key, sequence)), range(versions_of_key(root, key)).1)
}

/// The version rows of a key with this or a larger sequence.
pub fn versions_from(root: Ino, key: &str, sequence: u64) -> Range {
    (versions_of_key(root, key), after(version(root, key, sequence)))
}

/// The version rows of all keys from `key` on.
pub fn versions_from_key(root: Ino, key: &[u8]) -> Range {
    let mut row = table(VERSION, &[&root.0.to_be_bytes()]);
    escape_open(key, &mut row);
    (row, versions(root).1)
}

/// All version rows of a bucket.
pub fn versions(root: Ino) -> Range {
    range(table(VERSION, &[&root.0.to_be_bytes()]))
}

pub fn all_versions() -> Range {
    range(vec![VERSION])
}

/// The bucket's root, the key and the sequence.
pub fn parse_version(key: &[u8]) -> Result<(Ino, String, u64), Damaged> {
    let (root, rest) = parse_ino(key)?;
    let (name, sequence) = unescape(rest)?;
    let name = String::from_utf8(name).map_err(|_| Damaged("a version's key is not UTF-8"))?;
    let sequence = sequence.try_into().map_err(|_| Damaged("a version's key has a wrong length"))?;
    Ok((root, name, !u64::from_be_bytes(sequence)))
}

/// Points to the version row of a key's version `null`.
pub fn null_version(root: Ino, key: &str) -> Vec<u8> {
    let mut row = table(NULL_VERSION, &[&root.0.to_be_bytes()]);
    escape(key.as_bytes(), &mut row);
    row
}

/// The bucket's root and the key.
pub fn parse_null_version(key: &[u8]) -> Result<(Ino, String), Damaged> {
    let (root, rest) = parse_ino(key)?;
    let (name, end) = unescape(rest)?;
    match (String::from_utf8(name), end) {
        (Ok(name), []) => Ok((root, name)),
        _ => Err(Damaged("a null version's key is no key")),
    }
}

pub fn all_null_versions() -> Range {
    range(vec![NULL_VERSION])
}

pub fn extent(ino: Ino, offset: u64) -> Vec<u8> {
    table(EXTENT, &[&ino.0.to_be_bytes(), &offset.to_be_bytes()])
}

pub fn extents(ino: Ino) -> Range {
    range(table(EXTENT, &[&ino.0.to_be_bytes()]))
}

pub fn all_extents() -> Range {
    range(vec![EXTENT])
}

/// The file and the offset of an extent row.
pub fn parse_extent(key: &[u8]) -> Result<(Ino, u64), Damaged> {
    let (ino, rest) = parse_ino(key)?;
    Ok((ino, u64::from_be_bytes(rest.try_into().map_err(|_| Damaged("an extent's key has a wrong length"))?)))
}

pub fn header(ino: Ino, name: &str) -> Vec<u8> {
    table(HEADER, &[&ino.0.to_be_bytes(), name.as_bytes()])
}

pub fn headers(ino: Ino) -> Range {
    range(table(HEADER, &[&ino.0.to_be_bytes()]))
}

pub fn all_headers() -> Range {
    range(vec![HEADER])
}

/// One piece of a setting of a bucket.
pub fn setting_piece(root: Ino, setting: Setting, piece: u8) -> Vec<u8> {
    table(SETTING, &[&root.0.to_be_bytes(), &[setting.number(), piece]])
}

/// All pieces of a setting of a bucket.
pub fn setting(root: Ino, setting: Setting) -> Range {
    range(table(SETTING, &[&root.0.to_be_bytes(), &[setting.number()]]))
}

/// All settings of a bucket.
pub fn settings(root: Ino) -> Range {
    range(table(SETTING, &[&root.0.to_be_bytes()]))
}

pub fn all_settings() -> Range {
    range(vec![SETTING])
}

/// The bucket's root, the setting and the number of the piece.
pub fn parse_setting(key: &[u8]) -> Result<(Ino, Setting, u8), Damaged> {
    let (root, rest) = parse_ino(key)?;
    let [number, piece] = rest.try_into().map_err(|_| Damaged("a setting's key has a wrong length"))?;
    Ok((root, kind_of(number).ok_or(Damaged("an unknown setting"))?, piece))
}

pub fn document(ino: Ino, document: Document) -> Vec<u8> {
    table(DOCUMENT, &[&ino.0.to_be_bytes(), &[document.number()]])
}

/// All documents of a file.
pub fn documents(ino: Ino) -> Range {
    range(table(DOCUMENT, &[&ino.0.to_be_bytes()]))
}

pub fn all_documents() -> Range {
    range(vec![DOCUMENT])
}

/// The file and the kind of a document.
pub fn parse_document(key: &[u8]) -> Result<(Ino, Document), Damaged> {
    let (ino, rest) = parse_ino(key)?;
    let [number] = rest.try_into().map_err(|_| Damaged("a document's key has a wrong length"))?;
    Ok((ino, kind_of(number).ok_or(Damaged("an unknown document"))?))
}

pub fn part_sizes(ino: Ino) -> Vec<u8> {
    part_row(ino, b"")
}

/// Checksums of an object's parts, several per row.
pub fn part_checksums(ino: Ino, piece: u8) -> Vec<u8> {
    part_row(ino, &[piece])
}

/// A row about an object's parts: nothing after the number for the sizes, a piece's number for checksums.
pub fn part_row(ino: Ino, rest: &[u8]) -> Vec<u8> {
    table(PART_SIZES, &[&ino.0.to_be_bytes(), rest])
}

/// All rows about the parts of an object.
pub fn part_rows(ino: Ino) -> Range {
    range(part_sizes(ino))
}

pub fn all_part_sizes() -> Range {
    range(vec![PART_SIZES])
}

pub fn upload(root: Ino, key: &str, id: &str) -> Vec<u8> {
    let mut row = uploads_of_key(root, key);
    row.extend_from_slice(id.as_bytes());
    row
}

/// The prefix of all uploads to this key.
pub fn uploads_of_key(root: Ino, key: &str) -> Vec<u8> {
    let mut row = table(UPLOAD, &[&root.0.to_be_bytes()]);
    escape(key.as_bytes(), &mut row);
    row
}

/// All uploads to keys that begin with `prefix`.
pub fn uploads(root: Ino, prefix: &str) -> Range {
    let mut row = table(UPLOAD, &[&root.0.to_be_bytes()]);
    escape_open(prefix.as_bytes(), &mut row);
    range(row)
}

pub fn all_uploads() -> Range {
    range(vec![UPLOAD])
}

/// The bucket's root, the key and the upload id.
pub fn parse_upload(key: &[u8]) -> Result<(Ino, String, &str), Damaged> {
    let (root, rest) = parse_ino(key)?;
    let (name, id) = unescape(rest)?;
    let name = String::from_utf8(name).map_err(|_| Damaged("an upload's key is not UTF-8"))?;
    Ok((root, name, std::str::from_utf8(id).map_err(|_| Damaged("an upload's id is not UTF-8"))?))
}

pub fn part(upload: Ino, number: u16) -> Vec<u8> {
    table(PART, &[&upload.0.to_be_bytes(), &number.to_be_bytes()])
}

pub fn parts(upload: Ino) -> Range {
    range(table(PART, &[&upload.0.to_be_bytes()]))
}

pub fn all_parts() -> Range {
    range(vec![PART])
}

/// The upload and the number of a part.
pub fn parse_part(key: &[u8]) -> Result<(Ino, u16), Damaged> {
    let (upload, rest) = parse_ino(key)?;
    Ok((upload, u16::from_be_bytes(rest.try_into().map_err(|_| Damaged("a part's key has a wrong length"))?)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Current ones.
    Objects,
    /// Of all versions.
    Bytes,
    /// Version rows: noncurrent versions, and delete markers.
    Versions,
}

pub fn usage(root: Ino, what: Counted) -> Vec<u8> {
    let what = match what {
        Counted::Objects => b"o",
        Counted::Bytes => b"b",
        Counted::Versions => b"v",
    };
    table(USAGE, &[&root.0.to_be_bytes(), what])
}

pub fn all_usage() -> Range {
    range(vec![USAGE])
}

pub fn orphan(ino: Ino) -> Vec<u8> {
    table(ORPHAN, &[&ino.0.to_be_bytes()])
}

pub fn orphans() -> Range {
    range(vec![ORPHAN])
}

#[cfg(test)]
mod tests;
