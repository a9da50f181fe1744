//! DeleteBucketCors and similar: removes a bucket's setting.

use http::StatusCode;
use margay_volume::Setting;

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>, setting: Setting) -> Result<Reply, S3Error> {
    call.volume.remove_bucket_setting(call.bucket(), setting).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
