//! GetBucketAcl and GetObjectAcl: the owner has full control, since nobody else can be given anything.

use bytes::BytesMut;

use super::Call;
use crate::error::S3Error;
use crate::headers::version;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    if call.key().is_empty() {
        call.volume.head_bucket(call.bucket()).await?;
    } else {
        let version = version::asked(call.query)?;
        call.volume.head_version(call.bucket(), call.key(), version, &Default::default()).await?;
    }
    let mut out = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut out);
    writer.root("AccessControlPolicy");
    writer.raw(&call.owner("Owner"));
    writer.open("AccessControlList");
    writer.open("Grant");
    writer.raw("<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"CanonicalUser\">");
    writer.text("ID", &call.options.owner_id);
    writer.text("DisplayName", &call.options.owner_name);
    writer.close("Grantee");
    writer.text("Permission", "FULL_CONTROL");
    writer.close("Grant");
    writer.close("AccessControlList");
    writer.close("AccessControlPolicy");
    Ok(Reply::xml(out))
}
