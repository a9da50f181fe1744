//! Extended attributes as metadata of objects.
//!
//! Why:        `user.a` of a file is a header as it is (margay-volume). What no header can hold, and what belongs to other
//!             spaces (access lists too), goes into one header, so that a new cache shows it again.
//! Invariants: X1 metadata has at most 2 KB, as S3 takes no more: a change that would make it larger fails at the call. What
//!                was larger before, made by others, may stay so.
//! Not here:   which attributes are headers of the entry (margay-volume); their form (packed, attributes).

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use http::HeaderMap;
use margay_env::Timestamp;
use margay_meta::{Batch, Engine, EngineError, Write};
use margay_rows::key;
use margay_rows::record::Entry;
use margay_volume::posix::imported_xattr;

use crate::packed::{self, USER, Xattr};
use crate::{attributes, words};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// User metadata of an object, in bytes.
const METADATA_BYTES_MAX: usize = 2048;
/// Of the longest write id.
const WRITE_ID_BYTES_MAX: usize = 128;
/// ENOSPC of Linux: what a file system says where attributes have no room.
const NO_SPACE: i32 = 28;

/// The attributes of an object that are not headers of its entry, as a mount would have stored them, each once;
/// `is_directory`: no header is one of a directory.
pub(crate) fn of_object(headers: &HeaderMap, mode: u32, is_directory: bool) -> Vec<Xattr> {
    let mut found: BTreeMap<Vec<u8>, Vec<u8>> = packed::of_headers(headers).into_iter().collect();
    for (name, value) in headers {
        let own = name.as_str().strip_prefix(USER).filter(|own| !attributes::is_own(own));
        let value = own.and_then(|own| Some(packed::of_header(own, &words::decoded(value.as_bytes())?)));
        match value {
            // Whoever changed the header does not know of the other.
            Some((name, value)) if is_directory => drop(found.insert(name, value)),
            Some((name, _)) => drop(found.remove(&name)),
            None => {}
        }
    }
    let stored = |(name, value): Xattr| Some((imported_xattr(&name, &value, mode, is_directory)?, name));
    found.into_iter().filter_map(stored).map(|(value, name)| (name, value)).collect()
}

/// Rows of a file by what follows the beginning of their keys; with a batch, as they are when it is committed.
fn rows(engine: &dyn Engine, batch: Option<&Batch>, (start, end): key::Range) -> Result<Rows, EngineError> {
    let mut found = Rows::new();
    engine.scan(&start, &end, &mut |row| {
        found.insert(row.key[start.len()..].to_vec(), row.value.to_vec());
        ControlFlow::Continue(())
    })?;
    for write in batch.iter().flat_map(|batch| &batch.writes) {
        let name = write.key().strip_prefix(start.as_slice()).filter(|_| write.key() < end.as_slice());
        match (name, write) {
            (Some(name), Write::Put { value, .. }) => drop(found.insert(name.to_vec(), value.clone())),
            (Some(name), _) => drop(found.remove(name)),
            (None, _) => {}
        }
    }
    Ok(found)
}

/// An entry with all its headers, and those of its attributes that have rows.
pub(crate) fn whole(
    engine: &dyn Engine,
    batch: Option<&Batch>,
    entry: &Entry,
) -> Result<(Entry, Vec<Xattr>), EngineError> {
    let xattrs = |ino, is_some: bool| {
        let found = is_some.then(|| rows(engine, batch, key::xattrs(ino))).transpose()?;
        Ok::<_, EngineError>(found.unwrap_or_default().into_iter().collect())
    };
    match entry {
        Entry::File(file) => {
            let mut file = file.clone();
            if file.header_rows {
                let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
                let headers = rows(engine, batch, key::headers(file.ino))?.into_iter();
                file.headers.extend(headers.filter_map(|(name, value)| Some((text(name)?, text(value)?))));
            }
            let xattrs = xattrs(file.ino, file.xattrs)?;
            Ok((Entry::File(file), xattrs))
        }
        Entry::Directory(directory) => Ok((entry.clone(), xattrs(directory.ino, directory.xattrs)?)),
        Entry::Link(_) => Ok((entry.clone(), Vec::new())),
    }
}

fn bytes_of(engine: &dyn Engine, batch: Option<&Batch>, entry: &Entry) -> Result<usize, EngineError> {
    let metadata = match whole(engine, batch, entry)? {
        (Entry::File(file), xattrs) => attributes::of_file(&file, &xattrs, ""),
        (Entry::Directory(entry), xattrs) => attributes::of_directory(&entry, Timestamp(i64::MAX), &xattrs, ""),
        (Entry::Link(_), _) => return Ok(0),
    };
    Ok(attributes::metadata_bytes(&metadata) + WRITE_ID_BYTES_MAX)
}

/// Refuses a change that gives an entry more attributes than an object takes (X1).
pub(crate) fn check(engine: &dyn Engine, batch: &Batch, old: Option<&Entry>, new: &Entry) -> Result<(), EngineError> {
    let may_grow = match new {
        Entry::File(file) => file.xattrs || file.header_rows || file.headers.keys().any(|name| name.starts_with(USER)),
        Entry::Directory(entry) => entry.xattrs,
        Entry::Link(_) => false,
    };
    if !may_grow {
        return Ok(());
    }
    let bytes = bytes_of(engine, Some(batch), new)?;
    if bytes <= METADATA_BYTES_MAX {
        return Ok(());
    }
    match old.map(|old| bytes_of(engine, None, old)).transpose()? {
        Some(before) if bytes <= before => Ok(()),
        _ => Err(EngineError::Io(std::io::Error::from_raw_os_error(NO_SPACE))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())).collect()
    }

    fn found(headers: &HeaderMap, is_directory: bool) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        of_object(headers, 0o644, is_directory).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn metadata_of_a_marker_is_attributes() {
        let there = headers(&[
            ("x-amz-meta-colour", "red"),
            ("x-amz-meta-margay-x", "user.colour=Yg,user.Size=MQ,other.a=MQ,system.posix_acl_access=MQ"),
            ("x-amz-meta-mode", "040755"),
            ("content-type", "application/x-directory"),
        ]);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let (size, colour) = (pair("user.Size", "1"), pair("user.colour", "red"));
        assert_eq!(found(&there, true), [size.clone(), colour], "each once; what no mount stores is left out");
        assert_eq!(found(&there, false), [size], "a header of a file is one of its entry");
    }
}
