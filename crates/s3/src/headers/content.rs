//! Headers that are stored with an object and returned with it: content headers and user metadata.
//!
//! Invariants: H1 a stored value can be sent as a header again (encoded if necessary).
//! Not here:   checksums (op::checksum), which headers an operation accepts (route::policy).

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_volume::Headers;

use super::mail_word;
use crate::body::stored_encoding;
use crate::error::{Code, S3Error};

/// Maximum size of user metadata, names (without the prefix) and values together, in bytes.
pub(crate) const METADATA_BYTES_MAX: usize = 2048;
/// Maximum size of the other stored headers together, in bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 8192;
pub(crate) const METADATA_PREFIX: &str = "x-amz-meta-";
/// The content type of an object without one.
pub(crate) const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";
const REDIRECT: &str = "x-amz-website-redirect-location";
const CONTENT: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    REDIRECT,
];

/// The headers of a request that are stored with the object.
pub(crate) fn collect(headers: &HeaderMap) -> Result<Headers, S3Error> {
    let mut stored = Headers::new();
    let mut content_bytes = 0;
    for name in CONTENT {
        let Some(value) = joined(headers, name)? else { continue };
        let value = if name == "content-encoding" { stored_encoding(&value).unwrap_or_default() } else { value };
        if value.is_empty() {
            continue;
        }
        content_bytes += name.len() + value.len();
        stored.insert(name.to_owned(), value);
    }
    if content_bytes > CONTENT_BYTES_MAX {
        return Err(Code::RequestHeaderSectionTooLarge.into());
    }
    if let Some(location) = stored.get(REDIRECT)
        && !["/", "http://", "https://"].iter().any(|start| location.starts_with(start))
    {
        return Err(S3Error::argument(REDIRECT, location, "a redirect begins with /, http:// or https://"));
    }
    let mut metadata_bytes = 0;
    for name in headers.keys().filter(|name| name.as_str().starts_with(METADATA_PREFIX)) {
        let value = joined(headers, name.as_str())?.map(|value| mail_word::decode(&value)).unwrap_or_default();
        metadata_bytes += name.as_str().len() - METADATA_PREFIX.len() + value.len();
        stored.insert(name.as_str().to_owned(), value);
    }
    if metadata_bytes > METADATA_BYTES_MAX {
        return Err(S3Error::from(Code::MetadataTooLarge)
            .with("Size", metadata_bytes.to_string())
            .with("MaxSizeAllowed", METADATA_BYTES_MAX.to_string()));
    }
    Ok(stored)
}

/// Joins the values of a repeatable header.
fn joined(headers: &HeaderMap, name: &str) -> Result<Option<String>, S3Error> {
    let mut whole: Option<String> = None;
    for value in headers.get_all(name) {
        let value = std::str::from_utf8(value.as_bytes())
            .map_err(|_| S3Error::argument(name, "", "the header is not UTF-8"))?
            .trim();
        match &mut whole {
            Some(whole) => {
                whole.push(',');
                whole.push_str(value);
            }
            None => whole = Some(value.to_owned()),
        }
    }
    Ok(whole)
}

/// Adds the stored headers (but not the checksums) to a response.
pub(crate) fn give_back(stored: &Headers, headers: &mut HeaderMap) {
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static(DEFAULT_CONTENT_TYPE));
    for (name, value) in stored {
        let is_metadata = name.starts_with(METADATA_PREFIX);
        if !is_metadata && !CONTENT.contains(&name.as_str()) {
            continue;
        }
        let sent = if is_metadata { mail_word::encode(value) } else { value.clone() };
        match (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(sent.as_bytes())) {
            (Ok(name), Ok(value)) => {
                headers.insert(name, value);
            }
            _ => tracing::warn!(name, "a stored header cannot be sent"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn what_describes_the_object_is_kept_and_given_back() {
        let stored = collect(&headers(&[
            ("content-type", "text/plain"),
            ("content-encoding", "aws-chunked, gzip"),
            ("x-amz-meta-cat", "margay"),
            ("x-amz-meta-cat", "ocelot"),
            ("x-amz-meta-name", "=?UTF-8?B?w7w=?="),
            ("x-amz-date", "20260101T000000Z"),
            ("authorization", "secret"),
        ]))
        .unwrap();
        assert_eq!(stored.len(), 4);
        assert_eq!(stored["content-encoding"], "gzip");
        assert_eq!(stored["x-amz-meta-cat"], "margay,ocelot");
        assert_eq!(stored["x-amz-meta-name"], "ü");
        let mut answer = HeaderMap::new();
        give_back(&stored, &mut answer);
        assert_eq!(answer["content-type"], "text/plain");
        assert_eq!(answer["x-amz-meta-name"], "=?UTF-8?B?w7w=?=");
    }

    #[test]
    fn an_object_of_unknown_type_is_a_byte_stream() {
        let stored = collect(&headers(&[("content-encoding", "aws-chunked")])).unwrap();
        assert!(stored.is_empty());
        let mut answer = HeaderMap::new();
        give_back(&stored, &mut answer);
        assert_eq!(answer["content-type"], DEFAULT_CONTENT_TYPE);
    }

    #[test]
    fn limits() {
        let code = |pairs: &[(&'static str, &str)]| collect(&headers(pairs)).unwrap_err().code;
        assert!(collect(&headers(&[("x-amz-meta-k", &"v".repeat(METADATA_BYTES_MAX - 1))])).is_ok());
        assert_eq!(code(&[("x-amz-meta-k", &"v".repeat(METADATA_BYTES_MAX))]), Code::MetadataTooLarge);
        assert_eq!(code(&[("cache-control", &"v".repeat(CONTENT_BYTES_MAX))]), Code::RequestHeaderSectionTooLarge);
        assert_eq!(code(&[(REDIRECT, "gopher://x")]), Code::InvalidArgument);
        let mut latin = HeaderMap::new();
        latin.insert("x-amz-meta-k", HeaderValue::from_bytes(b"\xfc").unwrap());
        assert_eq!(collect(&latin).unwrap_err().code, Code::InvalidArgument);
    }
}
