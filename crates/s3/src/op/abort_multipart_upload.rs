//! AbortMultipartUpload.

use http::StatusCode;

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.view().abort_multipart(call.bucket(), call.key(), call.required("uploadId")?).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
