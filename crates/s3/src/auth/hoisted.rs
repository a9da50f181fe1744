//! Headers that a presigned URL carries as parameters of its query.
//!
//! Why:        whoever makes such a URL cannot set the headers of the request that will use it; SDKs put them into the
//!             query, where the signature covers them, and S3 reads them there.
//! Invariants: O1 a header of the request is never replaced, and never contradicted.
//! Not here:   the parameters of the signature itself, whose names are in capitals.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::canonical::{decode, pairs};
use super::{AuthError, Version};

/// Headers that Version 2 clients put into the query besides `x-amz-*`.
const POSITIONAL: [&str; 2] = ["content-md5", "content-type"];
const TOKEN: &str = "x-amz-security-token";

/// The parameters that stand for headers, decoded.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    // Most names are in capitals, and need not be decoded.
    pairs(query).filter(|(name, _)| name.starts_with(['x', 'c', '%'])).filter_map(|(name, value)| {
        let name = decode(name).filter(|name| name.starts_with("x-amz-") || POSITIONAL.contains(&name.as_str()))?;
        Some((name, decode(value)?))
    })
}

/// Whether a parameter of a URL that is presigned so stands for a header.
pub(crate) fn is_header(name: &str, presigned: Version) -> bool {
    name.starts_with("x-amz-") || (presigned == Version::V2 && POSITIONAL.contains(&name))
}

/// The headers of a request together with those that its query stands for, when that is presigned. Nothing here is
/// believed before the signature is.
pub(crate) fn join<'h>(
    query: &str,
    presigned: Option<Version>,
    own: &'h HeaderMap,
) -> Result<Cow<'h, HeaderMap>, AuthError> {
    let Some(presigned) = presigned else { return Ok(Cow::Borrowed(own)) };
    let added = added(query, presigned, own)?;
    if added.is_empty() {
        return Ok(Cow::Borrowed(own));
    }
    let mut headers = own.clone();
    headers.extend(added);
    Ok(Cow::Owned(headers))
}

fn added(query: &str, presigned: Version, own: &HeaderMap) -> Result<HeaderMap, AuthError> {
    let mut added = HeaderMap::new();
    for (name, value) in parameters(query).filter(|(name, _)| is_header(name, presigned) && name != TOKEN) {
        let refused = || AuthError::BadHoistedHeader(name.clone());
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
        let value = HeaderValue::from_bytes(value.trim_matches([' ', '\t']).as_bytes()).map_err(|_| refused())?;
        match own.get(&header) {
            Some(same) if *same == value => {}
            // The sender of the body knows better than the maker of the URL what it is.
            Some(_) if POSITIONAL.contains(&name.as_str()) => {}
            Some(_) => return Err(refused()),
            None if added.contains_key(&header) => return Err(refused()),
            None => {
                added.insert(header, value);
            }
        }
    }
    Ok(added)
}
