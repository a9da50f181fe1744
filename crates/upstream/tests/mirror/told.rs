//! What a page of a listing says of an object besides its size, time and ETag, as MinIO has it.
//!
//! Not here:   the page (store).

use crate::store::Object;

/// Names in capitals, as MinIO has them.
pub(crate) fn told(object: &Object) -> String {
    let pairs = object.said().into_iter().map(|(name, value)| {
        let name = name.replace("x-amz-meta-", "X-Amz-Meta-");
        let value = value.replace('&', "&amp;").replace('<', "&lt;");
        format!("<{name}>{value}</{name}>")
    });
    format!("<UserMetadata>{}<expires/></UserMetadata>", pairs.collect::<String>())
}
