//! PutBucketPolicy, GetBucketPolicy, DeleteBucketPolicy and GetBucketPolicyStatus.

use bytes::BytesMut;
use http::{HeaderValue, StatusCode};
use margay_iam::{Kind, POLICY_BYTES_MAX, Policy};
use margay_volume::Setting;

use super::Call;
use crate::access::rules::BucketRules;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::stream::S3Body;
use crate::xml::write::Writer;

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let rules = BucketRules::of(call.view(), call.bucket()).await?;
    let document = payload.document(call.headers, true).await?;
    if document.len() > POLICY_BYTES_MAX {
        return Err(S3Error::new(Code::PolicyTooLarge, format!("A policy has at most {POLICY_BYTES_MAX} bytes")));
    }
    let policy = Policy::parse(Kind::Bucket, &document)
        .map_err(|error| S3Error::new(Code::MalformedPolicy, format!("The policy is not valid: {error}")))?;
    if rules.block.block_policy && policy.is_public() {
        return Err(S3Error::new(Code::AccessDenied, "Access Denied: BlockPublicPolicy is set on the bucket"));
    }
    call.volume.set_bucket_setting(call.bucket(), Setting::Policy, &document).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let document = call.volume.bucket_setting(call.bucket(), Setting::Policy).await?;
    let document = document.ok_or_else(|| S3Error::from(Code::NoSuchBucketPolicy).with("BucketName", call.bucket()))?;
    let mut reply = Reply::with_body(StatusCode::OK, S3Body::full(document));
    reply.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(reply)
}

pub(crate) async fn delete(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.volume.remove_bucket_setting(call.bucket(), Setting::Policy).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Whether the policy or the access list grants public access.
pub(crate) async fn status(call: &Call<'_>) -> Result<Reply, S3Error> {
    let rules = BucketRules::of(call.view(), call.bucket()).await?;
    let by_policy = rules.policy.as_ref().is_some_and(Policy::is_public);
    let listed = rules.has_lists() && !rules.block.ignore_acls;
    let by_list = listed && rules.acl.as_ref().is_some_and(margay_iam::acl::Acl::is_public);
    let mut out = BytesMut::with_capacity(160);
    let mut writer = Writer::new(&mut out);
    writer.root("PolicyStatus");
    writer.flag("IsPublic", by_policy || by_list);
    writer.close("PolicyStatus");
    Ok(Reply::xml(out))
}
