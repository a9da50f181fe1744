//! What a server of one bucket, which is another store's, refuses.
//!
//! Why:        objects, their content types and user metadata go on to the other store. A setting of the bucket, a tag, an access
//!             list or an encryption would be kept here alone: whoever asks the other store would not find it, and whoever loses
//!             this server's disk would lose it.
//! Invariants: B1 a bucket with another name is not there, whatever the request is.
//!             B2 what changes something is refused, unless it is listed here.
//! Not here:   sending what is accepted (margay-upstream).

use http::HeaderMap;

use crate::error::{Code, S3Error};
use crate::headers::copy_source::parse_copy_source;
use crate::route::operation::{Method, Operation};
use crate::route::policy::Op;
use crate::route::target::Target;

/// Header names, or beginnings that end in `-`, and the values that promise nothing; none: it is refused with any value.
const REFUSED: &[(&str, &[&str])] = &[
    ("expires", &[]),
    ("x-amz-acl", &["", "private", "bucket-owner-full-control"]),
    ("x-amz-grant-", &[]),
    ("x-amz-object-lock-", &[]),
    ("x-amz-server-side-encryption", &[]),
    ("x-amz-server-side-encryption-", &[]),
    ("x-amz-tagging", &[]),
    ("x-amz-website-redirect-location", &[]),
    ("x-amz-write-offset-bytes", &[]),
];

/// Temporary objects of what sends are below it in the other store (margay-upstream): whatever else is there is removed.
const TEMPORARY: &str = ".margay-tmp/";

/// User metadata of an object that the other store takes besides what a file has: mode, owner, times and the number of the
/// write, in bytes.
const METADATA_BYTES_MAX: usize = 2048 - 256;

/// Operations that change something and go on to the other store, or end here; `CreateBucket` says that it is there.
fn is_passed_on(op: Op) -> bool {
    matches!(
        op,
        Op::AbortMultipartUpload
            | Op::CompleteMultipartUpload
            | Op::CopyObject
            | Op::CreateBucket
            | Op::CreateMultipartUpload
            | Op::DeleteObject
            | Op::DeleteObjects
            | Op::PutObject
            | Op::RenameObject
            | Op::SelectObjectContent
            | Op::UploadPart
            | Op::UploadPartCopy
    )
}

/// Of a key that ends in `/` the other store gets the marker of the directory, with its attributes and no content.
fn makes_object(op: Op) -> bool {
    matches!(op, Op::CopyObject | Op::CreateMultipartUpload | Op::PutObject | Op::RenameObject)
}

/// Refuses what only the server of a volume of its own can do. `own`: the name of the bucket.
pub(crate) fn refuse(
    own: &str,
    operation: &Operation,
    op: Op,
    target: &Target,
    headers: &HeaderMap,
) -> Result<(), S3Error> {
    let refused = |what: &str| Err(S3Error::not_implemented(&format!("{what} for {own}, a bucket of another store,")));
    let reads = matches!(operation.method, Method::Get | Method::Head);
    if op == Op::CreateBucket && target.bucket != own {
        let message = format!("A bucket beside {own}, which is another store's, is not implemented by this server");
        return Err(S3Error::new(Code::NotImplemented, message));
    }
    let source = headers.get("x-amz-copy-source").and_then(|source| source.to_str().ok());
    let source = source.map(|source| parse_copy_source("x-amz-copy-source", source)).transpose()?;
    let is_other = |bucket: &str| !bucket.is_empty() && bucket != own;
    if is_other(&target.bucket) || source.is_some_and(|source| is_other(&source.bucket)) {
        return Err(Code::NoSuchBucket.into());
    }
    if !reads && !is_passed_on(op) {
        return refused(&format!("operation {}", operation.name));
    }
    if !reads && target.key.starts_with(TEMPORARY) {
        return Err(S3Error::new(Code::AccessDenied, format!("Keys below {TEMPORARY} are not for clients")));
    }
    if makes_object(op) && target.key.ends_with('/') {
        return refused("an object whose key ends in /");
    }
    for (name, value) in headers.iter().filter(|_| !reads) {
        let fits = |own: &str| name == own || own.ends_with('-') && name.as_str().starts_with(own);
        let Some((_, harmless)) = REFUSED.iter().find(|(own, _)| fits(own)) else { continue };
        if !harmless.iter().any(|harmless| value.as_bytes() == harmless.as_bytes()) {
            return refused(&format!("header {name} of {}", operation.name));
        }
    }
    let own = |name: &str, value: usize| Some(name.strip_prefix("x-amz-meta-")?.len() + value);
    let bytes: usize = headers.iter().filter_map(|(name, value)| own(name.as_str(), value.len())).sum();
    if bytes > METADATA_BYTES_MAX { Err(Code::MetadataTooLarge.into()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use margay_volume as volume;

    use super::*;
    use crate::route::{named, policy};

    fn outcome(name: &'static str, bucket: &str, headers: &[(&'static str, &'static str)]) -> Result<(), Code> {
        outcome_of(name, (bucket, "key"), headers)
    }

    fn outcome_of(
        name: &'static str,
        (bucket, key): (&str, &str),
        headers: &[(&'static str, &'static str)],
    ) -> Result<(), Code> {
        let operation = named(name);
        let op = policy::policy(operation).unwrap().op;
        let target = Target { bucket: bucket.to_owned(), key: key.to_owned(), virtual_host: false };
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), http::HeaderValue::from_static(value)));
        refuse("photos", operation, op, &target, &headers.collect()).map_err(|error| error.code)
    }

    #[test]
    fn only_objects_of_the_bucket_are_changed() {
        for name in
            ["GetObject", "PutObject", "DeleteObjects", "CreateBucket", "GetBucketVersioning", "GetBucketPolicy"]
        {
            assert_eq!(outcome(name, "photos", &[]), Ok(()), "{name}");
        }
        assert_eq!(outcome("ListBuckets", "", &[]), Ok(()));
        for name in ["PutBucketVersioning", "PutBucketPolicy", "PutObjectTagging", "DeleteBucket", "PutObjectAcl"] {
            assert_eq!(outcome(name, "photos", &[]), Err(Code::NotImplemented), "{name}");
        }
        for name in ["GetObject", "PutObject", "PutBucketPolicy", "HeadBucket"] {
            assert_eq!(outcome(name, "kept", &[]), Err(Code::NoSuchBucket), "{name}");
        }
        assert_eq!(outcome("CreateBucket", "other", &[]), Err(Code::NotImplemented));
        assert_eq!(outcome("CopyObject", "photos", &[("x-amz-copy-source", "/photos/a")]), Ok(()));
        assert_eq!(outcome("CopyObject", "photos", &[("x-amz-copy-source", "kept/a")]), Err(Code::NoSuchBucket));
    }

    #[test]
    fn what_the_other_store_would_not_get_is_refused() {
        for name in ["PutObject", "CopyObject", "CreateMultipartUpload"] {
            assert_eq!(outcome_of(name, ("photos", "d/"), &[]), Err(Code::NotImplemented), "{name}");
        }
        assert_eq!(outcome_of("DeleteObject", ("photos", "d/"), &[]), Ok(()));
        assert_eq!(outcome_of("GetObject", ("photos", "d/"), &[]), Ok(()));
        assert_eq!(outcome("PutObject", "photos", &[("x-amz-acl", "private"), ("content-type", "a/b")]), Ok(()));
        for header in [
            ("x-amz-acl", "public-read"),
            ("x-amz-tagging", "a=b"),
            ("x-amz-server-side-encryption", "AES256"),
            ("x-amz-server-side-encryption-customer-key", "k"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-grant-read", "id=a"),
            ("expires", "0"),
        ] {
            assert_eq!(outcome("PutObject", "photos", &[header]), Err(Code::NotImplemented), "{header:?}");
        }
    }

    #[test]
    fn bytes_of_the_other_store_that_do_not_come_are_no_fault_inside() {
        let of =
            |kind: io::ErrorKind| S3Error::from(volume::Error::Io(io::Error::new(kind, "no answer for 30 s"))).code;
        assert_eq!(of(io::ErrorKind::TimedOut), Code::ServiceUnavailable);
        assert_eq!(of(io::ErrorKind::Other), Code::InternalError);
    }
}
