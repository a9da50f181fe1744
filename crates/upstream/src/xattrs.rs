//! Extended attributes as metadata of objects.
//!
//! Why:        `user.a` of a file is a header as it is (margay-volume). What no header can hold, and what belongs to other
//!             spaces (access lists too), goes into one header, so that a new cache shows it again.
//! Layout:     `margay-x`: `name=value`, separated by commas; the name percent-encoded, the value in base64 without padding.
//! Source:     `xattr` of s3fs: a percent-encoded `{"name":"value in base64", ...}`.
//! Invariants: X1 metadata has at most 2 KB, as S3 takes no more: a change that would make it larger fails at the call. What
//!                was larger before, made by others, may stay so.
//!             X2 what does not parse is as if it was not there.
//! Not here:   which attributes are headers of the entry (margay-volume).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use margay_env::Timestamp;
use margay_meta::{Batch, Engine, EngineError, Write};
use margay_rows::record::Entry;
use margay_rows::{Ino, key};

use crate::attributes::{self, USER};
use crate::words;

/// Name and value.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// The header of those that are not headers.
pub(crate) const PACKED: &str = "margay-x";
pub(crate) const PACKED_BY_S3FS: &str = "xattr";
/// Attributes in this space are headers where they can.
const USER_SPACE: &str = "user.";
/// User metadata of an object, in bytes.
const METADATA_BYTES_MAX: usize = 2048;
/// Of the longest write id.
const WRITE_ID_BYTES_MAX: usize = 96;
/// ENOSPC of Linux: what a file system says where attributes have no room.
const NO_SPACE: i32 = 28;
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Printable ASCII without what separates; the rest as `%` and two digits.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'!'..=b'~' if !matches!(byte, b'%' | b',' | b'=') => out.push(char::from(*byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

pub(crate) fn decoded(text: &[u8]) -> Vec<u8> {
    let digit = |at: usize| text.get(at).and_then(|byte| char::from(*byte).to_digit(16)).map(|digit| digit as u8);
    let (mut out, mut at) = (Vec::with_capacity(text.len()), 0);
    while let Some(byte) = text.get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

pub(crate) fn pack(xattrs: &[Xattr]) -> String {
    let one = |(name, value): &Xattr| format!("{}={}", escaped(name), BASE64.encode(value));
    xattrs.iter().map(one).collect::<Vec<_>>().join(",")
}

fn unpack(text: &str) -> Vec<Xattr> {
    let one = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        Some((decoded(name.as_bytes()), BASE64.decode(value).ok()?))
    };
    text.split(',').filter_map(one).collect()
}

/// s3fs escapes nothing inside of its quotes.
fn unpack_s3fs(text: &str) -> Vec<Xattr> {
    let plain = String::from_utf8_lossy(&decoded(text.as_bytes())).into_owned();
    let quoted: Vec<&str> = plain.split('"').skip(1).step_by(2).collect();
    let pairs = quoted.chunks_exact(2);
    pairs.filter_map(|pair| Some((pair[0].as_bytes().to_vec(), BASE64.decode(pair[1]).ok()?))).collect()
}

/// The attributes of an object that are not headers of its entry; `is_directory`: no header is one of a directory.
pub(crate) fn of_object(headers: &HeaderMap, is_directory: bool) -> Vec<Xattr> {
    let text = |name: &str| headers.get(format!("{USER}{name}"))?.to_str().ok();
    let packed = text(PACKED).map(unpack);
    let mut found = packed.or_else(|| text(PACKED_BY_S3FS).map(unpack_s3fs)).unwrap_or_default();
    for (name, value) in headers.iter().filter(|_| is_directory) {
        let own = name.as_str().strip_prefix(USER).filter(|own| !attributes::is_own(own));
        found.extend(own.and_then(|own| Some(of_header(own, &words::decoded(value.as_bytes())?))));
    }
    found
}

/// Metadata, named without its prefix, as an attribute.
pub(crate) fn of_header(name: &str, value: &str) -> Xattr {
    (format!("{USER_SPACE}{name}").into_bytes(), value.as_bytes().to_vec())
}

/// An attribute as metadata, named without its prefix, if the name can be one.
pub(crate) fn as_header((name, value): &Xattr) -> Option<(&str, &str)> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(USER_SPACE)?;
    let is_token = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    let is_name = !name.is_empty() && name.bytes().all(is_token);
    Some((name, std::str::from_utf8(value).ok()?)).filter(|_| is_name)
}

/// Those of a file or directory that have rows.
pub(crate) fn of_rows(engine: &dyn Engine, ino: Ino) -> Result<Vec<Xattr>, EngineError> {
    let ((start, end), mut found) = (key::xattrs(ino), Vec::new());
    engine.scan(&start, &end, &mut |row| {
        found.push((row.key[start.len()..].to_vec(), row.value.to_vec()));
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// As `of_rows`, when the batch is committed.
fn after(engine: &dyn Engine, batch: &Batch, ino: Ino) -> Result<Vec<Xattr>, EngineError> {
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = of_rows(engine, ino)?.into_iter().collect();
    let (start, end) = key::xattrs(ino);
    for write in &batch.writes {
        let name = write.key().strip_prefix(start.as_slice()).filter(|_| write.key() < end.as_slice());
        match (name, write) {
            (Some(name), Write::Put { value, .. }) => drop(found.insert(name.to_vec(), value.clone())),
            (Some(name), _) => drop(found.remove(name)),
            (None, _) => {}
        }
    }
    Ok(found.into_iter().collect())
}

fn bytes_of(entry: &Entry, xattrs: &[Xattr]) -> usize {
    let metadata = match entry {
        Entry::File(file) => attributes::of_file(file, xattrs, ""),
        Entry::Directory(entry) => attributes::of_directory(entry, Timestamp(i64::MAX), xattrs, ""),
        Entry::Link(_) => return 0,
    };
    attributes::metadata_bytes(&metadata) + WRITE_ID_BYTES_MAX
}

/// Refuses a change that gives an entry more attributes than an object takes (X1).
pub(crate) fn check(
    engine: &dyn Engine,
    batch: &Batch,
    old: Option<&Entry>,
    new: &Entry,
) -> Result<(), EngineError> {
    let (ino, may_grow) = match new {
        Entry::File(file) => (file.ino, file.xattrs || !file.headers.is_empty()),
        Entry::Directory(entry) => (entry.ino, entry.xattrs),
        Entry::Link(_) => return Ok(()),
    };
    if !may_grow {
        return Ok(());
    }
    let bytes = bytes_of(new, &after(engine, batch, ino)?);
    if bytes <= METADATA_BYTES_MAX {
        return Ok(());
    }
    let before = old.map(|old| Ok::<_, EngineError>(bytes_of(old, &of_rows(engine, ino)?))).transpose()?;
    match before {
        Some(before) if bytes <= before => Ok(()),
        _ => Err(EngineError::Io(std::io::Error::from_raw_os_error(NO_SPACE))),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn attribute(name: &str, value: &[u8]) -> Xattr {
        (name.as_bytes().to_vec(), value.to_vec())
    }

    #[test]
    fn any_attributes_are_one_header() {
        let all = [
            attribute("system.posix_acl_access", &[2, 0, 0, 0, 255]),
            attribute("user.A, = %\u{e9}", b""),
            attribute("trusted.x", "\u{e9}\n".as_bytes()),
        ];
        let packed = pack(&all);
        assert!(HeaderValue::from_str(&packed).is_ok(), "{packed}");
        let headers = HeaderMap::from_iter([("x-amz-meta-margay-x".parse().unwrap(), packed.parse().unwrap())]);
        assert_eq!(of_object(&headers, false), all);
        assert_eq!(unpack("x,y=?,user.a=MQ"), [attribute("user.a", b"1")], "what does not parse is not there");
    }

    #[test]
    fn those_of_s3fs_are_read() {
        let theirs = "%7B%22user.one%22%3A%22MQ%3D%3D%22%2C%22user.two%22%3A%22MjI%3D%22%7D";
        let headers = HeaderMap::from_iter([("x-amz-meta-xattr".parse().unwrap(), theirs.parse().unwrap())]);
        assert_eq!(of_object(&headers, false), [attribute("user.one", b"1"), attribute("user.two", b"22")]);
    }

    #[test]
    fn metadata_of_a_marker_is_attributes() {
        let headers = HeaderMap::from_iter([
            ("x-amz-meta-colour".parse().unwrap(), "red".parse().unwrap()),
            ("x-amz-meta-mode".parse().unwrap(), "040755".parse().unwrap()),
            ("content-type".parse().unwrap(), "application/x-directory".parse().unwrap()),
        ]);
        assert_eq!(of_object(&headers, true), [attribute("user.colour", b"red")]);
        assert_eq!(of_object(&headers, false), []);
        assert_eq!(as_header(&attribute("user.colour", b"red")), Some(("colour", "red")));
        assert_eq!(as_header(&attribute("user.Colour", b"red")), None);
    }
}
