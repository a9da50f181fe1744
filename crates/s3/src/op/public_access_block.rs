//! PutPublicAccessBlock, GetPublicAccessBlock and DeletePublicAccessBlock.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::access::public_access_block::PublicAccessBlock;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let block = PublicAccessBlock::parse(&payload.document(call.headers, true).await?)?;
    call.volume.set_bucket_setting(call.bucket(), Setting::PublicAccessBlock, &block.encode()).await?;
    Ok(Reply::empty(StatusCode::OK))
}

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let document = call.volume.bucket_setting(call.bucket(), Setting::PublicAccessBlock).await?;
    let none = || S3Error::from(Code::NoSuchPublicAccessBlockConfiguration).with("BucketName", call.bucket());
    let block = PublicAccessBlock::decode(&document.ok_or_else(none)?);
    let mut out = BytesMut::with_capacity(400);
    block.write(&mut Writer::new(&mut out));
    Ok(Reply::xml(out))
}

pub(crate) async fn delete(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.volume.remove_bucket_setting(call.bucket(), Setting::PublicAccessBlock).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
