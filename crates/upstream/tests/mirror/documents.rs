//! Documents that both simulated buckets read and write, and uploads in parts.
//!
//! Not here:   requests and answers, conditions, faults (each bucket's own).

use std::collections::BTreeMap;

use bytes::Bytes;
use md5::{Digest, Md5};

/// An upload in parts that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) key: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) parts: BTreeMap<u32, Bytes>,
}

pub(crate) fn etag_of(body: &[u8]) -> String {
    format!("\"{:x}\"", Md5::digest(body))
}

/// An answer that has one field.
pub(crate) fn with_field(root: &str, name: &str, value: &str) -> String {
    format!("<{root}><{name}>{}</{name}></{root}>", value.replace('"', "&quot;"))
}

/// Keys that a request removes, with the ETags that they must have.
pub(crate) fn removals(document: &str) -> impl Iterator<Item = (&str, Option<String>)> {
    document.split("<Object>").skip(1).map(|object| {
        let between = |start: &str, end: &str| {
            object.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map(|(text, _)| text)
        };
        (between("<Key>", "</Key>").unwrap(), between("<ETag>", "</ETag>").map(|etag| etag.replace("&quot;", "\"")))
    })
}

/// The answer, by the keys that were not removed.
pub(crate) fn removed_but(kept: &[&str]) -> String {
    let kept = kept.iter().map(|key| format!("<Error><Key>{key}</Key><Code>PreconditionFailed</Code></Error>"));
    format!("<DeleteResult>{}</DeleteResult>", kept.collect::<String>())
}

/// The bytes of a range of both ends, or all.
pub(crate) fn slice(body: &Bytes, range: Option<&str>) -> Bytes {
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    range.map_or(body.clone(), |(first, last)| {
        body.slice(first.parse::<usize>().unwrap()..=last.parse::<usize>().unwrap())
    })
}

impl Upload {
    /// The body and the ETag of the object of the parts that a completion names. Those that it does not name are left out;
    /// of those that it names, each must be the newest one.
    pub(crate) fn whole(&self, document: &str) -> Option<(Bytes, String)> {
        let named = document.matches("<Part>").count();
        let parts = self.parts.iter().map(|(number, body)| (number, body, Md5::digest(body)));
        let is_named = |(number, _, digest): &(&u32, &Bytes, md5::digest::Output<Md5>)| {
            document.contains(&format!("<PartNumber>{number}</PartNumber><ETag>&quot;{digest:x}&quot;</ETag>"))
        };
        let parts: Vec<_> = parts.filter(is_named).collect();
        if parts.len() != named || named == 0 {
            return None;
        }
        let body: Vec<u8> = parts.iter().flat_map(|(_, body, _)| body.to_vec()).collect();
        let digest = Md5::digest(parts.iter().flat_map(|(_, _, digest)| digest.to_vec()).collect::<Vec<u8>>());
        Some((body.into(), format!("\"{digest:x}-{named}\"")))
    }
}
