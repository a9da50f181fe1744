//! Settings that are not supported: reading one gives AWS's own "not set", removing one succeeds.
//!
//! Why:      clients read such settings before they continue; "not set" is true, while a 501 would stop them. Setting
//!           one is refused by name (route).

use http::StatusCode;

use super::Call;
use crate::error::{Code, S3Error};
use crate::headers::version;
use crate::reply::Reply;
use crate::route::policy::Op;
use crate::xml::write::NAMESPACE;

/// The form of "not set".
enum Unset {
    /// An error code for it.
    Error(Code),
    /// A document: the root's name and its content.
    Document(&'static str, &'static str),
    /// Nothing to remove: 204.
    Removed,
}

fn unset(op: Op) -> Option<Unset> {
    use Unset::{Document, Error, Removed};
    Some(match op {
        Op::GetBucketReplication => Error(Code::ReplicationConfigurationNotFoundError),
        Op::GetBucketAccelerateConfiguration => Document("AccelerateConfiguration", ""),
        Op::DeleteBucketReplication => Removed,
        _ => return None,
    })
}

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let Some(unset) = unset(call.op) else {
        return Err(S3Error::internal(&format_args!("{} has no implementation", call.op.name())));
    };
    if call.key().is_empty() {
        call.volume.head_bucket(call.bucket()).await?;
    } else {
        let version = version::asked(call.query)?;
        call.volume.head_version(call.bucket(), call.key(), version, &Default::default()).await?;
    }
    match unset {
        Unset::Error(code) => Err(S3Error::from(code).with("BucketName", call.bucket())),
        Unset::Removed => Ok(Reply::empty(StatusCode::NO_CONTENT)),
        Unset::Document(root, content) => {
            let document =
                format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{root} xmlns=\"{NAMESPACE}\">{content}</{root}>");
            Ok(Reply::xml(document.as_bytes().into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::policy::POLICIES;

    /// Operations with a file of their own, in the order of `run` in `op`.
    const OWN: &[&str] = &[
        "DeleteBucketOwnershipControls",
        "DeleteBucketPolicy",
        "DeletePublicAccessBlock",
        "GetBucketOwnershipControls",
        "GetBucketPolicy",
        "GetBucketPolicyStatus",
        "GetPublicAccessBlock",
        "PutBucketAcl",
        "PutBucketOwnershipControls",
        "PutBucketPolicy",
        "PutObjectAcl",
        "PutPublicAccessBlock",
        "AbortMultipartUpload",
        "CompleteMultipartUpload",
        "CopyObject",
        "CreateBucket",
        "CreateMultipartUpload",
        "DeleteBucket",
        "DeleteBucketCors",
        "DeleteBucketEncryption",
        "DeleteBucketLifecycle",
        "DeleteBucketTagging",
        "DeleteBucketWebsite",
        "DeleteObject",
        "DeleteObjectTagging",
        "DeleteObjects",
        "GetBucketAcl",
        "GetObjectAcl",
        "GetBucketCors",
        "GetBucketEncryption",
        "GetBucketLifecycleConfiguration",
        "GetBucketLocation",
        "GetBucketLogging",
        "GetBucketNotificationConfiguration",
        "GetBucketRequestPayment",
        "GetBucketTagging",
        "GetBucketVersioning",
        "GetBucketWebsite",
        "GetObject",
        "GetObjectAttributes",
        "GetObjectLegalHold",
        "GetObjectLockConfiguration",
        "GetObjectRetention",
        "GetObjectTagging",
        "HeadBucket",
        "HeadObject",
        "ListBuckets",
        "ListMultipartUploads",
        "ListObjectVersions",
        "ListObjects",
        "ListObjectsV2",
        "ListParts",
        "PutBucketAccelerateConfiguration",
        "PutBucketCors",
        "PutBucketEncryption",
        "PutBucketLifecycleConfiguration",
        "PutBucketLogging",
        "PutBucketNotificationConfiguration",
        "PutBucketRequestPayment",
        "PutBucketTagging",
        "PutBucketVersioning",
        "PutBucketWebsite",
        "PutObject",
        "PutObjectLegalHold",
        "PutObjectLockConfiguration",
        "PutObjectRetention",
        "PutObjectTagging",
        "RenameObject",
        "SelectObjectContent",
        "UploadPart",
        "UploadPartCopy",
    ];

    #[test]
    fn every_other_operation_has_its_none() {
        for policy in POLICIES {
            assert_ne!(OWN.contains(&policy.op.name()), unset(policy.op).is_some(), "{}", policy.op.name());
        }
    }
}
