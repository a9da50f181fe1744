//! GetObjectAttributes.

use bytes::BytesMut;
use margay_volume::{Headers, ObjectInfo, ReadCondition};

use super::{Call, checksum};
use crate::error::S3Error;
use crate::headers::{text, version};
use crate::op::encryption::customer::{self, Customer};
use crate::op::encryption::{self, Encryption};
use crate::reply::Reply;
use crate::time::http_date;
use crate::xml::write::Writer;

const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
const PARTS_MAX: u64 = 1000;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let mut asked = Vec::new();
    for value in call.headers.get_all("x-amz-object-attributes") {
        let names = value.to_str().unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
        asked.extend(names.map(str::to_owned));
    }
    if let Some(unknown) = asked.iter().find(|name| !KNOWN.contains(&name.as_str())) {
        return Err(S3Error::argument("x-amz-object-attributes", unknown, "Invalid attribute name specified."));
    }
    if asked.is_empty() {
        let message = "The x-amz-object-attributes header specifying the attributes to be retrieved is required";
        return Err(S3Error::invalid_request(message));
    }
    let version = version::asked(call.query)?;
    let first = number(call, "x-amz-part-number-marker", 0)?;
    let max = number(call, "x-amz-max-parts", PARTS_MAX)?.min(PARTS_MAX);
    let given = Customer::of(call, customer::OWN)?;
    let info = call.view().head_version(call.bucket(), call.key(), version, &ReadCondition::default()).await?;
    let encryption = Encryption::of_object(call, &info, given)?;
    let wants = |name: &str| asked.iter().any(|own| own == name);
    let mut out = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut out);
    writer.root("GetObjectAttributesResponse");
    if wants("ETag") {
        writer.text("ETag", &info.etag.to_string());
    }
    if wants("Checksum") && checksum::stored(&info.headers).is_some() {
        writer.open("Checksum");
        checksum::write(&info.headers, &mut writer);
        writer.text("ChecksumType", checksum::stored_kind(&info.headers).name());
        writer.close("Checksum");
    }
    if wants("ObjectParts") && !info.part_sizes.is_empty() {
        let checksums = call.view().part_checksums((call.bucket(), call.key(), version)).await?;
        write_parts(&mut writer, &info, &checksums, first, max);
    }
    if wants("StorageClass") {
        writer.text("StorageClass", "STANDARD");
    }
    if wants("ObjectSize") {
        writer.number("ObjectSize", info.size);
    }
    writer.close("GetObjectAttributesResponse");
    let mut reply = Reply::xml(out).header(http::header::LAST_MODIFIED, &http_date(info.modified))?;
    version::give_back(info.version, &mut reply.headers);
    encryption::tell(encryption.as_ref(), &mut reply.headers);
    Ok(reply)
}

fn number(call: &Call<'_>, name: &str, default: u64) -> Result<u64, S3Error> {
    let Some(value) = text(call.headers, name)? else { return Ok(default) };
    value.parse::<u32>().map(u64::from).map_err(|_| S3Error::argument(name, value, "a number is expected"))
}

fn write_parts(writer: &mut Writer<'_>, info: &ObjectInfo, checksums: &[Headers], first: u64, max: u64) {
    let count = info.part_sizes.len() as u64;
    let first = first.min(count);
    let end = (first + max).min(count);
    writer.open("ObjectParts");
    // The name on the wire; SDKs call it TotalPartsCount.
    writer.number("PartsCount", count);
    writer.number("PartNumberMarker", first);
    writer.number("NextPartNumberMarker", end);
    writer.number("MaxParts", max);
    writer.flag("IsTruncated", end < count);
    for number in first..end {
        writer.open("Part");
        writer.number("PartNumber", number + 1);
        writer.number("Size", info.part_sizes[number as usize]);
        if let Some(checksums) = checksums.get(number as usize) {
            checksum::write(checksums, writer);
        }
        writer.close("Part");
    }
    writer.close("ObjectParts");
}
