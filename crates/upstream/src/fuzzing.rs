//! Entry points of the fuzz targets: what a far mount makes of headers, as arbitrary bytes.
//!
//! Layout:     headers are lines `name: value`.
//! Invariants: Z1 any headers give attributes, and what is written of them is read as the same.
//!             Z2 packed attributes and words come back.
//! Not here:   the targets themselves and their seeds (fuzz/).

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_client::upstream::Described;
use margay_env::Timestamp;
use margay_rows::Ino;
use margay_rows::record::Data;
use margay_volume::{Imported, ImportedKind};

use crate::list::{Found, imported, parse_etag};
use crate::{attributes, packed, words};

const KINDS: u32 = 0o170_000;
const LINK: u32 = 0o120_000;

/// Extended attributes, whether an object has them as headers or packed; the target of a link is none.
fn all(one: &Imported) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let own = |name: &str| Some(name.strip_prefix(packed::USER)?.to_owned());
    let headers = match &one.kind {
        ImportedKind::File { headers, .. } => {
            headers.iter().filter_map(|(name, value)| Some((own(name)?, value))).collect()
        }
        ImportedKind::Directory { .. } => Vec::new(),
    };
    let headers = headers.iter().map(|(name, value)| packed::of_header(name, value));
    let all = headers.chain(one.xattrs.iter().cloned());
    all.filter(|(name, _)| name != b"user.--symlink-target").collect()
}

fn headers_of(bytes: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value.trim_ascii())) {
            headers.append(name, value);
        }
    }
    headers
}

fn found(name: &str, headers: &HeaderMap) -> Found {
    let etag = headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default().to_owned();
    let there = Some(Described { etag, size: 7, headers: headers.clone() });
    Found { sort_name: name.to_owned(), key: format!("d/{name}"), there, modified: 0, attributes: None }
}

/// Headers of an object: a file and a directory are made from them, written back, and read again as the same.
pub fn object_headers(bytes: &[u8]) {
    let headers = headers_of(bytes);
    let _ = parse_etag(headers.get("etag").and_then(|etag| etag.to_str().ok()).unwrap_or_default());
    let read = |name: &str, headers: &HeaderMap| imported(Ino(7), &found(name, headers), Timestamp(0));
    let file = read("a", &headers);
    if let Some(entry) = file.file(Data::Inline(Vec::new())) {
        let written: HeaderMap = attributes::of_file(&entry, &file.xattrs, "1-7-8.9").into_iter().collect();
        let again = read("a", &written);
        // Nobody asks for the rights of a link.
        let mode = |mode: u32| if mode & KINDS == LINK { LINK } else { mode };
        assert_eq!(
            (mode(file.mode), file.uid, file.gid, file.modified, all(&file)),
            (mode(again.mode), again.uid, again.gid, again.modified, all(&again))
        );
        let device = |one: &Imported| one.file(Data::Inline(Vec::new())).map(|file| file.device);
        assert_eq!(device(&file), device(&again));
    }
    let directory = read("a/", &headers);
    if let Some(entry) = directory.directory() {
        let metadata = attributes::of_directory(&entry, directory.modified, &directory.xattrs, "1-7-8.9");
        let again = read("a/", &metadata.into_iter().collect());
        assert_eq!(
            (directory.mode, directory.uid, directory.gid, directory.modified, &directory.xattrs),
            (again.mode, again.uid, again.gid, again.modified, &again.xattrs)
        );
    }
}

/// Attributes in one header, of ours and of s3fs, and words of RFC 2047.
pub fn packed_attributes(bytes: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        for name in ["x-amz-meta-margay-x", "x-amz-meta-xattr"] {
            let headers = HeaderMap::from_iter([(HeaderName::from_static(name), value.clone())]);
            let attributes = packed::of_headers(&headers);
            let Ok(again) = HeaderValue::from_str(&packed::pack(&attributes)) else { panic!("it is no header") };
            let again = HeaderMap::from_iter([(HeaderName::from_static("x-amz-meta-margay-x"), again)]);
            assert_eq!(packed::of_headers(&again), attributes);
        }
    }
    if let Some(value) = words::decoded(bytes) {
        let encoded = words::encoded(&value);
        assert!(encoded.is_ascii());
        assert_eq!(words::decoded(encoded.as_bytes()).as_deref(), Some(value.as_str()));
    }
}
