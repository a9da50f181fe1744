//! The string that a Version 2 signature covers.
//!
//! Invariants: C1 a parameter is recognized by its decoded name, as in the router.
//!             C2 no value can end its line early.

use super::super::canonical::{Plus, Slash, decode, pairs, reencode};
use super::super::{AuthError, Head};

/// Parameters that the signature covers, sorted: those that AWS lists, and every other one that selects an operation,
/// since the holder of a signed URL must not be able to turn it into another operation.
pub const SUBRESOURCES: &[&str] = &[
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "ownershipControls",
    "partNumber",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "retention",
    "select",
    "select-type",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// How the request's bytes are canonicalized.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Decode and re-encode the path instead of keeping it as sent.
    pub encoded_path: bool,
    /// Keep parameter values as sent instead of decoding them.
    pub raw_values: bool,
    /// Append `/` to a bucket's path, as if the host named the bucket: boto3 always signs this way.
    pub closed_bucket: bool,
}

impl Reading {
    /// As AWS documents it.
    pub(crate) const DOCUMENTED: Reading = Reading { encoded_path: false, raw_values: false, closed_bucket: false };

    /// All readings, the documented one first.
    pub(crate) const ALL: [Reading; 6] = [
        Reading::DOCUMENTED,
        Reading { raw_values: true, ..Reading::DOCUMENTED },
        Reading { encoded_path: true, ..Reading::DOCUMENTED },
        Reading { encoded_path: true, raw_values: true, ..Reading::DOCUMENTED },
        // Encoding does not change a bucket's name.
        Reading { closed_bucket: true, ..Reading::DOCUMENTED },
        Reading { closed_bucket: true, raw_values: true, ..Reading::DOCUMENTED },
    ];
}

/// The parts of a request that its signature covers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canonical<'a> {
    pub head: &'a Head<'a>,
    /// Parameters `x-amz-*`, `content-type` and `content-md5` stand for missing headers.
    pub in_query: bool,
    pub date_line: &'a str,
}

impl Canonical<'_> {
    /// Appends the string to sign.
    pub(crate) fn write(&self, reading: Reading, out: &mut Vec<u8>) -> Result<(), AuthError> {
        out.extend_from_slice(self.head.method.as_str().as_bytes());
        out.push(b'\n');
        self.write_positional("content-md5", out)?;
        self.write_positional("content-type", out)?;
        out.extend_from_slice(self.date_line.as_bytes());
        out.push(b'\n');
        self.write_amz_headers(out)?;
        self.write_resource(reading, out)
    }

    /// The value of a header that has a line of its own, without its name.
    fn write_positional(&self, name: &str, out: &mut Vec<u8>) -> Result<(), AuthError> {
        match self.head.headers.get(name) {
            Some(_) => self.write_values(name, out),
            None => {
                let value = hoisted(self).find(|(own, _)| own == name).map(|(_, value)| value).unwrap_or_default();
                write_hoisted(&value, out)?;
            }
        }
        out.push(b'\n');
        Ok(())
    }

    fn write_values(&self, name: &str, out: &mut Vec<u8>) {
        for (index, value) in self.head.headers.get_all(name).iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(value.as_bytes().trim_ascii());
        }
    }

    fn write_amz_headers(&self, out: &mut Vec<u8>) -> Result<(), AuthError> {
        let names = self.head.headers.keys().map(http::HeaderName::as_str);
        let mut found: Vec<(&str, Option<String>)> =
            names.filter(|name| name.starts_with(AMZ)).map(|name| (name, None)).collect();
        let from_query: Vec<(String, String)> = hoisted(self).filter(|(name, _)| name.starts_with(AMZ)).collect();
        for (name, value) in &from_query {
            if !self.head.headers.contains_key(name) {
                found.push((name, Some(value.clone())));
            }
        }
        found.sort_unstable();
        for (name, value) in found {
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            match value {
                None => self.write_values(name, out),
                Some(value) => write_hoisted(&value, out)?,
            }
            out.push(b'\n');
        }
        Ok(())
    }

    fn write_resource(&self, reading: Reading, out: &mut Vec<u8>) -> Result<(), AuthError> {
        if let Some(bucket) = self.head.host_bucket {
            out.push(b'/');
            out.extend_from_slice(bucket.as_bytes());
        }
        match self.head.path {
            "" => out.push(b'/'),
            path if reading.encoded_path => reencode(path, Plus::Itself, Slash::Kept, out),
            path => out.extend_from_slice(path.as_bytes()),
        }
        let is_bucket = self.head.host_bucket.is_none() && self.head.path.rfind('/') == Some(0);
        if reading.closed_bucket && is_bucket && self.head.path != "/" {
            out.push(b'/');
        }
        if self.head.query.is_empty() {
            return Ok(());
        }
        let mut covered: Vec<(&str, String)> = Vec::new();
        for (raw_name, raw_value) in pairs(self.head.query) {
            let name = decode(raw_name).ok_or(NOT_ENCODED)?;
            let Ok(given) = SUBRESOURCES.binary_search(&name.as_str()) else { continue };
            let value = if reading.raw_values { raw_value.to_owned() } else { decode(raw_value).ok_or(NOT_ENCODED)? };
            covered.push((SUBRESOURCES[given], value));
        }
        covered.sort();
        for (index, (name, value)) in covered.iter().enumerate() {
            out.push(if index == 0 { b'?' } else { b'&' });
            out.extend_from_slice(name.as_bytes());
            if !value.is_empty() {
                out.push(b'=');
                out.extend_from_slice(value.as_bytes());
            }
        }
        Ok(())
    }
}

const AMZ: &str = "x-amz-";
const NOT_ENCODED: AuthError = AuthError::MalformedV2("a query parameter is not percent-encoded UTF-8");

/// Parameters that stand for headers, with decoded lower-case names.
fn hoisted(canonical: &Canonical<'_>) -> impl Iterator<Item = (String, String)> {
    let query = if canonical.in_query { canonical.head.query } else { "" };
    super::super::hoisted::parameters(query)
}

/// A value that is invalid in a header could imitate several lines, so it is refused.
fn write_hoisted(value: &str, out: &mut Vec<u8>) -> Result<(), AuthError> {
    if value.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(AuthError::MalformedV2("a query parameter that stands for a header holds control bytes"));
    }
    out.extend_from_slice(value.trim().as_bytes());
    Ok(())
}
