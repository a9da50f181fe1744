//! HeadBucket.

use http::{HeaderName, StatusCode};

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.view().head_bucket(call.bucket()).await?;
    Reply::empty(StatusCode::OK).header(HeaderName::from_static("x-amz-bucket-region"), &call.options.region)
}
