//! DeleteObject.

use http::StatusCode;

use super::Call;
use crate::error::S3Error;
use crate::headers::condition::write_condition;
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let condition = write_condition(call.headers)?;
    call.volume.delete_object(call.bucket(), call.key(), &condition).await?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}
