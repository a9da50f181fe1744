//! What the simulated store reads in the headers of a request.

use std::collections::BTreeMap;

use http::HeaderMap;

use crate::listen::text;
use crate::store::Object;

pub(crate) fn holds(headers: &HeaderMap, there: Option<&Object>) -> bool {
    let etag = there.map(Object::etag);
    text(headers, "if-match").is_none_or(|wanted| etag.as_deref() == Some(wanted))
        && text(headers, "if-none-match").is_none_or(|_| etag.is_none())
}

pub(crate) fn metadata(headers: &HeaderMap) -> BTreeMap<String, String> {
    let kept = headers.iter().filter(|(name, _)| name.as_str().starts_with("x-amz-meta-") || *name == "content-type");
    kept.map(|(name, value)| (name.as_str().to_owned(), value.to_str().unwrap().to_owned())).collect()
}
