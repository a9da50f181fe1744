//! GetBucketVersioning.

use bytes::BytesMut;
use margay_volume::Versioning;

use super::Call;
use crate::error::S3Error;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let status = match call.view().versioning(call.bucket()).await? {
        Versioning::Never => None,
        Versioning::Enabled => Some("Enabled"),
        Versioning::Suspended => Some("Suspended"),
    };
    let mut out = BytesMut::with_capacity(256);
    let mut writer = Writer::new(&mut out);
    writer.root("VersioningConfiguration");
    writer.optional("Status", status);
    writer.close("VersioningConfiguration");
    Ok(Reply::xml(out))
}
