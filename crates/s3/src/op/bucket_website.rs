//! GetBucketWebsite, PutBucketWebsite.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::website::Website;
use crate::xml::read::Malformed;

/// Maximum size of the document, in bytes; every visit reads it.
pub(crate) const WEBSITE_BYTES_MAX: usize = 128 << 10;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.setting(Setting::Website, Code::NoSuchWebsiteConfiguration).await?;
    Ok(Reply::xml(BytesMut::from(&stored[..])))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let website = Website::from_xml(&payload.document(call.headers, true).await?)?;
    let mut document = BytesMut::new();
    website.write(&mut document);
    if document.len() > WEBSITE_BYTES_MAX {
        return Err(Malformed::because("longer than 128 KiB").into());
    }
    call.volume.set_bucket_setting(call.bucket(), Setting::Website, &document).await?;
    Ok(Reply::empty(StatusCode::OK))
}
