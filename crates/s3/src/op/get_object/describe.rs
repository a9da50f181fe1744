//! Selects the requested bytes of an object and builds the headers that describe them; shared by GET and HEAD.

use std::ops::Range;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use margay_volume::ObjectInfo;

use super::{parts_header, status};
use crate::body::Algorithm;
use crate::error::{Code, S3Error};
use crate::headers::range::ByteRange;
use crate::headers::{content, etag, lock, text, version};
use crate::op::{Call, checksum, object_tagging};
use crate::time::{http_date, parse_http_date};

/// The bytes of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub bytes: Range<u64>,
    /// The client requested a range or a part, even if it covers everything.
    pub partial: bool,
    pub by_part: bool,
}

/// Parses `Range`, `If-Range` and `partNumber`.
pub(crate) fn select(call: &Call<'_>, info: &ObjectInfo) -> Result<Selection, S3Error> {
    let range = text(call.headers, "range")?.and_then(ByteRange::parse);
    if call.query.has("partNumber") {
        if range.is_some() {
            return Err(S3Error::invalid_request("Cannot specify both Range header and partNumber query parameter"));
        }
        let bytes = part(info, call.part_number()?)?;
        return Ok(Selection { bytes, partial: true, by_part: true });
    }
    let whole = Selection { bytes: 0..info.size, partial: false, by_part: false };
    let Some(range) = range else { return Ok(whole) };
    if !if_range_holds(call, info)? {
        return Ok(whole);
    }
    let bytes = range.within(info.size).ok_or_else(|| {
        S3Error::from(Code::InvalidRange)
            .with("RangeRequested", text(call.headers, "range").ok().flatten().unwrap_or_default())
            .with("ActualObjectSize", info.size.to_string())
            .header(http::header::CONTENT_RANGE, format!("bytes */{}", info.size))
    })?;
    Ok(Selection { bytes, partial: true, by_part: false })
}

fn part(info: &ObjectInfo, number: u16) -> Result<Range<u64>, S3Error> {
    if info.part_sizes.is_empty() && number == 1 {
        return Ok(0..info.size);
    }
    let index = usize::from(number) - 1;
    let size = *info.part_sizes.get(index).ok_or_else(|| {
        let count = info.part_sizes.len().max(1);
        S3Error::from(Code::InvalidPartNumber)
            .with("PartNumberRequested", number.to_string())
            .with("ActualPartCount", count.to_string())
    })?;
    let start = info.part_sizes[..index].iter().sum::<u64>();
    Ok(start..start + size)
}

/// A range is returned only of the version that the client already has a part of.
fn if_range_holds(call: &Call<'_>, info: &ObjectInfo) -> Result<bool, S3Error> {
    let Some(value) = text(call.headers, "if-range")? else { return Ok(true) };
    if let Some(date) = parse_http_date(value) {
        return Ok(date.seconds() == info.modified.seconds());
    }
    Ok(etag::parse(value) == Some(info.etag))
}

/// Status and headers of a response with these bytes.
pub(crate) fn describe(
    call: &Call<'_>,
    info: &ObjectInfo,
    selection: &Selection,
) -> Result<(StatusCode, HeaderMap), S3Error> {
    let mut headers = HeaderMap::with_capacity(16);
    content::give_back(&info.headers, &mut headers);
    let value = |text: String| HeaderValue::from_str(&text).map_err(|error| S3Error::internal(&error));
    headers.insert(http::header::ETAG, value(etag::quoted(&info.etag))?);
    headers.insert(http::header::LAST_MODIFIED, value(http_date(info.modified))?);
    version::give_back(info.version, &mut headers);
    lock::give_back(&info.documents, &mut headers);
    headers.insert(http::header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from(selection.bytes.end - selection.bytes.start));
    let is_whole = selection.bytes == (0..info.size);
    if selection.partial && info.size > 0 {
        let Range { start, end } = selection.bytes;
        let range = format!("bytes {start}-{}/{}", end.saturating_sub(1), info.size);
        headers.insert(http::header::CONTENT_RANGE, value(range)?);
    }
    let tags = object_tagging::of(&info.documents).len();
    if tags > 0 {
        headers.insert(HeaderName::from_static("x-amz-tagging-count"), HeaderValue::from(tags));
    }
    if selection.by_part {
        headers.extend(parts_header(info));
    }
    // The whole object's checksum does not apply to a part.
    if call.headers.contains_key("x-amz-checksum-mode") && is_whole {
        checksum::give_back(&info.headers, &mut headers, checksum::stored_kind(&info.headers));
    }
    apply_overrides(call, &mut headers)?;
    Ok((status(selection.partial), headers))
}

/// Adds the checksum of the returned part, if requested; its type is the object's.
pub(crate) async fn add_part_checksum(
    call: &Call<'_>,
    info: &ObjectInfo,
    selection: &Selection,
    headers: &mut HeaderMap,
) -> Result<(), S3Error> {
    // A single-part object already has its checksum.
    let told = Algorithm::ALL.into_iter().any(|algorithm| headers.contains_key(algorithm.header()));
    if told || !selection.by_part || !call.headers.contains_key("x-amz-checksum-mode") {
        return Ok(());
    }
    let version = version::asked(call.query)?;
    let parts = call.view().part_checksums((call.bucket(), call.key(), version)).await?;
    if let Some(checksums) = parts.get(usize::from(call.part_number()?) - 1) {
        checksum::give_back(checksums, headers, checksum::stored_kind(&info.headers));
    }
    Ok(())
}

/// `response-*` parameters replace the stored headers.
fn apply_overrides(call: &Call<'_>, headers: &mut HeaderMap) -> Result<(), S3Error> {
    for (parameter, value) in call.query.pairs() {
        let Some(name) = parameter.strip_prefix("response-") else { continue };
        let header = HeaderName::from_bytes(name.as_bytes());
        let sent = HeaderValue::from_bytes(value.as_bytes());
        match (header, sent) {
            (Ok(header), Ok(sent)) => {
                headers.insert(header, sent);
            }
            _ => return Err(S3Error::argument(parameter, value, "the value cannot be sent as a header")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use margay_env::Timestamp;
    use margay_volume::{Documents, ETag, Headers};

    use super::*;

    fn info(part_sizes: &[u64], size: u64) -> ObjectInfo {
        ObjectInfo {
            size,
            etag: ETag { digest: [1; 16], parts: part_sizes.len() as u16 },
            modified: Timestamp(0),
            headers: Headers::new(),
            part_sizes: part_sizes.to_vec(),
            documents: Documents::new(),
            version: None,
        }
    }

    #[test]
    fn parts_are_found_by_number() {
        let of_three = info(&[5, 7, 1], 13);
        assert_eq!(part(&of_three, 1).unwrap(), 0..5);
        assert_eq!(part(&of_three, 3).unwrap(), 12..13);
        assert_eq!(part(&of_three, 4).unwrap_err().code, Code::InvalidPartNumber);
        let simple = info(&[], 13);
        assert_eq!(part(&simple, 1).unwrap(), 0..13);
        assert_eq!(part(&simple, 2).unwrap_err().code, Code::InvalidPartNumber);
    }
}
