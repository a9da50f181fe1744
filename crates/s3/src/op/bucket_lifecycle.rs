//! GetBucketLifecycleConfiguration, PutBucketLifecycleConfiguration.

use http::{HeaderName, StatusCode};
use margay_volume::Setting;

use super::Call;
use crate::error::{Code, S3Error};
use crate::lifecycle;
use crate::payload::Payload;
use crate::reply::Reply;

/// Transitions are refused, so this only confirms the default.
const MINIMUM: &str = "x-amz-transition-default-minimum-object-size";
const MINIMUM_DEFAULT: &str = "all_storage_classes_128K";

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.setting(Setting::Lifecycle, Code::NoSuchLifecycleConfiguration).await?;
    Reply::xml(stored[..].into()).header(HeaderName::from_static(MINIMUM), MINIMUM_DEFAULT)
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let rules = lifecycle::read(&payload.document(call.headers, true).await?)?;
    call.volume.set_bucket_setting(call.bucket(), Setting::Lifecycle, &rules.write()).await?;
    Reply::empty(StatusCode::OK).header(HeaderName::from_static(MINIMUM), MINIMUM_DEFAULT)
}
