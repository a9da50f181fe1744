//! GetBucketAcl, GetObjectAcl, PutBucketAcl and PutObjectAcl.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use margay_iam::acl::Acl;
use margay_volume::{Document, Setting};

use super::Call;
use crate::access::acl_document;
use crate::access::new_list;
use crate::access::rules::BucketRules;
use crate::error::{Code, S3Error};
use crate::headers::{text, version};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::write::Writer;

/// The access rules of the bucket, and its owner's canonical id.
async fn bucket(call: &Call<'_>) -> Result<(Arc<BucketRules>, String), S3Error> {
    let rules = BucketRules::of(call.view(), call.bucket()).await?;
    let owner = call.access.owner(&rules.owner).canonical_id.clone();
    Ok((rules, owner))
}

/// The list of the object; the default if none is stored.
async fn of_object(call: &Call<'_>, rules: &BucketRules, bucket_owner: &str) -> Result<Acl, S3Error> {
    let version = version::asked(call.query)?;
    let info = call.volume.head_version(call.bucket(), call.key(), version, &Default::default()).await?;
    let stored = info.documents.get(&Document::Acl).filter(|_| rules.has_lists());
    Ok(stored.and_then(|bytes| acl_document::decode(bytes)).unwrap_or_else(|| Acl::private(bucket_owner)))
}

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let (rules, owner) = bucket(call).await?;
    let acl = match call.key() {
        "" => rules.acl.clone().filter(|_| rules.has_lists()).unwrap_or_else(|| Acl::private(&owner)),
        _ => of_object(call, &rules, &owner).await?,
    };
    let mut out = BytesMut::with_capacity(512);
    acl_document::write(&mut Writer::new(&mut out), &acl, &*call.access.identities);
    Ok(Reply::xml(out))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let (rules, bucket_owner) = bucket(call).await?;
    let owner = match call.key() {
        "" => bucket_owner.clone(),
        _ => of_object(call, &rules, &bucket_owner).await?.owner,
    };
    let document = payload.document(call.headers, true).await?;
    let acl = new_list::set(&call.ask(), &document, &owner, &bucket_owner)?;
    if !rules.has_lists() {
        // With ACLs disabled, the owner's full control may be restated, but not as `private`, which names a list.
        let is_named = text(call.headers, "x-amz-acl")? == Some("private");
        return match acl == Acl::private(&bucket_owner) && !is_named {
            true => Ok(Reply::empty(StatusCode::OK)),
            false => Err(Code::AccessControlListNotSupported.into()),
        };
    }
    new_list::check_public(&acl, &rules)?;
    if call.key().is_empty() {
        call.volume.set_bucket_setting(call.bucket(), Setting::Acl, &acl_document::encode(&acl)).await?;
        return Ok(Reply::empty(StatusCode::OK));
    }
    let encoded = Bytes::from(acl_document::encode(&acl));
    let change = |mut documents: margay_volume::Documents| {
        documents.insert(Document::Acl, encoded.clone());
        Ok(documents)
    };
    call.volume.change_documents_of((call.bucket(), call.key(), version::asked(call.query)?), change).await?;
    Ok(Reply::empty(StatusCode::OK))
}
