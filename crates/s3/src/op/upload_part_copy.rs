//! UploadPartCopy.

use std::ops::Range;

use bytes::BytesMut;
use margay_volume::{Error, Headers, ObjectInfo, PART_BYTES_MAX, PartInfo, ReadCondition};

use super::copy_object::{head, source_error};
use super::move_bytes::move_bytes;
use super::sent_body::md5;
use super::upload_part::promised_algorithm;
use super::{Call, checksum};
use crate::body::Algorithm;
use crate::error::{Code, S3Error};
use crate::headers::condition::read_condition;
use crate::headers::copy_source::{CopySource, parse_copy_source};
use crate::headers::range::number;
use crate::headers::{etag, text, version};
use crate::op::encryption::customer::{self, Customer};
use crate::op::encryption::{self, WriteKey};
use crate::reply::Reply;
use crate::route::target::check_bucket_name;
use crate::time::iso;
use crate::xml::write::Writer;

const SOURCE: &str = "x-amz-copy-source";
const RANGE: &str = "x-amz-copy-source-range";

/// Source and target of the copy.
struct Wanted {
    source: CopySource,
    range: Option<Range<u64>>,
    condition: ReadCondition,
    customer: Option<Customer>,
}

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let number = call.part_number()?;
    let upload = call.required("uploadId")?;
    let wanted = Wanted {
        source: parse_copy_source(SOURCE, text(call.headers, SOURCE)?.unwrap_or_default())?,
        range: text(call.headers, RANGE)?.map(parse_range).transpose()?,
        condition: read_condition(call.headers, "x-amz-copy-source-")?,
        customer: Customer::of(call, customer::SOURCE)?,
    };
    check_bucket_name(&wanted.source.bucket)?;
    let info = call.view().head_multipart(call.bucket(), call.key(), upload).await?;
    let write_key = WriteKey::of_part(call, &info.documents)?;
    let part = copy(call, (upload, number), &wanted, &write_key, promised_algorithm(&info.headers)).await?;
    let mut out = BytesMut::with_capacity(320);
    let mut writer = Writer::new(&mut out);
    writer.root("CopyPartResult");
    writer.text("LastModified", &iso(part.modified));
    writer.text("ETag", &etag::quoted(&part.etag));
    checksum::write(&part.headers, &mut writer);
    writer.close("CopyPartResult");
    let mut reply = Reply::xml(out);
    version::tell_source(wanted.source.version, &mut reply.headers);
    write_key.tell(&mut reply.headers);
    Ok(reply)
}

async fn copy(
    call: &Call<'_>,
    part: (&str, u16),
    wanted: &Wanted,
    write_key: &WriteKey,
    promised: Option<Algorithm>,
) -> Result<PartInfo, S3Error> {
    let Wanted { source, range, condition, customer } = wanted;
    let object = head(call, source, condition).await.map_err(source_error)?;
    check_range(&object, range.as_ref())?;
    if promised.is_none() && customer.is_none() {
        // The bytes are shared with the source, not copied.
        let (upload, number) = part;
        let (bucket, key) = (call.bucket(), call.key());
        let shared = call.view().copy_part(bucket, key, upload, number, source.name(), range.clone(), condition);
        match shared.await {
            Err(Error::NotShareable) => {}
            shared => return shared.map_err(source_error),
        }
    }
    read_and_put(call, part, wanted, write_key, promised).await
}

/// `bytes=first-last`, nothing else.
pub(crate) fn parse_range(value: &str) -> Result<Range<u64>, S3Error> {
    let bounds = value.strip_prefix("bytes=").and_then(|bounds| bounds.split_once('-'));
    match bounds.and_then(|(first, last)| Some((number(first)?, number(last)?))) {
        // A range beyond all sizes is refused like any other outside the source.
        Some((first, last)) if first <= last => Ok(first.min(u64::MAX - 1)..last.saturating_add(1)),
        _ => {
            let message = "The x-amz-copy-source-range value must be of the form bytes=first-last where first and \
                           last are the zero-based offsets of the first and last bytes to copy";
            Err(S3Error::argument(RANGE, value, message))
        }
    }
}

fn check_range(object: &ObjectInfo, range: Option<&Range<u64>>) -> Result<(), S3Error> {
    let len = range.map_or(object.size, |range| range.end - range.start);
    if range.is_some_and(|range| range.end > object.size) {
        let message = format!("Range specified is not valid for source object of size: {}", object.size);
        return Err(S3Error::new(Code::InvalidRange, message));
    }
    if len > PART_BYTES_MAX {
        return Err(S3Error::from(Code::EntityTooLarge).with("MaxSizeAllowed", PART_BYTES_MAX.to_string()));
    }
    Ok(())
}

/// Reads a part whose checksum was promised, to compute it, or whose upload has another key, to encrypt it.
async fn read_and_put(
    call: &Call<'_>,
    (upload, number): (&str, u16),
    wanted: &Wanted,
    write_key: &WriteKey,
    algorithm: Option<Algorithm>,
) -> Result<PartInfo, S3Error> {
    let CopySource { bucket, key, version } = &wanted.source;
    let reader = call.volume.get_version(bucket, key, *version, &wanted.condition).await;
    let mut reader = reader.map_err(source_error)?;
    encryption::unlock(&mut reader, wanted.customer.clone())?;
    let range = wanted.range.clone().unwrap_or(0..reader.info().size);
    let (staged, computed) = move_bytes(call, &reader, range, write_key, algorithm).await?;
    let mut headers = Headers::new();
    if let Some(sum) = &computed.checksum {
        checksum::store(&mut headers, sum);
    }
    let etag = write_key.etag(md5(&computed)?);
    Ok(call.volume.put_part(call.bucket(), call.key(), upload, number, etag, headers, staged).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_closed_and_nothing_else() {
        assert_eq!(parse_range("bytes=0-0").unwrap(), 0..1);
        assert_eq!(parse_range("bytes=5-9").unwrap(), 5..10);
        assert_eq!(parse_range("bytes=5-99999999999999999999").unwrap(), 5..u64::MAX);
        assert!(!parse_range("bytes=99999999999999999999-99999999999999999999").unwrap().is_empty());
        for bad in ["", "0-1", "bytes=1-", "bytes=-1", "bytes=2-1", "bytes=a-b", "bytes=-"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
