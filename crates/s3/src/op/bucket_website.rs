//! GetBucketWebsite, PutBucketWebsite.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::website::Website;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.setting(Setting::Website, Code::NoSuchWebsiteConfiguration).await?;
    Ok(Reply::xml(BytesMut::from(&stored[..])))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let website = Website::from_xml(&payload.document(call.headers, true).await?)?;
    let mut document = BytesMut::new();
    website.write(&mut document);
    call.volume.set_bucket_setting(call.bucket(), Setting::Website, &document).await?;
    Ok(Reply::empty(StatusCode::OK))
}
