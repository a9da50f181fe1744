//! Preconditions of requests, as headers.

use std::ops::Range;

use http::header::{HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, RANGE};

use crate::error::ClientError;

/// The precondition of a PUT.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    Always,
    /// The object does not exist.
    Absent,
    /// The object still has this ETag.
    Same(&'a str),
}

impl Condition<'_> {
    pub(crate) fn header(self) -> Result<Option<(HeaderName, HeaderValue)>, ClientError> {
        match self {
            Condition::Always => Ok(None),
            Condition::Absent => Ok(Some((IF_NONE_MATCH, HeaderValue::from_static("*")))),
            Condition::Same(etag) => Ok(Some((IF_MATCH, etag_value(etag)?))),
        }
    }
}

pub(crate) fn etag_value(etag: &str) -> Result<HeaderValue, ClientError> {
    HeaderValue::from_str(etag).map_err(|_| ClientError::Usage(format!("the ETag {etag:?} is no header value")))
}

/// Of bytes that are not none.
pub(crate) fn range_header(range: Range<u64>) -> (HeaderName, HeaderValue) {
    assert!(range.start < range.end, "HTTP knows no range without a byte");
    let text = format!("bytes={}-{}", range.start, range.end - 1);
    (RANGE, HeaderValue::from_str(&text).expect("digits are a header value"))
}
