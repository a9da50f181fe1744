//! DeleteObject.

use http::{HeaderName, StatusCode};
use margay_volume::{DeleteRequest, Deleted};

use super::Call;
use crate::error::S3Error;
use crate::headers::condition::write_condition;
use crate::headers::{lock, version};
use crate::reply::Reply;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let (condition, version) = (write_condition(call.headers)?, version::asked(call.query)?);
    let bypass_governance = lock::bypasses_governance(call.headers)?;
    let request = DeleteRequest { key: call.key(), version, condition, bypass_governance };
    let Deleted { version, marker, .. } = call.view().delete_object(call.bucket(), &request).await?;
    let mut reply = Reply::empty(StatusCode::NO_CONTENT);
    if let Some(version) = version {
        reply = reply.header(HeaderName::from_static(version::HEADER), &version.to_string())?;
    }
    if marker {
        reply = reply.header(HeaderName::from_static(version::DELETE_MARKER), "true")?;
    }
    Ok(reply)
}
