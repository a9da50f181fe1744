//! GetBucketLocation.

use bytes::BytesMut;

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;
use crate::xml::write::{Writer, escape};

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    call.view().head_bucket(call.bucket()).await?;
    let mut out = BytesMut::with_capacity(160);
    let mut writer = Writer::new(&mut out);
    writer.root("LocationConstraint");
    // The first region has an empty name.
    if call.options.region != "us-east-1" {
        escape(writer.buffer(), &call.options.region);
    }
    writer.close("LocationConstraint");
    Ok(Reply::xml(out))
}
