//! Headers and query parameters that are accepted beyond AWS's model, each with its reason.
//!
//! Why:        SDKs send headers that AWS's model of an operation lacks. One that has no effect here must not make the
//!             client fail; one that would change what is stored or returned must not be ignored.
//! Invariants: B1 an entry is accepted because it is checked, because it is obeyed, or because the listed values have
//!                no effect; its reason says which. Everything else is refused by name (`refuse`).
//! Not here:   what the model has and this door implements (`policy`).

use super::operation::{Method, Operation};
use super::policy::Accept::{self, Any, Only};
use super::policy::{CHECKSUMS, Policy};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Header,
    Query,
}

/// The operations that may have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Every,
    /// Operations that read a body.
    Body,
    /// Operations that read no body and change nothing.
    Read,
    /// Operations that read no body and change something.
    Bodiless,
    One(&'static str),
}

impl Of {
    fn has(self, operation: &Operation, policy: &Policy) -> bool {
        let reads = matches!(operation.method, Method::Get | Method::Head);
        match self {
            Of::Every => true,
            Of::Body => policy.body,
            Of::Read => !policy.body && reads,
            Of::Bodiless => !policy.body && !reads,
            Of::One(name) => operation.name == name,
        }
    }

    /// As named in docs/s3-operations.md.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Of::Every => "all",
            Of::Body => "all that read a body",
            Of::Read => "GET and HEAD",
            Of::Bodiless => "all others",
            Of::One(name) => name,
        }
    }
}

pub(crate) struct Beyond {
    pub of: Of,
    pub kind: Kind,
    /// A name that ends in `-` is a prefix.
    pub name: &'static str,
    pub accept: Accept,
    pub why: &'static str,
}

const fn header(of: Of, name: &'static str, accept: Accept, why: &'static str) -> Beyond {
    Beyond { of, kind: Kind::Header, name, accept, why }
}

const fn query(of: Of, name: &'static str, accept: Accept, why: &'static str) -> Beyond {
    Beyond { of, kind: Kind::Query, name, accept, why }
}

use Of::{Bodiless, Body, Every, One, Read};

const SIGNATURE: &str = "checked with the signature";
const COMPARED: &str = "compared with the body";
const OF_NOTHING: &str = "the checksum of the request's body, which has no bytes; SDKs send it unasked";
/// The version of S3's API, sent by clients generated from its model.
const API_VERSION: Accept = Only(&["2006-03-01"]);

pub(crate) static BEYOND: &[Beyond] = &[
    header(
        Every,
        "x-amz-acl",
        Only(&[""]),
        "fsspec's s3fs sends it empty for no wish; other values where it is listed",
    ),
    header(
        Every,
        "x-amz-api-version",
        API_VERSION,
        "the AWS SDK for C++ (and so pyarrow) names the API that is spoken",
    ),
    header(Every, "x-amz-cf-id", Any, "set by a CDN for its own traces"),
    header(
        Every,
        "x-amz-checksum-mode",
        Only(&["ENABLED"]),
        "asks for a checksum in the answer; only objects have one",
    ),
    header(Every, "x-amz-content-sha256", Any, SIGNATURE),
    header(Every, "x-amz-date", Any, SIGNATURE),
    header(Every, "x-amz-decoded-content-length", Any, "checked with the body"),
    header(Every, "x-amz-id-", Any, "names an earlier answer"),
    header(
        Every,
        "x-amz-request-payer",
        Only(&["requester"]),
        "agrees to pay; nobody is charged (s3a sends it everywhere)",
    ),
    header(Every, "x-amz-sdk-", Any, "describes the client"),
    header(Every, "x-amz-security-token", Any, SIGNATURE),
    header(Every, "x-amz-storage-class", Only(&[""]), "as x-amz-acl"),
    header(
        Every,
        "x-amz-te",
        Only(&["append-md5"]),
        "the AWS SDK for Java offers to take an MD5 behind the answer's body; \
        an answer without x-amz-transfer-encoding has none",
    ),
    header(Every, "x-amz-trailer", Any, "checked with the body"),
    header(Every, "x-amz-user-agent", Any, "describes the client"),
    query(Every, "AWSAccessKeyId", Any, SIGNATURE),
    query(Every, "Expires", Any, SIGNATURE),
    query(Every, "Signature", Any, SIGNATURE),
    query(Every, "Version", API_VERSION, "libcloud names the API that is spoken"),
    query(Every, "x-id", Any, "repeats the operation's name"),
    query(Every, "X-Amz-Algorithm", Any, SIGNATURE),
    query(Every, "X-Amz-Content-Sha256", Any, SIGNATURE),
    query(Every, "X-Amz-Credential", Any, SIGNATURE),
    query(Every, "X-Amz-Date", Any, SIGNATURE),
    query(Every, "X-Amz-Expires", Any, SIGNATURE),
    query(Every, "X-Amz-Security-Token", Any, SIGNATURE),
    query(Every, "X-Amz-Signature", Any, SIGNATURE),
    query(Every, "X-Amz-SignedHeaders", Any, SIGNATURE),
    query(Every, "X-Amz-User-Agent", Any, "describes the client that made a presigned URL"),
    header(Body, "content-md5", Any, COMPARED),
    header(Body, "x-amz-checksum-crc32", Any, COMPARED),
    header(Body, "x-amz-checksum-crc32c", Any, COMPARED),
    header(Body, "x-amz-checksum-crc64nvme", Any, COMPARED),
    header(Body, "x-amz-checksum-sha1", Any, COMPARED),
    header(Body, "x-amz-checksum-sha256", Any, COMPARED),
    header(Read, "x-amz-checksum-crc32", Any, "speaks of the request's body, which is not read; the AWS SDK for Java"),
    header(Read, "x-amz-checksum-crc32c", Any, "as x-amz-checksum-crc32"),
    header(Read, "x-amz-checksum-crc64nvme", Any, "as x-amz-checksum-crc32"),
    header(Read, "x-amz-checksum-sha1", Any, "as x-amz-checksum-crc32"),
    header(Read, "x-amz-checksum-sha256", Any, "as x-amz-checksum-crc32"),
    header(Bodiless, "x-amz-checksum-crc32", Only(&["AAAAAA=="]), OF_NOTHING),
    header(Bodiless, "x-amz-checksum-crc32c", Only(&["AAAAAA=="]), OF_NOTHING),
    header(Bodiless, "x-amz-checksum-crc64nvme", Only(&["AAAAAAAAAAA="]), OF_NOTHING),
    header(Bodiless, "x-amz-checksum-sha1", Only(&["2jmj7l5rSw0yVb/vlWAYkK/YBwk="]), OF_NOTHING),
    header(Bodiless, "x-amz-checksum-sha256", Only(&["47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="]), OF_NOTHING),
    header(
        One("PutObject"),
        "x-amz-checksum-algorithm",
        Only(CHECKSUMS),
        "minio-go names so the checksum that it \
        sends; alone, it asks for one to be computed and kept",
    ),
    header(
        One("PutObject"),
        "x-amz-checksum-type",
        Only(&["FULL_OBJECT"]),
        "what the checksum of a body in one piece is; minio-go says it with CRC64NVME",
    ),
    header(One("UploadPart"), "x-amz-checksum-algorithm", Only(CHECKSUMS), "as PutObject"),
    header(One("GetObject"), "if-range", Any, "HTTP clients resume downloads with it"),
    header(One("GetObject"), "x-amz-server-side-encryption", Any, "it is InvalidArgument, as at AWS"),
    header(One("GetObject"), "x-amz-server-side-encryption-aws-kms-key-id", Any, "it is InvalidArgument, as at AWS"),
    header(One("HeadObject"), "x-amz-server-side-encryption", Any, "it is InvalidArgument, as at AWS"),
    header(One("HeadObject"), "x-amz-server-side-encryption-aws-kms-key-id", Any, "it is InvalidArgument, as at AWS"),
    header(One("HeadObject"), "if-range", Any, "as GetObject"),
    header(
        One("UploadPart"),
        "x-amz-server-side-encryption",
        Any,
        "clients repeat what the upload says; anything else \
        is refused",
    ),
    header(One("UploadPart"), "x-amz-server-side-encryption-aws-kms-key-id", Any, "as x-amz-server-side-encryption"),
    header(One("UploadPartCopy"), "x-amz-server-side-encryption", Any, "as UploadPart"),
    header(One("UploadPartCopy"), "x-amz-server-side-encryption-aws-kms-key-id", Any, "as UploadPart"),
    header(One("CompleteMultipartUpload"), "x-amz-server-side-encryption", Any, "as UploadPart"),
    header(One("CompleteMultipartUpload"), "x-amz-server-side-encryption-aws-kms-key-id", Any, "as UploadPart"),
    header(
        One("CreateMultipartUpload"),
        "x-amz-metadata-directive",
        Only(&["REPLACE"]),
        "s3fs begins a copy in parts so; an upload has its own metadata in any case",
    ),
    header(
        One("GetObject"),
        "x-amz-tagging-directive",
        Only(&["ACCESS", "COPY", "REPLACE"]),
        "MinIO's extension: with `ACCESS` the answer has x-amz-tagging, where the caller may read the tags; mc mirror sends it",
    ),
    header(One("HeadObject"), "x-amz-tagging-directive", Only(&["ACCESS", "COPY", "REPLACE"]), "as GetObject"),
    header(One("CreateBucket"), "x-amz-expected-bucket-owner", Any, "some tools send it everywhere; it is checked"),
    query(One("ListObjects"), "bucket", Any, "a form's success_action_redirect may lead here; it decides nothing"),
    query(One("ListObjects"), "etag", Any, "as bucket"),
    query(One("ListObjects"), "key", Any, "as bucket"),
    query(
        One("ListObjectsV2"),
        "metadata",
        Only(&["true", "false"]),
        "MinIO's extension: with `true` each object has UserMetadata, which is what HEAD says of it, and UserTags, where the caller may read them",
    ),
];

/// The entries that accept a header or parameter of an operation.
pub(crate) fn accepts(operation: &Operation, policy: &Policy, kind: Kind, name: &str) -> impl Iterator<Item = Accept> {
    let fits = move |own: &&Beyond| {
        own.kind == kind
            && (own.name == name || (own.name.ends_with('-') && name.starts_with(own.name)))
            && own.of.has(operation, policy)
    };
    BEYOND.iter().filter(fits).map(|own| own.accept)
}
