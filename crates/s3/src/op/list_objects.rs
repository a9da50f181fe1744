//! ListObjects (version 1).

use bytes::BytesMut;

use super::Call;
use super::listing::{Page, collect};
use crate::error::S3Error;
use crate::reply::Reply;
use crate::xml::write::Writer;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let page = Page::of(call, "max-keys")?;
    let reply = show(call, &page).await?;
    match page.encoded_instead() {
        Some(page) => show(call, &page).await,
        None => Ok(reply),
    }
}

async fn show(call: &Call<'_>, page: &Page<'_>) -> Result<Reply, S3Error> {
    let marker = call.query.get("marker").unwrap_or("");
    let after = (!marker.is_empty()).then(|| (marker, page.is_common_prefix(marker)));
    let items = collect(call, page, after, &call.owner("Owner").await?).await?;
    let mut head = BytesMut::with_capacity(1024);
    let mut writer = Writer::new(&mut head);
    writer.root("ListBucketResult");
    page.echo(&mut writer);
    page.element(&mut writer, "Marker", marker);
    // Without a delimiter clients continue after the last key.
    if let (Some((next, _)), true) = (&items.next, page.delimiter.is_some()) {
        page.element(&mut writer, "NextMarker", next);
    }
    writer.number("MaxKeys", page.max);
    writer.flag("IsTruncated", items.next.is_some());
    Ok(items.reply(head, "ListBucketResult"))
}
