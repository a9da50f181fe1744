//! The implemented operations, with their headers and query parameters.
//!
//! Why:        the router, the refusals and the table in the docs are three views of this list.
//! Invariants: Y1 every entry exists in the model (a test checks it).
//! Not here:   what is accepted beyond the model (`beyond`), the meaning of values (op), refusing the rest (`refuse`).

use std::sync::LazyLock;

use super::model::OPERATIONS;
use super::operation::Operation;

/// How a header or query parameter is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accept {
    Any,
    /// Only these values; others are refused by name.
    Only(&'static [&'static str]),
}

impl Accept {
    pub(crate) fn permits(self, value: &[u8]) -> bool {
        match self {
            Accept::Any => true,
            Accept::Only(values) => values.iter().any(|own| own.as_bytes().eq_ignore_ascii_case(value)),
        }
    }
}

pub(crate) type Param = (&'static str, Accept);

use Accept::{Any, Only};

#[derive(Debug)]
pub(crate) struct Policy {
    pub op: Op,
    pub query: &'static [&'static [Param]],
    pub headers: &'static [&'static [Param]],
    /// Whether the operation reads the request's body (and so its checksums).
    pub body: bool,
}

macro_rules! implemented {
    ($($name:ident $body:literal query $query:expr, headers $headers:expr;)*) => {
        /// The implemented operations.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Op { $($name),* }

        impl Op {
            /// The name in the model.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Op::$name => stringify!($name)),* }
            }
        }

        pub(crate) static POLICIES: &[Policy] =
            &[$(Policy { op: Op::$name, query: &$query, headers: &$headers, body: $body }),*];
    };
}

const PAYER: Param = ("x-amz-request-payer", Only(&["requester"]));
const OWNER: &[Param] = &[("x-amz-expected-bucket-owner", Any)];
const OBJECT: &[Param] = &[("x-amz-expected-bucket-owner", Any), PAYER];
const VERSION: &[Param] = &[("versionId", Any)];
const CONTENT: &[Param] = &[
    ("cache-control", Any),
    ("content-disposition", Any),
    ("content-encoding", Any),
    ("content-language", Any),
    ("content-type", Any),
    ("expires", Any),
    ("x-amz-meta-", Any),
    ("x-amz-storage-class", Only(&["STANDARD"])),
    ("x-amz-website-redirect-location", Any),
];
/// Access lists by headers.
const ACL: &[Param] = &[
    ("x-amz-acl", Any),
    ("x-amz-grant-full-control", Any),
    ("x-amz-grant-read", Any),
    ("x-amz-grant-read-acp", Any),
    ("x-amz-grant-write-acp", Any),
];
const BUCKET_ACL: &[Param] = &[("x-amz-grant-write", Any)];
const BODY: &[Param] =
    &[("content-length", Any), ("content-md5", Any), ("x-amz-sdk-checksum-algorithm", Only(CHECKSUMS))];
const LOCKS: &[Param] = &[
    ("x-amz-object-lock-legal-hold", Any),
    ("x-amz-object-lock-mode", Any),
    ("x-amz-object-lock-retain-until-date", Any),
];
/// Names of the checksum algorithms.
pub(crate) const CHECKSUMS: &[&str] = &["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"];
/// For operations whose body is a settings document.
const SETTING: &[Param] =
    &[("content-md5", Any), ("x-amz-expected-bucket-owner", Any), ("x-amz-sdk-checksum-algorithm", Only(CHECKSUMS))];
const TAGGING: &[Param] = &[("x-amz-tagging", Any)];
const CHECKSUM_VALUES: &[Param] = &[
    ("x-amz-checksum-crc32", Any),
    ("x-amz-checksum-crc32c", Any),
    ("x-amz-checksum-crc64nvme", Any),
    ("x-amz-checksum-sha1", Any),
    ("x-amz-checksum-sha256", Any),
];
/// For writes; the operation decides which values are valid.
const ENCRYPTION: &[Param] = &[
    ("x-amz-server-side-encryption", Any),
    ("x-amz-server-side-encryption-aws-kms-key-id", Any),
    ("x-amz-server-side-encryption-bucket-key-enabled", Only(&["false"])),
];
const CUSTOMER_KEY: &[Param] = &[
    ("x-amz-server-side-encryption-customer-algorithm", Any),
    ("x-amz-server-side-encryption-customer-key", Any),
    ("x-amz-server-side-encryption-customer-key-md5", Any),
];
const SOURCE_CUSTOMER_KEY: &[Param] = &[
    ("x-amz-copy-source-server-side-encryption-customer-algorithm", Any),
    ("x-amz-copy-source-server-side-encryption-customer-key", Any),
    ("x-amz-copy-source-server-side-encryption-customer-key-md5", Any),
];
const WRITE_CONDITION: &[Param] = &[("if-match", Any), ("if-none-match", Any)];
const READ_CONDITION: &[Param] =
    &[("if-match", Any), ("if-modified-since", Any), ("if-none-match", Any), ("if-unmodified-since", Any)];
const READ: &[Param] = &[("range", Any), ("x-amz-checksum-mode", Only(&["ENABLED"]))];
const OVERRIDES: &[Param] = &[
    ("partNumber", Any),
    ("response-cache-control", Any),
    ("response-content-disposition", Any),
    ("response-content-encoding", Any),
    ("response-content-language", Any),
    ("response-content-type", Any),
    ("response-expires", Any),
];
const COPY_SOURCE: &[Param] = &[
    ("x-amz-copy-source", Any),
    ("x-amz-copy-source-if-match", Any),
    ("x-amz-copy-source-if-modified-since", Any),
    ("x-amz-copy-source-if-none-match", Any),
    ("x-amz-copy-source-if-unmodified-since", Any),
    ("x-amz-source-expected-bucket-owner", Any),
];
const PART: &[Param] = &[("partNumber", Any), ("uploadId", Any)];
const UPLOAD: &[Param] = &[("uploadId", Any)];
const LIST: &[Param] = &[("delimiter", Any), ("encoding-type", Only(&["url"])), ("prefix", Any)];
const LIST_HEADERS: &[Param] = &[("x-amz-optional-object-attributes", Only(&["RestoreStatus"]))];
implemented! {
    AbortMultipartUpload false query [UPLOAD], headers [OBJECT];
    CompleteMultipartUpload true query [UPLOAD], headers [OBJECT, CUSTOMER_KEY, WRITE_CONDITION, CHECKSUM_VALUES, &[
        ("x-amz-checksum-type", Only(&["COMPOSITE", "FULL_OBJECT"])), ("x-amz-mp-object-size", Any)]];
    CopyObject false query [], headers [OBJECT, CONTENT, ACL, COPY_SOURCE, CUSTOMER_KEY, ENCRYPTION, LOCKS,
        SOURCE_CUSTOMER_KEY, TAGGING, WRITE_CONDITION, &[
        ("x-amz-checksum-algorithm", Only(CHECKSUMS)), ("x-amz-metadata-directive", Only(&["COPY", "REPLACE"])), ("x-amz-tagging-directive", Only(&["COPY", "REPLACE"]))]];
    CreateBucket true query [], headers [ACL, BUCKET_ACL, &[
        ("x-amz-bucket-object-lock-enabled", Only(&["true", "false"])),
        ("x-amz-bucket-namespace", Only(&["global"])), ("x-amz-object-ownership", Any)]];
    CreateMultipartUpload false query [], headers [OBJECT, CONTENT, ACL, CUSTOMER_KEY, ENCRYPTION, LOCKS, TAGGING, &[
        ("x-amz-checksum-algorithm", Only(CHECKSUMS)), ("x-amz-checksum-type", Only(&["COMPOSITE", "FULL_OBJECT"]))]];
    DeleteBucket false query [], headers [OWNER];
    DeleteBucketCors false query [], headers [OWNER];
    DeleteBucketEncryption false query [], headers [OWNER];
    DeleteBucketLifecycle false query [], headers [OWNER];
    DeleteBucketOwnershipControls false query [], headers [OWNER];
    DeleteBucketPolicy false query [], headers [OWNER];
    DeleteBucketReplication false query [], headers [OWNER];
    DeleteBucketTagging false query [], headers [OWNER];
    DeleteBucketWebsite false query [], headers [OWNER];
    DeleteObject false query [VERSION], headers [OBJECT, &[
        ("if-match", Any), ("x-amz-bypass-governance-retention", Any)]];
    DeleteObjectTagging false query [VERSION], headers [OWNER];
    DeleteObjects true query [], headers [OBJECT, &[
        ("x-amz-sdk-checksum-algorithm", Only(CHECKSUMS)), ("x-amz-bypass-governance-retention", Any)]];
    DeletePublicAccessBlock false query [], headers [OWNER];
    GetBucketAccelerateConfiguration false query [], headers [OBJECT];
    GetBucketAcl false query [], headers [OWNER];
    GetBucketCors false query [], headers [OWNER];
    GetBucketEncryption false query [], headers [OWNER];
    GetBucketLifecycleConfiguration false query [], headers [OWNER];
    GetBucketLocation false query [], headers [OWNER];
    GetBucketLogging false query [], headers [OWNER];
    GetBucketNotificationConfiguration false query [], headers [OWNER];
    GetBucketOwnershipControls false query [], headers [OWNER];
    GetBucketPolicy false query [], headers [OWNER];
    GetBucketPolicyStatus false query [], headers [OWNER];
    GetBucketReplication false query [], headers [OWNER];
    GetBucketRequestPayment false query [], headers [OWNER];
    GetBucketTagging false query [], headers [OWNER];
    GetBucketVersioning false query [], headers [OWNER];
    GetBucketWebsite false query [], headers [OWNER];
    GetObject false query [VERSION, OVERRIDES], headers [OBJECT, CUSTOMER_KEY, READ_CONDITION, READ];
    GetObjectAcl false query [VERSION], headers [OBJECT];
    GetObjectAttributes false query [VERSION], headers [OBJECT, CUSTOMER_KEY, &[
        ("x-amz-max-parts", Any), ("x-amz-object-attributes", Any), ("x-amz-part-number-marker", Any)]];
    GetObjectLegalHold false query [VERSION], headers [OBJECT];
    GetObjectLockConfiguration false query [], headers [OWNER];
    GetObjectRetention false query [VERSION], headers [OBJECT];
    GetObjectTagging false query [VERSION], headers [OBJECT];
    GetPublicAccessBlock false query [], headers [OWNER];
    HeadBucket false query [], headers [OWNER];
    HeadObject false query [VERSION, OVERRIDES], headers [OBJECT, CUSTOMER_KEY, READ_CONDITION, READ];
    ListBuckets false query [&[("bucket-region", Any), ("continuation-token", Any), ("max-buckets", Any),
        ("prefix", Any)]], headers [];
    ListMultipartUploads false query [LIST, &[("key-marker", Any), ("max-uploads", Any), ("upload-id-marker", Any)]],
        headers [OBJECT];
    ListObjectVersions false query [LIST, &[("key-marker", Any), ("max-keys", Any), ("version-id-marker", Any)]],
        headers [OBJECT, LIST_HEADERS];
    ListObjects false query [LIST, &[("marker", Any), ("max-keys", Any)]], headers [OBJECT, LIST_HEADERS];
    ListObjectsV2 false query [LIST, &[("continuation-token", Any), ("fetch-owner", Only(&["true", "false"])),
        ("max-keys", Any), ("start-after", Any)]], headers [OBJECT, LIST_HEADERS];
    ListParts false query [UPLOAD, &[("max-parts", Any), ("part-number-marker", Any)]], headers [OBJECT, CUSTOMER_KEY];
    PutBucketAccelerateConfiguration true query [], headers [&[
        ("x-amz-expected-bucket-owner", Any), ("x-amz-sdk-checksum-algorithm", Only(CHECKSUMS))]];
    PutBucketAcl true query [], headers [SETTING, ACL, BUCKET_ACL];
    PutBucketCors true query [], headers [SETTING];
    PutBucketEncryption true query [], headers [SETTING];
    PutBucketOwnershipControls true query [], headers [SETTING];
    PutBucketPolicy true query [], headers [SETTING, &[("x-amz-confirm-remove-self-bucket-access", Any)]];
    PutBucketLifecycleConfiguration true query [], headers [&[
        ("x-amz-expected-bucket-owner", Any), ("x-amz-sdk-checksum-algorithm", Only(CHECKSUMS)),
        ("x-amz-transition-default-minimum-object-size", Only(&["all_storage_classes_128K"]))]];
    PutBucketLogging true query [], headers [SETTING];
    PutBucketNotificationConfiguration true query [], headers [OWNER, &[
        ("x-amz-skip-destination-validation", Only(&["true", "false"]))]];
    PutBucketRequestPayment true query [], headers [SETTING];
    PutBucketTagging true query [], headers [SETTING];
    PutBucketVersioning true query [], headers [SETTING];
    PutBucketWebsite true query [], headers [SETTING];
    PutObject true query [], headers [OBJECT, CONTENT, ACL, BODY, CHECKSUM_VALUES, CUSTOMER_KEY, ENCRYPTION, LOCKS,
        TAGGING, WRITE_CONDITION, &[("x-amz-write-offset-bytes", Any)]];
    PutObjectAcl true query [VERSION], headers [SETTING, ACL, BUCKET_ACL, &[PAYER]];
    PutObjectLegalHold true query [VERSION], headers [SETTING, &[PAYER]];
    PutObjectLockConfiguration true query [], headers [SETTING, &[PAYER]];
    PutObjectRetention true query [VERSION], headers [SETTING, &[PAYER, ("x-amz-bypass-governance-retention", Any)]];
    PutObjectTagging true query [VERSION], headers [SETTING, &[PAYER]];
    PutPublicAccessBlock true query [], headers [SETTING];
    RenameObject false query [], headers [WRITE_CONDITION, &[
        ("x-amz-client-token", Any), ("x-amz-rename-source", Any)]];
    SelectObjectContent true query [], headers [OWNER, CUSTOMER_KEY];
    UploadPart true query [PART], headers [OBJECT, BODY, CHECKSUM_VALUES, CUSTOMER_KEY];
    UploadPartCopy false query [PART], headers [OBJECT, COPY_SOURCE, CUSTOMER_KEY, SOURCE_CUSTOMER_KEY, &[
        ("x-amz-copy-source-range", Any)]];
}

/// The policy of each operation of the model, in the model's order.
static BY_OPERATION: LazyLock<Vec<Option<&'static Policy>>> = LazyLock::new(|| {
    let policy = |operation: &Operation| POLICIES.iter().find(|policy| policy.op.name() == operation.name);
    OPERATIONS.iter().map(policy).collect()
});

/// The policy of an operation; `None` when it is not implemented.
pub(crate) fn policy(operation: &'static Operation) -> Option<&'static Policy> {
    let index = OPERATIONS.iter().position(|own| std::ptr::eq(own, operation))?;
    BY_OPERATION[index]
}

impl Policy {
    pub(crate) fn query_parameter(&self, name: &str) -> Option<Accept> {
        find(self.query, name)
    }

    pub(crate) fn header(&self, name: &str) -> Option<Accept> {
        find(self.headers, name)
    }
}

fn find(groups: &[&[Param]], name: &str) -> Option<Accept> {
    let fits = |own: &str| own == name || (own.ends_with('-') && name.starts_with(own));
    groups.iter().flat_map(|group| group.iter()).find(|(own, _)| fits(own)).map(|(_, accept)| *accept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_known_to_the_model() {
        for policy in POLICIES {
            let operation = OPERATIONS.iter().find(|operation| operation.name == policy.op.name());
            let operation = operation.unwrap_or_else(|| panic!("{} is not in the model", policy.op.name()));
            for (name, _) in policy.query.iter().flat_map(|group| group.iter()) {
                assert!(operation.query.contains(name), "{}: {name}", operation.name);
            }
            for (name, _) in policy.headers.iter().flat_map(|group| group.iter()) {
                let known = operation.headers.contains(name) || operation.prefixes.contains(name);
                assert!(known, "{}: {name}", operation.name);
            }
        }
        assert_eq!(OPERATIONS.iter().filter(|operation| policy(operation).is_some()).count(), POLICIES.len());
    }
}
