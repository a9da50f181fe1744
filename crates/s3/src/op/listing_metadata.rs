//! A page of ListObjectsV2 with the metadata of each object, as MinIO answers `metadata=true` and Tigris the header
//! `x-tigris-list-metadata: true`.
//!
//! Why:        who wants modes and times of a page's objects (file systems, copying tools) would ask for each of them.
//! Source:     MinIO's element `UserMetadata`, whose elements are named as headers are; `UserTags` with the tags in one text.
//!             Tigris' element `Metadata` of each user header, with `Name` (without the prefix of such headers) and `Value`, as
//!             TigrisFS reads it.
//! Invariants: M1 an object's metadata is whole, or its element is missing: then HEAD tells. That is so for names that XML has
//!                not, for objects that were replaced while the page was made, and for those with a key of the client.
//!             M2 metadata needs s3:GetObject of the object, and tags s3:GetObjectTagging.
//! Not here:   a page without it (listing).

use bytes::{BufMut, BytesMut};
use http::HeaderMap;
use margay_env::Timestamp;
use margay_iam::acl::Permission;
use margay_volume::{Document, Documents, ETag, Headers, ListItem, ObjectInfo, Protection};

use super::Call;
use super::listing::{Items, OBJECT_END, Page, collect, put_line, put_prefix};
use crate::error::S3Error;
use crate::headers::content;
use crate::time::IsoTimes;
use crate::xml::write::{Writer, carries};

/// Objects whose heads are read together.
const HEADS_MAX: usize = 100;
/// Approximate size of an object's XML with its metadata, in bytes.
const ITEM_BYTES: usize = 640;

/// The header by which TigrisFS asks.
const TIGRIS: &str = "x-tigris-list-metadata";

/// The elements that the client reads.
#[derive(Clone, Copy)]
pub(crate) struct Forms {
    minio: bool,
    tigris: bool,
}

impl Forms {
    /// `None`: the client wants no metadata.
    pub(crate) fn asked_for(call: &Call<'_>) -> Option<Forms> {
        let minio = call.query.get("metadata") == Some("true");
        let tigris = call.headers.get(TIGRIS).is_some_and(|value| value == "true");
        (minio || tigris).then_some(Forms { minio, tigris })
    }
}

/// An object of the page.
struct Line {
    key: String,
    size: u64,
    etag: ETag,
    modified: Timestamp,
    /// `None`: not in what was listed.
    headers: Option<Headers>,
    documents: Documents,
}

impl Line {
    fn take(&mut self, info: ObjectInfo) {
        let is_same = (info.size, info.etag, info.modified) == (self.size, self.etag, self.modified);
        if is_same && !matches!(info.protection(), Some(Protection::Customer)) {
            (self.headers, self.documents) = (Some(info.headers), info.documents);
        }
    }
}

/// As `collect`, with metadata.
pub(crate) async fn collect_described(
    call: &Call<'_>,
    page: &Page<'_>,
    after: Option<(&str, bool)>,
    owner: &str,
    forms: Forms,
) -> Result<Items, S3Error> {
    if page.max == 0 {
        return collect(call, page, after, owner).await;
    }
    let (mut lines, mut prefixes, mut count, mut damaged) = (Vec::new(), BytesMut::new(), 0, None);
    let outcome = call
        .volume
        .list(&page.request(after), &mut |item| {
            count += 1;
            match item {
                ListItem::Object { key, size, etag, modified, row } => {
                    let headers = row.headers().unwrap_or_else(|error| {
                        damaged = Some(error);
                        None
                    });
                    let (key, documents) = (key.to_owned(), Documents::new());
                    lines.push(Line { key, size, etag, modified, headers, documents });
                }
                ListItem::Prefix(prefix) => put_prefix(&mut prefixes, page, prefix),
            }
        })
        .await?;
    if let Some(damaged) = damaged {
        return Err(damaged.into());
    }
    complete(call, &mut lines).await?;
    let mut objects = BytesMut::with_capacity(lines.len() * ITEM_BYTES);
    let mut times = IsoTimes::default();
    for line in &lines {
        put_line(&mut objects, page, owner, &mut times, (&line.key, line.size, line.etag, line.modified));
        put_metadata(call, line, forms, &mut objects).await?;
        objects.put_slice(OBJECT_END);
    }
    Ok(Items { objects, prefixes, count, next: outcome.next })
}

/// Reads what the listing did not have.
async fn complete(call: &Call<'_>, lines: &mut [Line]) -> Result<(), S3Error> {
    let mut lacking: Vec<&mut Line> = lines.iter_mut().filter(|line| line.headers.is_none()).collect();
    for some in lacking.chunks_mut(HEADS_MAX) {
        let keys: Vec<&str> = some.iter().map(|line| line.key.as_str()).collect();
        let heads = match call.view().head_listed(call.bucket(), &keys).await {
            // They change all the time: their readers ask for each.
            Err(margay_volume::Error::Busy) => continue,
            heads => heads?,
        };
        for (line, info) in some.iter_mut().zip(heads) {
            info.into_iter().for_each(|info| line.take(info));
        }
    }
    Ok(())
}

async fn put_metadata(call: &Call<'_>, line: &Line, forms: Forms, out: &mut BytesMut) -> Result<(), S3Error> {
    let Some(stored) = &line.headers else { return Ok(()) };
    let (ask, object) = (call.ask(), (line.key.as_str(), &line.documents));
    if call.access.permits(&ask, ("s3:GetObject", Some(Permission::Read)), object).await? {
        let mut headers = HeaderMap::with_capacity(stored.len() + 1);
        content::give_back(stored, &mut headers);
        if forms.minio {
            put_headers(&headers, out);
        }
        if forms.tigris {
            put_pairs(&headers, out);
        }
    }
    if let Some(tags) = line.documents.get(&Document::Tags).filter(|_| forms.minio)
        && call.access.permits(&ask, ("s3:GetObjectTagging", None), object).await?
    {
        Writer::new(out).text("UserTags", std::str::from_utf8(tags).unwrap_or_default());
    }
    Ok(())
}

/// `UserMetadata`, or nothing if one of the headers cannot be in it (M1).
fn put_headers(headers: &HeaderMap, out: &mut BytesMut) {
    let begin = out.len();
    let mut writer = Writer::new(out);
    writer.open("UserMetadata");
    for (name, value) in headers {
        let value = value.to_str().ok().filter(|value| carries(value));
        let (Some(element), Some(value)) = (element_of(name.as_str()), value) else {
            out.truncate(begin);
            return;
        };
        writer.text(&element, value);
    }
    writer.close("UserMetadata");
}

/// A `Metadata` for each user header, or nothing if one of them cannot be in it (M1).
fn put_pairs(headers: &HeaderMap, out: &mut BytesMut) {
    let begin = out.len();
    let mut writer = Writer::new(out);
    let own = |name: &str| name.strip_prefix(content::METADATA_PREFIX).map(str::to_owned);
    for (name, value) in headers.iter().filter_map(|(name, value)| Some((own(name.as_str())?, value))) {
        let Some(value) = value.to_str().ok().filter(|value| carries(value)) else {
            out.truncate(begin);
            return;
        };
        writer.open("Metadata");
        writer.text("Name", &name);
        writer.text("Value", value);
        writer.close("Metadata");
    }
}

/// The name of a header as an element: user metadata in capitals as MinIO has it, which its clients compare. `None`: XML has
/// no such name.
fn element_of(name: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !name.bytes().all(is_plain) || !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    if !name.starts_with(content::METADATA_PREFIX) {
        return Some(name.to_owned());
    }
    let mut after_dash = true;
    let capital = |letter: char| {
        let one = if after_dash { letter.to_ascii_uppercase() } else { letter };
        after_dash = letter == '-';
        one
    };
    Some(name.chars().map(capital).collect())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn written(pairs: &[(&'static str, &'static [u8])]) -> String {
        written_by(put_headers, pairs)
    }

    fn written_by(put: fn(&HeaderMap, &mut BytesMut), pairs: &[(&'static str, &'static [u8])]) -> String {
        let pairs = pairs.iter().map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value).expect("it is a value"))
        });
        let mut out = BytesMut::from("<x/>");
        put(&pairs.collect(), &mut out);
        String::from_utf8(out.to_vec()).expect("it is text")
    }

    #[test]
    fn headers_are_elements_or_none_is() {
        assert_eq!(
            written(&[("content-type", b"a/b"), ("x-amz-meta---symlink-target", b"<&>"), ("x-amz-meta-a_b.c", b"")]),
            "<x/><UserMetadata><content-type>a/b</content-type>\
             <X-Amz-Meta---Symlink-Target>&lt;&amp;&gt;</X-Amz-Meta---Symlink-Target>\
             <X-Amz-Meta-A_b.c></X-Amz-Meta-A_b.c></UserMetadata>"
        );
        assert_eq!(written(&[("content-type", b"a"), ("x-amz-meta-a!", b"v")]), "<x/>", "no name of XML");
        assert_eq!(written(&[("content-type", b"\xfc")]), "<x/>", "no text");
    }

    #[test]
    fn user_headers_are_pairs_or_none_is() {
        let pairs: &[(&'static str, &'static [u8])] =
            &[("content-type", b"a/b"), ("x-amz-meta-mtime", b"7"), ("x-amz-meta---symlink-target", b"<&>")];
        assert_eq!(
            written_by(put_pairs, pairs),
            "<x/><Metadata><Name>mtime</Name><Value>7</Value></Metadata>\
             <Metadata><Name>--symlink-target</Name><Value>&lt;&amp;&gt;</Value></Metadata>"
        );
        assert_eq!(written_by(put_pairs, &[("x-amz-meta-a", b"1"), ("x-amz-meta-b", b"\xfc")]), "<x/>", "no text");
    }
}
