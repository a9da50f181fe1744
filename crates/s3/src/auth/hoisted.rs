//! Headers that a presigned URL carries as query parameters.
//!
//! Why:        the author of a presigned URL cannot set the headers of the request that will use it. SDKs put them into
//!             the query, where the signature covers them, and S3 reads them there.
//! Invariants: O1 a header of the request is never replaced or contradicted.
//!             O2 a checksum in a Version 4 URL is ignored, as at AWS: SDKs compute it over an empty body, before the
//!                real one exists. A checksum in a header counts.
//! Not here:   the parameters of the signature itself, whose names are capitalized.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::canonical::{decode, pairs};
use super::{AuthError, Version};

/// Headers other than `x-amz-*` that Version 2 clients put into the query.
const POSITIONAL: [&str; 2] = ["content-md5", "content-type"];
/// Checksums of a body.
const CHECKSUMS: [&str; 10] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-md5",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
    "x-amz-checksum-sha512",
    "x-amz-checksum-xxhash128",
    "x-amz-checksum-xxhash3",
    "x-amz-checksum-xxhash64",
];
const TOKEN: &str = "x-amz-security-token";

/// The parameters that stand for headers, decoded.
pub(crate) fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    // Most names are capitalized and need not be decoded.
    pairs(query).filter(|(name, _)| name.starts_with(['x', 'c', '%'])).filter_map(|(name, value)| {
        let name = decode(name).filter(|name| name.starts_with("x-amz-") || POSITIONAL.contains(&name.as_str()))?;
        Some((name, decode(value)?))
    })
}

/// Whether a parameter of a URL with this signature version stands for a header.
pub(crate) fn is_header(name: &str, presigned: Version) -> bool {
    match presigned {
        Version::V4 => name.starts_with("x-amz-") && !means_nothing(name, presigned),
        Version::V2 => name.starts_with("x-amz-") || POSITIONAL.contains(&name),
    }
}

/// Whether a parameter is the checksum of a body that did not exist yet; some SDKs capitalize its name.
pub(crate) fn means_nothing(name: &str, presigned: Version) -> bool {
    let is = |whole: &str| name.eq_ignore_ascii_case(whole);
    presigned == Version::V4 && (is("x-amz-sdk-checksum-algorithm") || CHECKSUMS.iter().any(|checksum| is(checksum)))
}

/// The headers of a presigned request, joined with those in its query. Nothing here is trusted before the signature is
/// verified.
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
            // The sender of the body knows better than the author of the URL what it is.
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
