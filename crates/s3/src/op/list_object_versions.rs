//! ListObjectVersions: all versions and delete markers, by key, the newest of a key first.

use bytes::{BufMut, BytesMut};
use margay_volume::{ListVersionsRequest, VersionId, VersionItem, VersionsAfter};

use super::Call;
use super::listing::{Items, Page};
use crate::error::S3Error;
use crate::headers::{etag, version};
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::write::Writer;

const KEY_MARKER: &str = "key-marker";
const VERSION_MARKER: &str = "version-id-marker";

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let page = Page::of(call, "max-keys")?;
    let reply = show(call, &page).await?;
    match page.encoded_instead() {
        Some(page) => show(call, &page).await,
        None => Ok(reply),
    }
}

async fn show(call: &Call<'_>, page: &Page<'_>) -> Result<Reply, S3Error> {
    let key_marker = call.query.get(KEY_MARKER).unwrap_or("");
    let version_marker = call.query.get(VERSION_MARKER).unwrap_or("");
    if !version_marker.is_empty() && key_marker.is_empty() {
        let message = "A version-id marker cannot be specified without a key marker.";
        return Err(S3Error::argument(VERSION_MARKER, version_marker, message));
    }
    let after = match (key_marker, version_marker) {
        ("", _) => None,
        (key, "") if page.is_common_prefix(key) => Some(VersionsAfter::Prefix(key)),
        (key, "") => Some(VersionsAfter::Key(key)),
        (key, version) => Some(VersionsAfter::Version(key, version::parse(VERSION_MARKER, version)?)),
    };
    let (items, next) = collect(call, page, after).await?;
    let mut head = BytesMut::with_capacity(1024);
    let mut writer = Writer::new(&mut head);
    writer.root("ListVersionsResult");
    page.echo(&mut writer);
    page.element(&mut writer, "KeyMarker", key_marker);
    writer.text("VersionIdMarker", version_marker);
    if let Some((key, version)) = &next {
        page.element(&mut writer, "NextKeyMarker", key);
        writer.optional("NextVersionIdMarker", version.map(|version| version.to_string()).as_deref());
    }
    writer.number("MaxKeys", page.max);
    writer.flag("IsTruncated", next.is_some());
    Ok(items.reply(head, "ListVersionsResult"))
}

/// Where the next page begins: a key and its version, or a common prefix.
type NextPage = Option<(String, Option<VersionId>)>;

/// Lists one page.
async fn collect(
    call: &Call<'_>,
    page: &Page<'_>,
    after: Option<VersionsAfter<'_>>,
) -> Result<(Items, NextPage), S3Error> {
    let mut items = Items { objects: BytesMut::new(), prefixes: BytesMut::new(), count: 0, next: None };
    let Page { bucket, prefix, delimiter, max, .. } = *page;
    let request = ListVersionsRequest { bucket, prefix, delimiter, after, max: max as usize };
    let owner = call.owner("Owner").await?;
    let outcome = call
        .volume
        .list_versions(&request, &mut |item| {
            items.count += 1;
            put(&mut items, page, &owner, &item);
        })
        .await?;
    assert!(items.count <= page.max, "a page holds no more than was asked for");
    Ok((items, outcome.next))
}

fn put(items: &mut Items, page: &Page<'_>, owner: &str, item: &VersionItem<'_>) {
    let (element, key, version, is_latest, modified) = match *item {
        VersionItem::Prefix(prefix) => {
            items.prefixes.put_slice(b"<CommonPrefixes><Prefix>");
            page.name(&mut items.prefixes, prefix);
            items.prefixes.put_slice(b"</Prefix></CommonPrefixes>");
            return;
        }
        VersionItem::Version { key, version, is_latest, modified, .. } => {
            ("Version", key, version, is_latest, modified)
        }
        VersionItem::DeleteMarker { key, version, is_latest, modified } => {
            ("DeleteMarker", key, version, is_latest, modified)
        }
    };
    let mut writer = Writer::new(&mut items.objects);
    writer.open(element);
    page.element(&mut writer, "Key", key);
    writer.text("VersionId", &version.to_string());
    writer.flag("IsLatest", is_latest);
    writer.text("LastModified", &iso(modified));
    if let VersionItem::Version { etag, size, .. } = item {
        writer.text("ETag", &etag::quoted(etag));
        writer.number("Size", *size);
        writer.text("StorageClass", "STANDARD");
    }
    writer.raw(owner);
    writer.close(element);
}
