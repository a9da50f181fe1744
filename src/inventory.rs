//! The list of a bucket's objects, page by page.
//!
//! Why:        a listing by S3 needs keys and 1000 signed requests for a million objects; this asks the volume.
//! Invariants: one page is all that is in memory; a list is not of one moment, as a listing of S3 is not.
//! Not here:   how it is printed (`cli`).

use margay_s3::iso_time;
use margay_volume::{Error, ListItem, ListRequest, Volume};
use serde_json::{Value, json};

/// Objects of one page.
const PAGE_OBJECTS: usize = 1000;

/// The objects of `bucket` behind `after`, and with `next` where the next page begins.
pub async fn page(volume: &Volume, bucket: &str, prefix: &str, after: Option<&str>) -> Result<Value, Error> {
    let mut objects = Vec::with_capacity(PAGE_OBJECTS);
    let mut note = |item: ListItem<'_>| {
        let ListItem::Object { key, size, etag, modified } = item else { return };
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
