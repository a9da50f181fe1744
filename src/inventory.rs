//! The inventory of a bucket's objects, page by page.
//!
//! Why:        a listing through S3 needs keys, and 1000 signed requests for a million objects; this reads the volume.
//! Invariants: I1 memory holds one page; like a listing of S3, an inventory is not a snapshot.
//! Not here:   output (`cli`).

use margay_s3::iso_time;
use margay_volume::{Error, ListItem, ListRequest, Volume};
use serde_json::{Value, json};

/// Objects of one page.
const PAGE_OBJECTS: usize = 1000;

/// The objects of `bucket` after `after`; `next` says where the next page begins.
pub async fn page(volume: &Volume, bucket: &str, prefix: &str, after: Option<&str>) -> Result<Value, Error> {
    let mut objects = Vec::with_capacity(PAGE_OBJECTS);
    let mut note = |item: ListItem<'_>| {
        let ListItem::Object { key, size, etag, modified, .. } = item else { return };
        objects.push(json!({
            "key": key,
            "size": size,
            "etag": etag.to_string(),
            "modified": iso_time(modified),
        }));
    };
    let request = ListRequest { bucket, prefix, delimiter: None, after, after_is_prefix: false, max: PAGE_OBJECTS };
    let next = volume.list(&request, &mut note).await?.next;
    Ok(json!({ "objects": objects, "next": next.map(|(key, _)| key) }))
}
