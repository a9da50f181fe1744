//! ListBuckets.

use bytes::BytesMut;
use margay_volume::BucketInfo;

use super::{Call, account, token};
use crate::error::S3Error;
use crate::reply::Reply;
use crate::time::iso;
use crate::xml::write::Writer;

/// Maximum number of buckets in a page.
const BUCKETS_MAX: u64 = 10_000;
/// Buckets read at a time when filtering by account.
const SCANNED_PAGE: usize = 1000;

pub(crate) async fn run(call: &Call<'_>) -> Result<Reply, S3Error> {
    let prefix = call.query.get("prefix").unwrap_or("");
    let max = call.query.number("max-buckets", BUCKETS_MAX)?;
    if !(1..=BUCKETS_MAX).contains(&max) {
        return Err(S3Error::argument("max-buckets", &max.to_string(), "max-buckets lies between 1 and 10000"));
    }
    let after = call.query.get("continuation-token").map(token::decode).transpose()?.map(|(name, _)| name);
    let elsewhere = call.query.get("bucket-region").is_some_and(|region| region != call.options.region);
    let mut buckets = match elsewhere {
        true => Vec::new(),
        // One more than requested shows whether there is a next page.
        false => own_buckets(call, prefix, after, max as usize + 1).await?,
    };
    let is_truncated = buckets.len() as u64 > max;
    buckets.truncate(max as usize);
    let mut out = BytesMut::with_capacity(512 + 160 * buckets.len());
    let mut writer = Writer::new(&mut out);
    writer.root("ListAllMyBucketsResult");
    writer.raw(&account("Owner", &call.account()));
    writer.open("Buckets");
    for bucket in &buckets {
        writer.open("Bucket");
        writer.text("Name", &bucket.name);
        writer.text("CreationDate", &iso(bucket.created));
        writer.text("BucketRegion", &call.options.region);
        writer.close("Bucket");
    }
    writer.close("Buckets");
    writer.optional("Prefix", call.query.get("prefix"));
    if let (true, Some(last)) = (is_truncated, buckets.last()) {
        writer.text("ContinuationToken", &token::encode(&last.name, false));
    }
    writer.close("ListAllMyBucketsResult");
    Ok(Reply::xml(out))
}

/// Buckets of the caller's account; root sees all.
async fn own_buckets(
    call: &Call<'_>,
    prefix: &str,
    mut after: Option<String>,
    max: usize,
) -> Result<Vec<BucketInfo>, S3Error> {
    if let Some(only) = &call.options.only_bucket {
        let mut buckets = call.volume.list_buckets(only, None, 1).await?;
        let is_listed = only.starts_with(prefix) && after.as_ref().is_none_or(|after| only > after);
        buckets.retain(|bucket| bucket.name == *only && is_listed);
        return Ok(buckets);
    }
    if call.asker.is_root() {
        return Ok(call.volume.list_buckets(prefix, after.as_deref(), max).await?);
    }
    let account = call.account();
    let mut own = Vec::new();
    loop {
        let page = call.volume.list_buckets(prefix, after.as_deref(), SCANNED_PAGE).await?;
        let is_last = page.len() < SCANNED_PAGE;
        after = page.last().map(|bucket| bucket.name.clone());
        own.extend(page.into_iter().filter(|bucket| call.access.owner(&bucket.owner).id == account.id));
        if is_last || own.len() >= max {
            own.truncate(max);
            return Ok(own);
        }
    }
}
