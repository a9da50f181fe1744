//! DeleteBucket: aborts unfinished uploads first, since nobody could do so afterwards.

use http::StatusCode;
use margay_volume::{Error, ListRequest};

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;

/// Uploads aborted between two attempts.
const UPLOADS_AT_ONCE: usize = 1000;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    loop {
        match call.volume.delete_bucket(call.bucket()).await {
            Err(Error::BucketNotEmpty) if is_without_objects(call).await? && abort_uploads(call).await? => {}
            outcome => return outcome.map(|()| Reply::empty(StatusCode::NO_CONTENT)).map_err(S3Error::from),
        }
    }
}

async fn is_without_objects(call: &Call<'_>) -> Result<bool, S3Error> {
    let request =
        ListRequest { bucket: call.bucket(), prefix: "", delimiter: None, after: None, after_is_prefix: false, max: 1 };
    let mut empty = true;
    call.volume.list(&request, &mut |_| empty = false).await?;
    Ok(empty)
}

/// Returns whether there were any.
async fn abort_uploads(call: &Call<'_>) -> Result<bool, S3Error> {
    let (uploads, _) = call.volume.list_multipart(call.bucket(), "", None, UPLOADS_AT_ONCE).await?;
    for upload in &uploads {
        match call.volume.abort_multipart(call.bucket(), &upload.key, &upload.upload).await {
            Ok(()) | Err(Error::NoSuchUpload) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(!uploads.is_empty())
}
