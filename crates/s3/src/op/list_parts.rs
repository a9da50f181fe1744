//! ListParts.

use bytes::BytesMut;
use margay_volume::PART_NUMBER_MAX;

use super::{Call, checksum};
use crate::error::S3Error;
use crate::headers::etag;
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::write::Writer;

/// Maximum number of parts in a page.
const PARTS_MAX: u64 = 1000;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let upload_id = call.required("uploadId")?;
    let after = call.query.number("part-number-marker", 0)?.min(u64::from(PART_NUMBER_MAX)) as u16;
    let max = call.query.number("max-parts", PARTS_MAX)?.min(PARTS_MAX);
    let upload = call.view().head_multipart(call.bucket(), call.key(), upload_id).await?;
    let (parts, is_truncated) = match max {
        0 => (Vec::new(), false),
        _ => call.volume.list_parts(call.bucket(), call.key(), upload_id, after, max as usize).await?,
    };
    let owners = call.owners_of_upload(&upload.documents).await?;
    let mut out = BytesMut::with_capacity(1024 + parts.len() * 200);
    let mut writer = Writer::new(&mut out);
    writer.root("ListPartsResult");
    writer.text("Bucket", call.bucket());
    writer.text("Key", call.key());
    writer.text("UploadId", upload_id);
    writer.raw(&owners);
    writer.text("StorageClass", "STANDARD");
    writer.optional("ChecksumAlgorithm", upload.headers.get(checksum::ALGORITHM).map(String::as_str));
    writer.optional("ChecksumType", upload.headers.get(checksum::TYPE).map(String::as_str));
    writer.number("PartNumberMarker", u64::from(after));
    writer.number("NextPartNumberMarker", parts.last().map_or(0, |part| u64::from(part.number)));
    writer.number("MaxParts", max);
    writer.flag("IsTruncated", is_truncated);
    for part in &parts {
        writer.open("Part");
        writer.number("PartNumber", u64::from(part.number));
        writer.text("LastModified", &iso(part.modified));
        writer.text("ETag", &etag::quoted(&part.etag));
        writer.number("Size", part.size);
        checksum::write(&part.headers, &mut writer);
        writer.close("Part");
    }
    writer.close("ListPartsResult");
    Ok(Reply::xml(out))
}
