//! GetBucketNotificationConfiguration, PutBucketNotificationConfiguration.

use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::S3Error;
use crate::notification::{self, Notifications};
use crate::payload::Payload;
use crate::reply::Reply;

pub(crate) async fn get(call: &Call<'_>) -> Result<Reply, S3Error> {
    let stored = call.volume.bucket_setting(call.bucket(), Setting::Notification).await?;
    // As at AWS, a bucket without rules has an empty document.
    Ok(Reply::xml(stored.map_or_else(|| Notifications::default().write(), |stored| stored[..].into())))
}

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let rules = notification::read(&payload.document(call.headers, true).await?)?;
    let skip = call.headers.get("x-amz-skip-destination-validation");
    if skip.is_none_or(|value| value != "true")
        && let Some(arn) = rules.unknown_target(&call.options.notification_targets)
    {
        let message = "Unable to validate the following destination configurations";
        return Err(S3Error::argument(
            arn,
            "The destination is no target of this server; see its setting notify",
            message,
        ));
    }
    let (bucket, setting) = (call.bucket(), Setting::Notification);
    match rules == Notifications::default() {
        true => call.volume.remove_bucket_setting(bucket, setting).await?,
        false => call.volume.set_bucket_setting(bucket, setting, &rules.write()).await?,
    }
    Ok(Reply::empty(StatusCode::OK))
}
