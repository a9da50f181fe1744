//! Which headers pass between the page and the S3 door.
//!
//! Why:        the door must see what the page means and the signature covers, and nothing of the session.
//! Invariants: H1 cookies, origins, authorization, hop-by-hop and forwarding headers never pass.
//!             H2 every answer forbids sniffing, embedding by other sites and running as a page.
//! Not here:   contents that are shown (`raw`).

use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
    CONTENT_TYPE, EXPIRES, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

const PASSED: [HeaderName; 13] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPIRES,
    IF_MATCH,
    IF_MODIFIED_SINCE,
    IF_NONE_MATCH,
    IF_UNMODIFIED_SINCE,
    RANGE,
    HeaderName::from_static("content-md5"),
];
/// Made by the signer.
const SIGNED_HERE: [&str; 3] = ["x-amz-date", "x-amz-content-sha256", "x-amz-security-token"];
/// Headers of an answer that concern one connection or another origin.
const KEPT_BACK: [&str; 10] = [
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "set-cookie",
    "clear-site-data",
    "service-worker-allowed",
    "refresh",
    "link",
    "access-control-allow-origin",
];

/// The headers of a request that are passed to the door.
pub fn request_headers(given: &HeaderMap) -> HeaderMap {
    let mut passed = HeaderMap::new();
    for (name, value) in given {
        let is_amz = name.as_str().starts_with("x-amz-") && !SIGNED_HERE.contains(&name.as_str());
        if is_amz || PASSED.contains(name) {
            passed.append(name.clone(), value.clone());
        }
    }
    passed
}

/// Makes the headers of an answer harmless in a browser.
pub fn answer_headers(headers: &mut HeaderMap) {
    for name in KEPT_BACK {
        headers.remove(name);
    }
    let cors: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("access-control-")).cloned().collect();
    for name in cors {
        headers.remove(name);
    }
    set(headers, CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; sandbox");
    set(headers, X_FRAME_OPTIONS, "DENY");
    set(headers, CACHE_CONTROL, "private, no-store");
    common(headers);
}

/// What every answer of the console has.
pub(crate) fn common(headers: &mut HeaderMap) {
    set(headers, X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(headers, REFERRER_POLICY, "same-origin");
    set(headers, HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(headers, HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
}

pub(crate) fn set(headers: &mut HeaderMap, name: HeaderName, value: &'static str) {
    headers.insert(name, HeaderValue::from_static(value));
}
