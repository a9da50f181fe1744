//! CompleteMultipartUpload: assembles the listed parts into one object.

use std::collections::HashMap;

use bytes::BytesMut;
use margay_volume::{Error, Headers, PART_NUMBER_MAX, PartChoice, PartInfo, PutOutcome, ReadCondition, WriteCondition};

use super::{Call, checksum};
use crate::body::{Algorithm, Checksum};
use crate::error::{Code, S3Error};
use crate::headers::condition::write_condition;
use crate::headers::{etag, text, version};
use crate::op::encryption;
use crate::payload::Payload;
use crate::reply::Reply;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::{Writer, percent_encode};

/// A part as the client lists it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    number: u16,
    etag: String,
    checksum: Option<(Algorithm, String)>,
}

pub(crate) async fn run(call: &Call<'_>, payload: Payload) -> Result<Reply, S3Error> {
    let upload = call.required("uploadId")?;
    let condition = write_condition(call.headers)?;
    let found = call.view().head_multipart(call.bucket(), call.key(), upload).await;
    let listed = parse(&payload.document(call.headers, false).await?)?;
    let choices = choices(&listed);
    let info = match found {
        Err(Error::NoSuchUpload) => return again(call, upload, &choices.map_err(|_| Code::NoSuchUpload)?).await,
        found => found?,
    };
    let choices = choices?;
    let encryption = encryption::of_completion(call, &info)?;
    let extra = match needs_parts(call, &info.headers, &listed) {
        true => {
            let parts = stored_parts(call, upload).await?;
            checked_extra(call, &info.headers, &listed, &parts)?
        }
        false => Headers::new(),
    };
    let outcome =
        call.view().complete_multipart(call.bucket(), call.key(), upload, &choices, extra.clone(), &condition).await?;
    let mut reply = reply(call, &outcome, &extra);
    encryption::tell(encryption.as_ref(), &mut reply.headers);
    Ok(reply)
}

fn choices(listed: &[Listed]) -> Result<Vec<PartChoice>, S3Error> {
    let mut choices = Vec::with_capacity(listed.len());
    for part in listed {
        let invalid = || S3Error::from(Code::InvalidPart).with("PartNumber", part.number.to_string());
        choices.push(PartChoice { number: part.number, etag: etag::parse(&part.etag).ok_or_else(invalid)? });
    }
    if !choices.is_sorted_by(|before, after| before.number < after.number) {
        return Err(Code::InvalidPartOrder.into());
    }
    Ok(choices)
}

/// The client missed the answer to its first attempt: if the object still exists, it is repeated.
async fn again(call: &Call<'_>, upload: &str, choices: &[PartChoice]) -> Result<Reply, S3Error> {
    let (none, any) = (Headers::new(), WriteCondition::None);
    let outcome = call.volume.complete_multipart(call.bucket(), call.key(), upload, choices, none, &any).await?;
    let info = call.volume.head_object(call.bucket(), call.key(), &ReadCondition::default()).await?;
    Ok(reply(call, &outcome, &info.headers))
}

fn reply(call: &Call<'_>, outcome: &PutOutcome, checksums: &Headers) -> Reply {
    let mut out = BytesMut::with_capacity(512);
    let mut writer = Writer::new(&mut out);
    writer.root("CompleteMultipartUploadResult");
    writer.text("Location", &location(call));
    writer.text("Bucket", call.bucket());
    writer.text("Key", call.key());
    writer.text("ETag", &etag::quoted(&outcome.etag));
    checksum::write(checksums, &mut writer);
    writer.optional("ChecksumType", checksums.get(checksum::TYPE).map(String::as_str));
    writer.close("CompleteMultipartUploadResult");
    let mut reply = Reply::xml(out);
    version::give_back(version::made(outcome.version), &mut reply.headers);
    reply
}

fn location(call: &Call<'_>) -> String {
    let mut path = BytesMut::from(call.host.origin().as_bytes());
    path.extend_from_slice(b"/");
    percent_encode(&mut path, call.bucket());
    path.extend_from_slice(b"/");
    percent_encode(&mut path, call.key());
    String::from_utf8_lossy(&path).into_owned()
}

pub(crate) fn parse(document: &[u8]) -> Result<Vec<Listed>, S3Error> {
    let mut parts = Vec::new();
    let (mut number, mut etag, mut sum) = (None, None, None);
    let mut unknown = None;
    let mut too_many = false;
    walk(document, &mut |path, text| {
        let Some(inside) = path.strip_prefix("CompleteMultipartUpload") else {
            return Err(Malformed::because("the root is not CompleteMultipartUpload"));
        };
        match inside {
            "" => {}
            "/Part/PartNumber" => number = text.trim().parse::<u16>().ok(),
            "/Part/ETag" => etag = Some(text.trim().to_owned()),
            "/Part" => {
                let number = number.take().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
                let number = number.ok_or_else(|| Malformed::because("a part without a valid PartNumber"))?;
                let etag = etag.take().ok_or_else(|| Malformed::because("a part without an ETag"))?;
                parts.push(Listed { number, etag, checksum: sum.take() });
                too_many = parts.len() > usize::from(PART_NUMBER_MAX);
            }
            other => match other.strip_prefix("/Part/").and_then(algorithm_of) {
                Some(algorithm) => sum = Some((algorithm, text.trim().to_owned())),
                None => {
                    unknown.get_or_insert_with(|| path.to_owned());
                }
            },
        }
        if too_many { Err(Malformed::because("more parts than an upload can have")) } else { Ok(()) }
    })?;
    match unknown {
        Some(element) => Err(S3Error::not_implemented(&format!("element {element}"))),
        None if parts.is_empty() => Err(Malformed::because("no parts").into()),
        None => Ok(parts),
    }
}

fn algorithm_of(element: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|algorithm| checksum::element(*algorithm) == element)
}

/// Whether the stored parts are needed for comparisons.
fn needs_parts(call: &Call<'_>, upload: &Headers, listed: &[Listed]) -> bool {
    upload.contains_key(checksum::ALGORITHM)
        || listed.iter().any(|part| part.checksum.is_some())
        || call.headers.contains_key("x-amz-mp-object-size")
        || call.headers.contains_key(checksum::TYPE)
        || Algorithm::ALL.iter().any(|algorithm| call.headers.contains_key(algorithm.header()))
}

async fn stored_parts(call: &Call<'_>, upload: &str) -> Result<HashMap<u16, PartInfo>, S3Error> {
    let parts = call.view().parts(call.bucket(), call.key(), upload).await?;
    Ok(parts.into_iter().map(|part| (part.number, part)).collect())
}

/// Compares the client's claims about the parts and the whole; returns the headers of the whole's checksum.
fn checked_extra(
    call: &Call<'_>,
    upload: &Headers,
    listed: &[Listed],
    stored: &HashMap<u16, PartInfo>,
) -> Result<Headers, S3Error> {
    let promised = super::upload_part::promised_algorithm(upload);
    let mut size = 0;
    let mut sums: Vec<(Checksum, u64)> = Vec::with_capacity(listed.len());
    for part in listed {
        let invalid = || S3Error::from(Code::InvalidPart).with("PartNumber", part.number.to_string());
        let info = stored.get(&part.number).ok_or_else(invalid)?;
        size += info.size;
        let known = checksum::stored(&info.headers);
        if let Some((algorithm, value)) = &part.checksum
            && known != Some((*algorithm, value.as_str()))
        {
            return Err(invalid());
        }
        if let Some((algorithm, value)) = known
            && let Some(sum) = Checksum::parse(algorithm, value)
        {
            sums.push((sum, info.size));
        }
    }
    if let Some(text) = text(call.headers, "x-amz-mp-object-size")?
        && text.parse::<u64>() != Ok(size)
    {
        let message = format!("The object is {size} bytes long, not as x-amz-mp-object-size says");
        return Err(S3Error::invalid_request(message));
    }
    let kind = text(call.headers, checksum::TYPE)?.and_then(checksum::Kind::from_name);
    let upload_kind = upload.get(checksum::TYPE).and_then(|name| checksum::Kind::from_name(name));
    if let (Some(kind), Some(upload_kind)) = (kind, upload_kind)
        && kind != upload_kind
    {
        return Err(S3Error::invalid_request("The upload was created with another checksum type"));
    }
    let whole = match sums.first().map(|(first, _)| first.algorithm()) {
        // Every part has a checksum of one algorithm, so the whole has one too.
        Some(algorithm)
            if sums.len() == listed.len()
                && sums.iter().all(|(sum, _)| sum.algorithm() == algorithm)
                && promised.is_none_or(|promised| promised == algorithm) =>
        {
            let kind = match upload_kind.or(kind) {
                Some(kind) => kind,
                None => checksum::Kind::of_upload(algorithm, None)?,
            };
            Some((algorithm, kind, checksum::combine(kind, algorithm, &sums)))
        }
        _ => None,
    };
    compare_whole(call, whole.as_ref())?;
    let Some((algorithm, kind, value)) = whole else { return Ok(Headers::new()) };
    Ok(Headers::from([(algorithm.header().to_owned(), value), (checksum::TYPE.to_owned(), kind.name().to_owned())]))
}

/// Verifies the client's checksum of the whole.
fn compare_whole(call: &Call<'_>, whole: Option<&(Algorithm, checksum::Kind, String)>) -> Result<(), S3Error> {
    for algorithm in Algorithm::ALL {
        let Some(expected) = text(call.headers, algorithm.header())? else { continue };
        match whole {
            Some((own, kind, value)) if *own == algorithm => {
                // Some clients omit the count of a composite checksum.
                let without_count = value.split('-').next().unwrap_or(value);
                let matches = value == expected || (*kind == checksum::Kind::Composite && without_count == expected);
                if !matches {
                    return Err(S3Error::from(Code::BadDigest)
                        .with("ExpectedDigest", expected)
                        .with("CalculatedDigest", value.clone()));
                }
            }
            _ => {
                let name = algorithm.header();
                return Err(S3Error::not_implemented(&format!(
                    "{name} of an upload whose parts have no such checksum"
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(parts: &str) -> String {
        format!("<CompleteMultipartUpload xmlns=\"x\">{parts}</CompleteMultipartUpload>")
    }

    #[test]
    fn parts_are_read_in_their_order() {
        let text = document(
            "<Part><ETag>&quot;e&quot;</ETag><PartNumber>2</PartNumber></Part>\
             <Part><PartNumber>1</PartNumber><ETag>f</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part>",
        );
        let parts = parse(text.as_bytes()).unwrap();
        assert_eq!(parts[0], Listed { number: 2, etag: "\"e\"".to_owned(), checksum: None });
        assert_eq!(parts[1].checksum, Some((Algorithm::Crc32, "AAAAAA==".to_owned())));
    }

    #[test]
    fn bad_lists_are_refused() {
        let code = |text: &str| parse(text.as_bytes()).unwrap_err().code;
        assert_eq!(code(""), Code::MalformedXML);
        assert_eq!(code("<Other/>"), Code::MalformedXML);
        assert_eq!(code(&document("")), Code::MalformedXML);
        assert_eq!(code(&document("<Part><PartNumber>1</PartNumber></Part>")), Code::MalformedXML);
        assert_eq!(code(&document("<Part><PartNumber>0</PartNumber><ETag>e</ETag></Part>")), Code::MalformedXML);
        assert_eq!(code(&document("<Part><PartNumber>10001</PartNumber><ETag>e</ETag></Part>")), Code::MalformedXML);
        let unknown = "<Part><PartNumber>1</PartNumber><ETag>e</ETag><ChecksumXXHASH3>x</ChecksumXXHASH3></Part>";
        assert_eq!(code(&document(unknown)), Code::NotImplemented);
        let many = "<Part><PartNumber>1</PartNumber><ETag>e</ETag></Part>".repeat(10_001);
        assert_eq!(code(&document(&many)), Code::MalformedXML);
    }
}
