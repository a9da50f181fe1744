//! DeleteBucket.

use http::StatusCode;

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.volume.delete_bucket(call.bucket()).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
