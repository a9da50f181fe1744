//! GetBucketTagging, PutBucketTagging, DeleteBucketTagging.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::tags::{Tagged, Tags};

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.setting(Setting::Tagging, Code::NoSuchTagSet).await?;
    let mut out = BytesMut::with_capacity(256);
    Tags::from_stored(&stored).write(&mut out);
    Ok(Reply::xml(out))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let tags = Tags::from_xml(&payload.document(call.headers, true).await?, Tagged::Bucket)?;
    call.volume.set_bucket_setting(call.bucket(), Setting::Tagging, &tags.to_stored()).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
