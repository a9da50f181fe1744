//! UploadPartCopy.

use std::ops::Range;

use bytes::BytesMut;
use http::HeaderMap;
use margay_volume::{ETag, Error, Headers, ObjectInfo, PART_BYTES_MAX, PartInfo, ReadCondition};

use super::copy_object::{head, source_error};
use super::upload_part::promised_algorithm;
use super::{Call, checksum};
use crate::auth::PayloadForm;
use crate::body::{Algorithm, DigestPlan, Want};
use crate::error::{Code, S3Error};
use crate::headers::condition::read_condition;
use crate::headers::copy_source::{CopySource, parse_copy_source};
use crate::headers::{etag, text, version};
use crate::reply::Reply;
use crate::route::target::check_bucket_name;
use crate::stream::PIECE_BYTES_MAX;
use crate::time::iso;
use crate::xml::write::Writer;

const SOURCE: &str = "x-amz-copy-source";
const RANGE: &str = "x-amz-copy-source-range";

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let number = call.part_number()?;
    let upload = call.required("uploadId")?;
    let source = parse_copy_source(SOURCE, text(call.headers, SOURCE)?.unwrap_or_default())?;
    check_bucket_name(&source.bucket)?;
    let condition = read_condition(call.headers, "x-amz-copy-source-")?;
    let range = text(call.headers, RANGE)?.map(parse_range).transpose()?;
    let info = call.volume.head_multipart(call.bucket(), call.key(), upload).await?;
    let object = head(call, &source, &condition).await.map_err(source_error)?;
    check_range(&object, range.as_ref())?;
    let part = match promised_algorithm(&info.headers) {
        // The bytes are shared with the source, not moved.
        None => call
            .volume
            .copy_part(call.bucket(), call.key(), upload, number, source.name(), range, &condition)
            .await
            .map_err(source_error)?,
        Some(algorithm) => read_and_put(call, upload, number, &source, range, &condition, algorithm).await?,
    };
    let mut out = BytesMut::with_capacity(320);
    let mut writer = Writer::new(&mut out);
    writer.root("CopyPartResult");
    writer.text("LastModified", &iso(part.modified));
    writer.text("ETag", &etag::quoted(&part.etag));
    checksum::write(&part.headers, &mut writer);
    writer.close("CopyPartResult");
    let mut reply = Reply::xml(out);
    version::tell_source(source.version, &mut reply.headers);
    Ok(reply)
}

/// `bytes=first-last`, nothing else.
pub(crate) fn parse_range(value: &str) -> Result<Range<u64>, S3Error> {
    let bounds = value.strip_prefix("bytes=").and_then(|bounds| bounds.split_once('-'));
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    match bounds.and_then(|(first, last)| Some((number(first)?, number(last)?))) {
        Some((first, last)) if first <= last && last < u64::MAX => Ok(first..last + 1),
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

/// A part whose checksum was promised must be read to know it.
async fn read_and_put(
    call: &Call<'_>,
    upload_id: &str,
    number: u16,
    source: &CopySource,
    range: Option<Range<u64>>,
    condition: &ReadCondition,
    algorithm: Algorithm,
) -> Result<PartInfo, S3Error> {
    let reader =
        call.volume.get_version(&source.bucket, &source.key, source.version, condition).await.map_err(source_error)?;
    let mut rest = range.unwrap_or(0..reader.info().size);
    if rest.end > reader.info().size {
        return Err(Error::InvalidRange.into());
    }
    let mut upload = call.volume.begin_upload(call.bucket(), rest.end - rest.start).await?;
    let want = Want { md5: true, fallback: Some(algorithm) };
    let mut digests = DigestPlan::read(&HeaderMap::new(), &PayloadForm::Unsigned, want)?.digests();
    while !rest.is_empty() {
        let piece = reader.read(rest.start, (rest.end - rest.start).min(PIECE_BYTES_MAX)).await?;
        if piece.is_empty() {
            return Err(Error::Corrupt("an object is shorter than its entry says".to_owned()).into());
        }
        rest.start += piece.len() as u64;
        let hashed = piece.clone();
        digests = tokio::task::spawn_blocking(move || {
            digests.update(&hashed);
            digests
        })
        .await
        .map_err(|error| S3Error::internal(&error))?;
        upload.write(piece).await?;
    }
    let computed = digests.finish(&Default::default())?;
    let staged = upload.finish().await?;
    let mut headers = Headers::new();
    if let Some(sum) = &computed.checksum {
        checksum::store(&mut headers, sum);
    }
    let digest = computed.md5.ok_or_else(|| S3Error::internal(&"a part was copied without its MD5"))?;
    let etag = ETag { digest, parts: 0 };
    Ok(call.volume.put_part(call.bucket(), call.key(), upload_id, number, etag, headers, staged).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_closed_and_nothing_else() {
        assert_eq!(parse_range("bytes=0-0").unwrap(), 0..1);
        assert_eq!(parse_range("bytes=5-9").unwrap(), 5..10);
        for bad in ["", "0-1", "bytes=1-", "bytes=-1", "bytes=2-1", "bytes=a-b", "bytes=0-18446744073709551615"] {
            assert!(parse_range(bad).is_err(), "{bad}");
        }
    }
}
