//! Maps extended attributes to headers of the object.
//!
//! Why:        `user.a` in the mount and `x-amz-meta-a` in S3 are the same, as far as a header can represent it.
//! Invariants: H1 each header maps to one attribute, and each attribute to one header. A name or value that HTTP would
//!                change (upper case names, values with control characters or surrounding spaces) is not a header.
//! Not here:   where headers are stored (record).

use crate::api::Headers;

const CONTENT_TYPE_NAME: &str = "user.s3.content-type";
const CONTENT_TYPE: &str = "content-type";
/// What stores answer, and clients send, where nobody has said a type.
const CONTENT_TYPE_DEFAULTS: [&str; 2] = ["binary/octet-stream", "application/octet-stream"];
const NAME_PREFIX: &str = "user.";
const HEADER_PREFIX: &str = "x-amz-meta-";
/// Headers that tell the kind of a file are not attributes.
const RESERVED_PREFIX: &str = "margay-";
/// Maximum size of an object's user metadata: names without their prefix, and values.
const METADATA_BYTES_MAX: usize = 2048;

fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(allowed) && !name.starts_with(RESERVED_PREFIX)
}

/// The header of an attribute with this name, if its value fits.
pub(crate) fn header_of(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    if name == CONTENT_TYPE_NAME {
        return Some(CONTENT_TYPE.to_owned());
    }
    let name = name.strip_prefix(NAME_PREFIX).filter(|name| is_token(name))?;
    Some([HEADER_PREFIX, name].concat())
}

/// The attribute of a header; `None` if it has none.
pub(crate) fn name_of(header: &str) -> Option<String> {
    if header == CONTENT_TYPE {
        return Some(CONTENT_TYPE_NAME.to_owned());
    }
    let name = header.strip_prefix(HEADER_PREFIX).filter(|name| is_token(name))?;
    let name = [NAME_PREFIX, name].concat();
    (name != CONTENT_TYPE_NAME).then_some(name)
}

/// Whether a header says no more than that an object has bytes.
pub(crate) fn is_default(header: &str, value: &str) -> bool {
    header == CONTENT_TYPE && CONTENT_TYPE_DEFAULTS.contains(&value)
}

/// The header with its value, if it fits beside the other headers.
pub(crate) fn fit(headers: &Headers, header: String, value: &[u8]) -> Option<(String, String)> {
    let value = std::str::from_utf8(value).ok()?;
    if value.trim() != value || value.chars().any(char::is_control) || value.len() > METADATA_BYTES_MAX {
        return None;
    }
    let bytes = |name: &str, value: &str| name.strip_prefix(HEADER_PREFIX).map_or(0, |name| name.len() + value.len());
    let others: usize = headers.iter().map(|(name, value)| bytes(name, value)).sum();
    (others + bytes(&header, value) <= METADATA_BYTES_MAX).then(|| (header, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_type_that_nobody_has_set_is_known() {
        assert!(
            is_default("content-type", "binary/octet-stream") && is_default("content-type", "application/octet-stream")
        );
        assert!(!is_default("content-type", "text/plain") && !is_default("x-amz-meta-a", "binary/octet-stream"));
    }

    #[test]
    fn names_and_headers_are_one_to_one() {
        for (name, header) in [("user.a", "x-amz-meta-a"), (CONTENT_TYPE_NAME, CONTENT_TYPE)] {
            assert_eq!(header_of(name.as_bytes()).as_deref(), Some(header));
            assert_eq!(name_of(header).as_deref(), Some(name));
        }
        for name in ["user.A", "user.", "user.a b", "trusted.a", "user.margay-kind", "user.\u{e9}"] {
            assert_eq!(header_of(name.as_bytes()), None, "{name}");
        }
        for header in ["x-amz-meta-s3.content-type", "cache-control", "x-amz-meta-A", "x-amz-meta-margay-kind"] {
            assert_eq!(name_of(header), None, "{header}");
        }
    }

    #[test]
    fn what_http_would_change_does_not_fit() {
        let none = Headers::new();
        assert!(fit(&none, "x-amz-meta-a".to_owned(), "é 1".as_bytes()).is_some());
        for value in [&b" 1"[..], b"1\n", b"\xff", &[b'x'; 2048]] {
            assert!(fit(&none, "x-amz-meta-a".to_owned(), value).is_none(), "{value:?}");
        }
        let full = Headers::from([("x-amz-meta-b".to_owned(), "x".repeat(2046))]);
        assert!(fit(&full, "x-amz-meta-a".to_owned(), b"").is_some());
        assert!(fit(&full, "x-amz-meta-a".to_owned(), b"1").is_none());
    }
}
