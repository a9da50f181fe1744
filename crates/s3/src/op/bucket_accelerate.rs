//! PutBucketAccelerateConfiguration.
//!
//! Why: there are no edge locations, so suspending succeeds without effect and enabling is refused.

use http::StatusCode;

use super::Call;
use crate::error::S3Error;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};

pub(crate) async fn put(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let enabled = enables(&payload.document(call.headers, true).await?)?;
    call.volume.head_bucket(call.bucket()).await?;
    if enabled { Err(S3Error::not_implemented("transfer acceleration")) } else { Ok(Reply::empty(StatusCode::OK)) }
}

pub(crate) fn enables(document: &[u8]) -> Result<bool, Malformed> {
    let mut enabled = None;
    walk(document, &mut |path, text| match (path, text.trim()) {
        ("AccelerateConfiguration", _) => Ok(()),
        ("AccelerateConfiguration/Status", "Enabled") => {
            enabled = Some(true);
            Ok(())
        }
        ("AccelerateConfiguration/Status", "Suspended") => {
            enabled = Some(false);
            Ok(())
        }
        _ => Err(Malformed::because("neither Enabled nor Suspended")),
    })?;
    enabled.ok_or_else(|| Malformed::because("no Status"))
}
