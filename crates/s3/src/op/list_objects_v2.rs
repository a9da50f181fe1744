//! ListObjectsV2.

use bytes::BytesMut;

use super::Call;
use super::listing::{Page, collect};
use super::listing_metadata::{Forms, collect_described};
use super::token;
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
    let start_after = call.query.get("start-after").filter(|name| !name.is_empty());
    let token = call.query.get("continuation-token");
    // An empty token stands for the first page.
    let resumed = token.filter(|token| !token.is_empty()).map(token::decode).transpose()?;
    let after = match (&resumed, start_after) {
        (Some((name, is_prefix)), _) => Some((name.as_str(), *is_prefix)),
        (None, Some(name)) => Some((name, page.is_common_prefix(name))),
        (None, None) => None,
    };
    let with_owner = call.query.get("fetch-owner") == Some("true");
    let owner = if with_owner { call.owner("Owner").await? } else { String::new() };
    let items = match Forms::asked_for(call) {
        Some(forms) => collect_described(call, page, after, &owner, forms).await?,
        None => collect(call, page, after, &owner).await?,
    };
    let mut head = BytesMut::with_capacity(1024);
    let mut writer = Writer::new(&mut head);
    writer.root("ListBucketResult");
    page.echo(&mut writer);
    if let Some(name) = start_after {
        page.element(&mut writer, "StartAfter", name);
    }
    writer.optional("ContinuationToken", token);
    if let Some((next, is_prefix)) = &items.next {
        writer.text("NextContinuationToken", &token::encode(next, *is_prefix));
    }
    writer.number("KeyCount", items.count);
    writer.number("MaxKeys", page.max);
    writer.flag("IsTruncated", items.next.is_some());
    Ok(items.reply(head, "ListBucketResult"))
}
