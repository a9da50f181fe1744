//! PutBucketOwnershipControls, GetBucketOwnershipControls and DeleteBucketOwnershipControls.

use bytes::BytesMut;
use http::StatusCode;
use margay_iam::acl::Acl;
use margay_volume::Setting;

use super::Call;
use crate::access::ownership::Ownership;
use crate::access::rules::BucketRules;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let ownership = Ownership::parse(&payload.document(call.headers, true).await?)?;
    let rules = BucketRules::of(call.view(), call.bucket()).await?;
    let owner = call.access.owner(&rules.owner);
    let shared = rules.acl.as_ref().is_some_and(|acl| *acl != Acl::private(&owner.canonical_id));
    if ownership == Ownership::BucketOwnerEnforced && shared {
        return Err(Code::InvalidBucketAclWithObjectOwnership.into());
    }
    let document = ownership.name().as_bytes();
    call.volume.set_bucket_setting(call.bucket(), Setting::OwnershipControls, document).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let document = call.volume.bucket_setting(call.bucket(), Setting::OwnershipControls).await?;
    let none = || S3Error::from(Code::OwnershipControlsNotFoundError).with("BucketName", call.bucket());
    let ownership = Ownership::decode(&document.ok_or_else(none)?);
    let mut out = BytesMut::with_capacity(240);
    ownership.write(&mut Writer::new(&mut out));
    Ok(Reply::xml(out))
}

pub(crate) async fn delete(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.volume.remove_bucket_setting(call.bucket(), Setting::OwnershipControls).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
