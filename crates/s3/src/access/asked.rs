//! The IAM actions of a request, and the resources that they apply to.
//!
//! Why:        one table maps each operation to the action that must be allowed.
//! Invariants: Q1 every operation has an action; one that reads from a second object has a second one.
//! Not here:   deciding (mod), keys inside a document (DeleteObjects checks each when it has parsed them).

use margay_iam::acl::Permission;
use margay_volume::VersionId;

use super::Ask;
use crate::error::S3Error;
use crate::headers::copy_source::{CopySource, parse_copy_source, parse_rename_source};
use crate::headers::{lock, version};
use crate::route::policy::{Op, POLICIES};

/// Deleting or shortening a lock in GOVERNANCE mode.
pub(crate) const BYPASS_GOVERNANCE: &str = "s3:BypassGovernanceRetention";

const PUT_LEGAL_HOLD: &str = "s3:PutObjectLegalHold";
const PUT_RETENTION: &str = "s3:PutObjectRetention";
const PUT_TAGS: &str = "s3:PutObjectTagging";
/// Actions that headers of a new object require besides writing it.
const ATTACHED: [(&str, &str); 4] = [
    (PUT_TAGS, "x-amz-tagging"),
    (PUT_LEGAL_HOLD, "x-amz-object-lock-legal-hold"),
    (PUT_RETENTION, "x-amz-object-lock-mode"),
    (PUT_RETENTION, "x-amz-object-lock-retain-until-date"),
];

/// The resource of an action, and which access control list can grant it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// The service, or a bucket to be created.
    Service,
    /// A bucket; its own list can grant the action.
    Bucket(Option<Permission>),
    /// An object; its own list can grant the action.
    Object(Option<Permission>),
    /// An object that is created, replaced or removed: the bucket's list can grant the action.
    Entry,
    /// A lock, or tags of a new object: the bucket's owner decides, and no list can grant it.
    Attached,
}

/// An action and its resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub action: &'static str,
    pub on: On,
    pub bucket: String,
    /// Empty for a bucket.
    pub key: String,
    /// `None`: the current version.
    pub version: Option<VersionId>,
}

impl Asked {
    pub(crate) fn arn(&self) -> String {
        match (self.bucket.is_empty(), self.on) {
            (true, _) => "arn:aws:s3:::*".to_owned(),
            (_, On::Service | On::Bucket(_)) => format!("arn:aws:s3:::{}", self.bucket),
            (_, On::Object(_) | On::Entry | On::Attached) => format!("arn:aws:s3:::{}/{}", self.bucket, self.key),
        }
    }
}

const ATTRIBUTES: &str = "s3:GetObjectAttributes";
const VERSION_ATTRIBUTES: &str = "s3:GetObjectVersionAttributes";

/// The action of an operation; the second one applies when the request names a version.
fn of(op: Op) -> (&'static str, Option<&'static str>, On) {
    use Permission::{Read, ReadAcp, Write, WriteAcp};
    let bucket = |action| (action, None, On::Bucket(None));
    let object = |action| (action, None, On::Object(None));
    let read = On::Object(Some(Read));
    match op {
        Op::ListBuckets => ("s3:ListAllMyBuckets", None, On::Service),
        Op::CreateBucket => ("s3:CreateBucket", None, On::Service),
        Op::DeleteBucket => bucket("s3:DeleteBucket"),
        Op::HeadBucket | Op::ListObjects | Op::ListObjectsV2 => ("s3:ListBucket", None, On::Bucket(Some(Read))),
        Op::ListObjectVersions => ("s3:ListBucketVersions", None, On::Bucket(Some(Read))),
        Op::ListMultipartUploads => ("s3:ListBucketMultipartUploads", None, On::Bucket(Some(Read))),
        Op::GetBucketAcl => ("s3:GetBucketAcl", None, On::Bucket(Some(ReadAcp))),
        Op::GetBucketAccelerateConfiguration => bucket("s3:GetAccelerateConfiguration"),
        Op::GetBucketCors => bucket("s3:GetBucketCORS"),
        Op::DeleteBucketCors | Op::PutBucketCors => bucket("s3:PutBucketCORS"),
        Op::GetBucketEncryption => bucket("s3:GetEncryptionConfiguration"),
        Op::DeleteBucketEncryption | Op::PutBucketEncryption => bucket("s3:PutEncryptionConfiguration"),
        Op::GetBucketLifecycleConfiguration => bucket("s3:GetLifecycleConfiguration"),
        Op::DeleteBucketLifecycle | Op::PutBucketLifecycleConfiguration => bucket("s3:PutLifecycleConfiguration"),
        Op::GetBucketLocation => bucket("s3:GetBucketLocation"),
        Op::GetBucketLogging => bucket("s3:GetBucketLogging"),
        Op::PutBucketLogging => bucket("s3:PutBucketLogging"),
        Op::GetBucketNotificationConfiguration => bucket("s3:GetBucketNotification"),
        Op::PutBucketNotificationConfiguration => bucket("s3:PutBucketNotification"),
        Op::GetBucketOwnershipControls => bucket("s3:GetBucketOwnershipControls"),
        Op::DeleteBucketOwnershipControls | Op::PutBucketOwnershipControls => bucket("s3:PutBucketOwnershipControls"),
        Op::GetBucketPolicy => bucket("s3:GetBucketPolicy"),
        Op::DeleteBucketPolicy => bucket("s3:DeleteBucketPolicy"),
        Op::GetBucketPolicyStatus => bucket("s3:GetBucketPolicyStatus"),
        Op::GetBucketReplication => bucket("s3:GetReplicationConfiguration"),
        Op::DeleteBucketReplication => bucket("s3:PutReplicationConfiguration"),
        Op::GetBucketRequestPayment => bucket("s3:GetBucketRequestPayment"),
        Op::GetBucketTagging => bucket("s3:GetBucketTagging"),
        Op::DeleteBucketTagging | Op::PutBucketTagging => bucket("s3:PutBucketTagging"),
        Op::GetBucketVersioning => bucket("s3:GetBucketVersioning"),
        Op::GetBucketWebsite => bucket("s3:GetBucketWebsite"),
        Op::DeleteBucketWebsite => bucket("s3:DeleteBucketWebsite"),
        Op::GetObjectLockConfiguration => bucket("s3:GetBucketObjectLockConfiguration"),
        Op::GetPublicAccessBlock => bucket("s3:GetBucketPublicAccessBlock"),
        Op::PutBucketAccelerateConfiguration => bucket("s3:PutAccelerateConfiguration"),
        Op::PutBucketVersioning => bucket("s3:PutBucketVersioning"),
        Op::PutObjectLegalHold => (PUT_LEGAL_HOLD, None, On::Attached),
        Op::PutObjectLockConfiguration => bucket("s3:PutBucketObjectLockConfiguration"),
        Op::PutObjectRetention => (PUT_RETENTION, None, On::Attached),
        Op::PutBucketRequestPayment => bucket("s3:PutBucketRequestPayment"),
        Op::PutBucketWebsite => bucket("s3:PutBucketWebsite"),
        Op::PutObjectTagging => (PUT_TAGS, Some("s3:PutObjectVersionTagging"), On::Object(None)),
        Op::PutBucketAcl => ("s3:PutBucketAcl", None, On::Bucket(Some(WriteAcp))),
        Op::PutBucketPolicy => bucket("s3:PutBucketPolicy"),
        Op::DeletePublicAccessBlock | Op::PutPublicAccessBlock => bucket("s3:PutBucketPublicAccessBlock"),
        Op::GetObject | Op::HeadObject | Op::SelectObjectContent => ("s3:GetObject", Some("s3:GetObjectVersion"), read),
        Op::GetObjectAttributes => (ATTRIBUTES, Some(VERSION_ATTRIBUTES), read),
        Op::GetObjectAcl => ("s3:GetObjectAcl", Some("s3:GetObjectVersionAcl"), On::Object(Some(ReadAcp))),
        Op::PutObjectAcl => ("s3:PutObjectAcl", Some("s3:PutObjectVersionAcl"), On::Object(Some(WriteAcp))),
        Op::GetObjectLegalHold => object("s3:GetObjectLegalHold"),
        Op::GetObjectRetention => object("s3:GetObjectRetention"),
        Op::GetObjectTagging => ("s3:GetObjectTagging", Some("s3:GetObjectVersionTagging"), On::Object(None)),
        Op::DeleteObjectTagging => ("s3:DeleteObjectTagging", Some("s3:DeleteObjectVersionTagging"), On::Object(None)),
        Op::PutObject
        | Op::CopyObject
        | Op::CreateMultipartUpload
        | Op::UploadPart
        | Op::UploadPartCopy
        | Op::CompleteMultipartUpload
        | Op::RenameObject => ("s3:PutObject", None, On::Entry),
        Op::AbortMultipartUpload => ("s3:AbortMultipartUpload", None, On::Entry),
        Op::ListParts => ("s3:ListMultipartUploadParts", None, On::Entry),
        Op::DeleteObject => ("s3:DeleteObject", Some("s3:DeleteObjectVersion"), On::Entry),
        // Each key is checked after the document was parsed; this is for the bucket.
        Op::DeleteObjects => ("s3:DeleteObject", None, On::Bucket(Some(Write))),
    }
}

/// An operation that needs the action that a policy names, whatever the case of its letters; one about an object for a key.
pub(crate) fn of_action(name: &str, is_key: bool) -> Option<(Op, &'static str, On)> {
    if name.eq_ignore_ascii_case(BYPASS_GOVERNANCE) {
        return Some((Op::DeleteObject, BYPASS_GOVERNANCE, On::Attached));
    }
    let fits = |action: &&'static str| action.eq_ignore_ascii_case(name);
    let mut found = POLICIES.iter().filter_map(|policy| {
        let (action, of_version, on) = of(policy.op);
        let action = Some(action).filter(fits).or(of_version.filter(fits))?;
        Some((policy.op, action, on))
    });
    let first = found.clone().next();
    found.find(|(_, _, on)| is_key != matches!(on, On::Bucket(_) | On::Service)).or(first)
}

/// All actions that a request needs, determined from its head.
pub(crate) fn asked(call: &Ask<'_>) -> Result<Vec<Asked>, S3Error> {
    if call.op == Op::DeleteObjects {
        return Ok(Vec::new());
    }
    let (action, of_version, on) = of(call.op);
    let version = version::asked(call.query)?;
    let action = of_version.filter(|_| version.is_some()).unwrap_or(action);
    let mut asked = vec![Asked { action, on, bucket: call.bucket().to_owned(), key: call.key().to_owned(), version }];
    match call.op {
        Op::CopyObject | Op::UploadPartCopy => {
            let source = parse_copy_source("x-amz-copy-source", call.header("x-amz-copy-source")?)?;
            let CopySource { bucket, key, version } = source;
            let action = read_action(version);
            asked.push(Asked { action, on: On::Object(Some(Permission::Read)), bucket, key, version });
        }
        Op::GetObjectAttributes => {
            asked.push(Asked { action: read_action(version), ..asked[0].clone() });
        }
        Op::RenameObject => {
            let key = parse_rename_source(call.bucket(), call.header("x-amz-rename-source")?)?;
            let bucket = call.bucket().to_owned();
            let read = On::Object(Some(Permission::Read));
            let source = Asked { action: "s3:GetObject", on: read, bucket, key, version: None };
            asked.push(Asked { action: "s3:DeleteObject", on: On::Entry, ..source.clone() });
            asked.push(source);
        }
        Op::DeleteObject | Op::PutObjectRetention if lock::bypasses_governance(call.headers)? => {
            asked.push(Asked { action: BYPASS_GOVERNANCE, on: On::Attached, ..asked[0].clone() });
        }
        _ => {}
    }
    let is_new = matches!(call.op, Op::PutObject | Op::CopyObject | Op::CreateMultipartUpload);
    for (action, header) in ATTACHED.iter().filter(|_| is_new) {
        if call.headers.contains_key(*header) {
            asked.push(Asked { action, on: On::Attached, ..asked[0].clone() });
        }
    }
    Ok(asked)
}

fn read_action(version: Option<VersionId>) -> &'static str {
    if version.is_some() { "s3:GetObjectVersion" } else { "s3:GetObject" }
}
