//! Refusals by name: headers and query parameters that an operation does not implement.
//!
//! Invariants: whatever passes is read by the operation, by the signature or payload layer, or listed in `HARMLESS`.

use http::HeaderMap;

use super::operation::Operation;
use super::policy::{Accept, Policy};
use super::query::Query;
use crate::error::S3Error;

/// Headers that every operation takes: the signature and payload layers read them, or they only describe the client.
/// A name that ends in `-` is a beginning.
pub(crate) const HARMLESS: &[(&str, &str)] = &[
    ("x-amz-cf-id", "set by a CDN for its own traces"),
    ("x-amz-content-sha256", "checked with the signature"),
    ("x-amz-date", "checked with the signature"),
    ("x-amz-decoded-content-length", "checked with the body"),
    ("x-amz-id-", "names an earlier answer"),
    ("x-amz-sdk-", "describes the client"),
    ("x-amz-security-token", "checked with the signature"),
    ("x-amz-trailer", "checked with the body"),
    ("x-amz-user-agent", "describes the client"),
];

/// Query parameters that every operation takes.
pub(crate) const HARMLESS_QUERY: &[(&str, &str)] = &[
    ("AWSAccessKeyId", "checked with the signature"),
    ("Expires", "checked with the signature"),
    ("Signature", "checked with the signature"),
    ("x-id", "repeats the operation's name"),
    ("X-Amz-Algorithm", "checked with the signature"),
    ("X-Amz-Content-Sha256", "checked with the signature"),
    ("X-Amz-Credential", "checked with the signature"),
    ("X-Amz-Date", "checked with the signature"),
    ("X-Amz-Expires", "checked with the signature"),
    ("X-Amz-Security-Token", "checked with the signature"),
    ("X-Amz-Signature", "checked with the signature"),
    ("X-Amz-SignedHeaders", "checked with the signature"),
];

/// Checksums of the payload: taken wherever a body is read, since the payload layer compares them.
const PAYLOAD_CHECKSUMS: &[&str] = &[
    "content-md5",
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// Conditions outside `x-amz-` that change what an operation does; ignoring one could destroy data.
const CONDITIONS: &[&str] = &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"];

/// Headers of HTTP that clients send with every body, whether or not the operation reads one.
const DESCRIBE_THE_BODY: &[&str] = &["content-length", "content-md5", "content-type"];

/// Refuses the first header or query parameter that the operation does not implement.
pub(crate) fn refuse(
    operation: &Operation,
    policy: &Policy,
    query: &Query,
    headers: &HeaderMap,
) -> Result<(), S3Error> {
    for (name, value) in query.pairs() {
        let fixed = operation.fixed_query.iter().any(|(fixed, _)| *fixed == name);
        if fixed || HARMLESS_QUERY.iter().any(|(harmless, _)| *harmless == name) {
            continue;
        }
        match policy.query_parameter(name) {
            Some(accept) => check_value("query parameter", name, value.as_bytes(), accept)?,
            None => return Err(missing(operation, "query parameter", name)),
        }
    }
    for (name, value) in headers {
        let name = name.as_str();
        if let Some(accept) = policy.header(name) {
            check_value("header", name, value.as_bytes(), accept)?;
        } else if needs_support(operation, name)
            && !(policy.body && PAYLOAD_CHECKSUMS.contains(&name))
            && !is_harmless(name)
        {
            return Err(missing(operation, "header", name));
        }
    }
    Ok(())
}

fn needs_support(operation: &Operation, name: &str) -> bool {
    let of_the_model = operation.headers.contains(&name) && !DESCRIBE_THE_BODY.contains(&name);
    name.starts_with("x-amz-") || CONDITIONS.contains(&name) || of_the_model
}

fn is_harmless(name: &str) -> bool {
    HARMLESS.iter().any(|(own, _)| *own == name || (own.ends_with('-') && name.starts_with(own)))
}

fn missing(operation: &Operation, kind: &str, name: &str) -> S3Error {
    S3Error::not_implemented(&format!("{kind} {name} of {}", operation.name))
}

fn check_value(kind: &str, name: &str, value: &[u8], accept: Accept) -> Result<(), S3Error> {
    let Accept::Only(values) = accept else { return Ok(()) };
    if values.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(value)) {
        return Ok(());
    }
    let value = String::from_utf8_lossy(value);
    Err(S3Error::not_implemented(&format!("{kind} {name} with the value {value}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::route::{model, policy};

    fn outcome(name: &str, query: &str, headers: &[(&'static str, &'static str)]) -> Result<(), S3Error> {
        let operation = model::OPERATIONS.iter().find(|operation| operation.name == name).unwrap();
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
        let query = Query::parse(query).unwrap();
        refuse(operation, policy::policy(operation).unwrap(), &query, &headers.collect())
    }

    #[test]
    fn what_is_implemented_or_harmless_passes() {
        outcome(
            "PutObject",
            "x-id=PutObject",
            &[
                ("x-amz-meta-anything", "1"),
                ("x-amz-date", "d"),
                ("x-amz-sdk-checksum-algorithm", "CRC32"),
                ("x-amz-checksum-crc32", "AAAAAA=="),
                ("x-amz-acl", "private"),
                ("if-none-match", "*"),
                ("x-forwarded-for", "1.2.3.4"),
            ],
        )
        .unwrap();
        outcome("ListObjectsV2", "list-type=2&prefix=a&X-Amz-Signature=s", &[("content-type", "x")]).unwrap();
        outcome("DeleteObjects", "delete", &[("content-md5", "x"), ("x-amz-checksum-crc32", "y")]).unwrap();
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for (operation, query, headers, named) in [
            ("PutObject", "", &[("x-amz-server-side-encryption-context", "e30=")][..], "encryption-context"),
            ("PutObject", "", &[("x-amz-checksum-sha512", "a")], "x-amz-checksum-sha512"),
            ("PutObject", "", &[("x-amz-brand-new", "a")], "x-amz-brand-new"),
            ("GetObject", "", &[("x-amz-checksum-crc32", "a")], "x-amz-checksum-crc32"),
            ("GetObject", "torrents", &[], "torrents"),
            ("DeleteObject", "", &[("if-unmodified-since", "x")], "if-unmodified-since"),
            ("ListObjects", "list-type=1", &[], "list-type"),
        ] {
            let error = outcome(operation, query, headers).unwrap_err();
            assert_eq!(error.code, Code::NotImplemented);
            assert!(error.message.contains(named), "{error} should name {named}");
        }
    }
}
