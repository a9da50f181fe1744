//! Parses the headers of requests.
//!
//! Why:      several operations use the same headers; each kind is parsed in one place.
//! Not here: headers of the signature (auth) and of the payload (body), which headers an operation accepts
//!           (route::policy).

pub(crate) mod condition;
pub(crate) mod content;
pub(crate) mod copy_source;
pub(crate) mod etag;
pub(crate) mod lock;
pub(crate) mod mail_word;
pub(crate) mod range;
pub(crate) mod version;

use http::HeaderMap;

use crate::error::S3Error;

/// The value of a header as text.
pub(crate) fn text<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, S3Error> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(Some(text.trim())),
        Err(_) => Err(S3Error::argument(name, "", "the header is not UTF-8")),
    }
}
