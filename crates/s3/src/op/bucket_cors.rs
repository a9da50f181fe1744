//! GetBucketCors, PutBucketCors.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::cors::Rules;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::Malformed;

/// Maximum size of the document, in bytes.
pub(crate) const CORS_BYTES_MAX: usize = 64 << 10;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.setting(Setting::Cors, Code::NoSuchCORSConfiguration).await?;
    Ok(Reply::xml(BytesMut::from(&stored[..])))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let rules = Rules::from_xml(&payload.document(call.headers, true).await?)?;
    let mut document = BytesMut::new();
    rules.write(&mut document);
    if document.len() > CORS_BYTES_MAX {
        return Err(Malformed::because("longer than 64 KiB").into());
    }
    call.volume.set_bucket_setting(call.bucket(), Setting::Cors, &document).await?;
    Ok(Reply::empty(StatusCode::OK))
}
