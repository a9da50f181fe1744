//! What the simulated store tells of an object: to who asks for it, and in a listing, as MinIO has it.
//!
//! Not here:   pages of listings (store).

use http::Method;

use crate::listen::{Answer, answer, refusal, text};
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

/// The answer to a GET or a HEAD.
pub(crate) fn read(head: &http::request::Parts, object: &Object) -> Answer {
    let etag = object.etag();
    if text(&head.headers, "if-match").is_some_and(|wanted| wanted != etag) {
        return refusal(412, "PreconditionFailed");
    }
    let mut out = if head.method == Method::HEAD {
        let mut out = answer(200, "");
        out.headers_mut().insert("content-length", object.body.len().into());
        out
    } else {
        let range = text(&head.headers, "range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let (first, last): (usize, usize) =
            range.map(|(one, two)| (one.parse().unwrap(), two.parse().unwrap())).unwrap();
        let end = object.body.len().min(last + 1);
        let mut out = answer(206, object.body.slice(first..end));
        let range = format!("bytes {first}-{}/{}", end - 1, object.body.len());
        out.headers_mut().insert("content-range", range.parse().unwrap());
        out
    };
    for (name, value) in object.said() {
        out.headers_mut()
            .insert(http::header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    out.headers_mut().insert("etag", etag.parse().unwrap());
    out.headers_mut().insert("last-modified", object.time("%a, %d %b %Y %H:%M:%S GMT").parse().unwrap());
    out
}
