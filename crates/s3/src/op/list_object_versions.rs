//! ListObjectVersions of a bucket that never had versions: every object is its own only version, `null`.

use bytes::BytesMut;

use super::Call;
use super::listing::{Constant, Page, collect};
use crate::error::S3Error;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let page = Page::of(call, "max-keys")?;
    let key_marker = call.query.get("key-marker").unwrap_or("");
    let version_marker = call.query.get("version-id-marker").unwrap_or("");
    if !version_marker.is_empty() && version_marker != "null" {
        return Err(S3Error::argument("version-id-marker", version_marker, "Invalid version id specified"));
    }
    if !version_marker.is_empty() && key_marker.is_empty() {
        let message = "A version-id marker cannot be specified without a key marker.";
        return Err(S3Error::argument("version-id-marker", version_marker, message));
    }
    let after = (!key_marker.is_empty()).then(|| (key_marker, page.is_common_prefix(key_marker)));
    let constant = Constant {
        element: "Version",
        after_key: "<VersionId>null</VersionId><IsLatest>true</IsLatest>",
        tail: call.owner("Owner"),
    };
    let items = collect(call, &page, after, &constant).await?;
    let mut head = BytesMut::with_capacity(1024);
    let mut writer = Writer::new(&mut head);
    writer.root("ListVersionsResult");
    page.echo(&mut writer);
    page.element(&mut writer, "KeyMarker", key_marker);
    writer.text("VersionIdMarker", version_marker);
    if let Some((next, is_prefix)) = &items.next {
        page.element(&mut writer, "NextKeyMarker", next);
        if !is_prefix {
            writer.text("NextVersionIdMarker", "null");
        }
    }
    writer.number("MaxKeys", page.max);
    writer.flag("IsTruncated", items.next.is_some());
    Ok(items.reply(head, "ListVersionsResult"))
}
