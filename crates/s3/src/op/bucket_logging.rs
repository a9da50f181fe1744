//! GetBucketLogging, PutBucketLogging.

use bytes::BytesMut;
use http::StatusCode;
use margay_volume::{Error, Setting};

use super::Call;
use crate::bucket_logging::BucketLogging;
use crate::error::{Code, S3Error};
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    if let Some(stored) = call.volume.bucket_setting(call.bucket(), Setting::Logging).await? {
        return Ok(Reply::xml(stored[..].into()));
    }
    let mut out = BytesMut::with_capacity(128);
    let mut writer = Writer::new(&mut out);
    writer.root("BucketLoggingStatus");
    writer.close("BucketLoggingStatus");
    Ok(Reply::xml(out))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let document = payload.document(call.headers, true).await?;
    let Some(logging) = BucketLogging::read(&document)? else {
        call.volume.remove_bucket_setting(call.bucket(), Setting::Logging).await?;
        return Ok(Reply::empty(StatusCode::OK));
    };
    let source = call.volume.head_bucket(call.bucket()).await?;
    let refused = |message| S3Error::new(Code::InvalidTargetBucketForLogging, message);
    match call.volume.head_bucket(&logging.target).await {
        Ok(target) if target.owner == source.owner => {}
        // The existence of another account's bucket is not revealed.
        Ok(_) | Err(Error::NoSuchBucket) => {
            return Err(refused("The target bucket for logging does not exist").with("TargetBucket", &logging.target));
        }
        Err(error) => return Err(error.into()),
    }
    call.volume.set_bucket_setting(call.bucket(), Setting::Logging, &logging.write()).await?;
    Ok(Reply::empty(StatusCode::OK))
}
