//! Refuses headers and query parameters that an operation does not implement, by name.
//!
//! Invariants: F1 whatever passes is read by the operation, by the signature or payload layer, or listed in `beyond`.

use http::HeaderMap;

use super::beyond::{self, Kind};
use super::operation::Operation;
use super::policy::{Accept, Policy};
use super::query::Query;
use crate::error::S3Error;

/// Conditions outside `x-amz-` that change what an operation does; ignoring one could destroy data.
const CONDITIONS: &[&str] = &["if-match", "if-none-match", "if-modified-since", "if-unmodified-since", "if-range"];

/// HTTP headers that clients send with every body, even if the operation does not read it.
const DESCRIBE_THE_BODY: &[&str] = &["content-length", "content-md5", "content-type"];

/// Refuses the first header or query parameter that the operation does not implement.
pub(crate) fn refuse(
    operation: &Operation,
    policy: &Policy,
    query: &Query,
    headers: &HeaderMap,
) -> Result<(), S3Error> {
    for (name, value) in query.pairs() {
        if !operation.fixed_query.iter().any(|(fixed, _)| *fixed == name) {
            let accepts = policy.query_parameter(name).into_iter();
            let accepts = accepts.chain(beyond::accepts(operation, policy, Kind::Query, name));
            check(operation, "query parameter", (name, value.as_bytes()), accepts)?;
        }
    }
    for (name, value) in headers {
        let name = name.as_str();
        let own = policy.header(name);
        if own.is_some() || needs_support(operation, name) {
            let accepts = own.into_iter().chain(beyond::accepts(operation, policy, Kind::Header, name));
            check(operation, "header", (name, value.as_bytes()), accepts)?;
        }
    }
    Ok(())
}

fn needs_support(operation: &Operation, name: &str) -> bool {
    let of_the_model = operation.headers.contains(&name) && !DESCRIBE_THE_BODY.contains(&name);
    name.starts_with("x-amz-") || CONDITIONS.contains(&name) || of_the_model
}

/// Refuses a parameter that no entry accepts: by its value if other values are accepted, else by its name.
fn check(
    operation: &Operation,
    kind: &str,
    (name, value): (&str, &[u8]),
    accepts: impl Iterator<Item = Accept>,
) -> Result<(), S3Error> {
    let mut is_known = false;
    for accept in accepts {
        if accept.permits(value) {
            return Ok(());
        }
        // An entry for the empty value says nothing about other values.
        is_known |= accept != Accept::Only(&[""]);
    }
    if is_known {
        let value = String::from_utf8_lossy(value);
        return Err(S3Error::not_implemented(&format!("{kind} {name} with the value {value} of {}", operation.name)));
    }
    Err(S3Error::not_implemented(&format!("{kind} {name} of {}", operation.name)))
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

    /// As observed from clients.
    #[test]
    fn what_clients_send_unasked_passes() {
        let java = [("x-amz-te", "append-md5"), ("x-amz-checksum-crc32", "AAAAAA=="), ("amz-sdk-request", "attempt=1")];
        outcome("GetObject", "", &java).unwrap();
        outcome("HeadObject", "", &java).unwrap();
        outcome("DeleteObject", "", &java[1..2]).unwrap();
        let cpp = [("x-amz-api-version", "2006-03-01"), ("amz-sdk-invocation-id", "x")];
        let fsspec = [("x-amz-acl", ""), ("x-amz-storage-class", "")];
        let payer = [("x-amz-request-payer", "requester"), ("x-amz-checksum-mode", "ENABLED")];
        let minio = [("x-amz-checksum-algorithm", "CRC32C"), ("x-amz-checksum-crc32c", "AAAAAA==")];
        for name in ["PutObject", "CreateMultipartUpload", "ListBuckets", "GetBucketLocation", "CopyObject"] {
            for headers in [&cpp[..], &fsspec, &payer] {
                outcome(name, "Version=2006-03-01", headers).unwrap();
            }
        }
        for name in ["PutObject", "UploadPart", "CopyObject"] {
            outcome(name, "", &minio).unwrap();
        }
    }

    #[test]
    fn everything_else_is_refused_by_name() {
        for (operation, query, headers, named) in [
            ("PutObject", "", &[("x-amz-server-side-encryption-context", "e30=")][..], "encryption-context"),
            ("PutObject", "", &[("x-amz-checksum-sha512", "a")], "x-amz-checksum-sha512"),
            ("PutObject", "", &[("x-amz-brand-new", "a")], "x-amz-brand-new"),
            ("CopyObject", "", &[("x-amz-checksum-crc32", "a")], "x-amz-checksum-crc32"),
            ("GetObject", "", &[("x-amz-te", "trailers")], "x-amz-te"),
            ("GetObject", "", &[("x-amz-api-version", "2030-01-01")], "x-amz-api-version"),
            ("GetObject", "", &[("x-amz-acl", "public-read")], "x-amz-acl of GetObject"),
            ("GetObject", "", &[("x-amz-checksum-algorithm", "CRC32")], "x-amz-checksum-algorithm"),
            ("PutObject", "", &[("x-amz-checksum-algorithm", "XXHASH64")], "XXHASH64"),
            ("PutObject", "", &[("x-amz-storage-class", "GLACIER")], "GLACIER"),
            ("ListObjectsV2", "list-type=2&Version=2011-06-15", &[], "Version"),
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
