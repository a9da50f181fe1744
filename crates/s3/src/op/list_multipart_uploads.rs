//! ListMultipartUploads.

use bytes::BytesMut;
use margay_volume::{KEY_BYTES_MAX, UploadInfo};

use super::listing::Page;
use super::{Call, checksum};
use crate::error::S3Error;
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::write::Writer;

/// Uploads read from the volume at a time.
const UPLOADS_PAGE: usize = 1000;

/// An item of the response.
#[derive(Debug)]
enum Line {
    Upload(UploadInfo),
    Prefix(String),
}

/// The end of a page: a key and an upload id, or a common prefix without one.
#[derive(Debug, PartialEq, Eq)]
struct Marker {
    key: String,
    upload: String,
}

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let page = Page::of(call, "max-uploads")?;
    let reply = show(call, &page).await?;
    match page.encoded_instead() {
        Some(page) => show(call, &page).await,
        None => Ok(reply),
    }
}

async fn show(call: &Call<'_>, page: &Page<'_>) -> Result<Reply, S3Error> {
    let key_marker = call.query.get("key-marker").unwrap_or("");
    // Without a key marker the upload marker is ignored, as AWS documents.
    let id_marker = call.query.get("upload-id-marker").filter(|id| !id.is_empty() && !key_marker.is_empty());
    call.view().head_bucket(page.bucket).await?;
    let (lines, next) = match page.max {
        0 => (Vec::new(), None),
        _ => collect(call, page, key_marker, id_marker).await?,
    };
    let mut out = BytesMut::with_capacity(1024 + lines.len() * 400);
    let mut writer = Writer::new(&mut out);
    writer.root("ListMultipartUploadsResult");
    writer.text("Bucket", page.bucket);
    page.element(&mut writer, "KeyMarker", key_marker);
    writer.text("UploadIdMarker", id_marker.unwrap_or(""));
    if let Some(next) = &next {
        page.element(&mut writer, "NextKeyMarker", &next.key);
        writer.text("NextUploadIdMarker", &next.upload);
    }
    page.element(&mut writer, "Prefix", page.prefix);
    if let Some(delimiter) = page.delimiter {
        page.element(&mut writer, "Delimiter", delimiter);
    }
    if page.url_encoded {
        writer.text("EncodingType", "url");
    }
    writer.number("MaxUploads", page.max);
    writer.flag("IsTruncated", next.is_some());
    for line in &lines {
        if let Line::Upload(upload) = line {
            let owners = call.owners_of_upload(&upload.documents).await?;
            write_upload(&owners, page, &mut writer, upload);
        }
    }
    for line in &lines {
        if let Line::Prefix(prefix) = line {
            writer.open("CommonPrefixes");
            page.element(&mut writer, "Prefix", prefix);
            writer.close("CommonPrefixes");
        }
    }
    writer.close("ListMultipartUploadsResult");
    Ok(Reply::xml(out))
}

/// `owners` is the XML of the initiator and owner.
fn write_upload(owners: &str, page: &Page<'_>, writer: &mut Writer<'_>, upload: &UploadInfo) {
    writer.open("Upload");
    page.element(writer, "Key", &upload.key);
    writer.text("UploadId", &upload.upload);
    writer.raw(owners);
    writer.text("StorageClass", "STANDARD");
    writer.text("Initiated", &iso(upload.initiated));
    writer.optional("ChecksumAlgorithm", upload.headers.get(checksum::ALGORITHM).map(String::as_str));
    writer.optional("ChecksumType", upload.headers.get(checksum::TYPE).map(String::as_str));
    writer.close("Upload");
}

async fn collect(
    call: &Call<'_>,
    page: &Page<'_>,
    key_marker: &str,
    id_marker: Option<&str>,
) -> Result<(Vec<Line>, Option<Marker>), S3Error> {
    let mut lines: Vec<Line> = Vec::new();
    let mut last = Marker { key: key_marker.to_owned(), upload: id_marker.unwrap_or("").to_owned() };
    if page.is_common_prefix(key_marker) {
        last = Marker { key: beyond(key_marker), upload: String::new() };
    }
    loop {
        let after = (!last.key.is_empty())
            .then_some((last.key.as_str(), Some(last.upload.as_str()).filter(|upload| !upload.is_empty())));
        let (uploads, more) = call.volume.list_multipart(page.bucket, page.prefix, after, UPLOADS_PAGE).await?;
        let mut skipped = false;
        for upload in uploads {
            if lines.len() as u64 == page.max {
                let next = lines.last().map(marker);
                return Ok((lines, next));
            }
            match common_prefix(page, &upload.key) {
                Some(prefix) => {
                    last = Marker { key: beyond(&prefix), upload: String::new() };
                    lines.push(Line::Prefix(prefix));
                    skipped = true;
                    break;
                }
                None => {
                    last = Marker { key: upload.key.clone(), upload: upload.upload.clone() };
                    lines.push(Line::Upload(upload));
                }
            }
        }
        if !more && !skipped {
            return Ok((lines, None));
        }
    }
}

/// The marker after a page that is not the last.
fn marker(line: &Line) -> Marker {
    match line {
        Line::Upload(upload) => Marker { key: upload.key.clone(), upload: upload.upload.clone() },
        Line::Prefix(prefix) => Marker { key: prefix.clone(), upload: String::new() },
    }
}

/// The common prefix of a key, if the delimiter occurs after the listing's prefix.
fn common_prefix(page: &Page<'_>, key: &str) -> Option<String> {
    let delimiter = page.delimiter?;
    let rest = key.strip_prefix(page.prefix)?;
    let at = rest.find(delimiter)?;
    Some(key[..page.prefix.len() + at + delimiter.len()].to_owned())
}

/// A name greater than every key with this prefix: no key is as long, and none has greater characters.
fn beyond(prefix: &str) -> String {
    let mut name = String::with_capacity(prefix.len() + KEY_BYTES_MAX + 4);
    name.push_str(prefix);
    while name.len() <= KEY_BYTES_MAX {
        name.push(char::MAX);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beyond_a_prefix() {
        let name = beyond("a/");
        assert!(name.as_str() > "a/zzz" && name.as_str() > "a/\u{10FFFF}\u{10FFFF}" && name.as_str() < "a0");
    }

    #[test]
    fn common_prefixes_end_with_the_delimiter() {
        let page = crate::op::listing::tests::page(Some("/"), false);
        assert_eq!(common_prefix(&page, "p/a/b"), Some("p/a/".to_owned()));
        assert_eq!(common_prefix(&page, "p/a"), None);
    }
}
