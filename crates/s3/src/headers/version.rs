//! Version ids in requests and responses.

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_volume::VersionId;

use crate::error::{S3Error, invalid_version};
use crate::route::query::Query;

/// The version that a response describes.
pub(crate) const HEADER: &str = "x-amz-version-id";
/// Says that the version is a delete marker.
pub(crate) const DELETE_MARKER: &str = "x-amz-delete-marker";
const PARAMETER: &str = "versionId";

/// The version that a request names.
pub(crate) fn asked(query: &Query) -> Result<Option<VersionId>, S3Error> {
    query.get(PARAMETER).map(|text| parse(PARAMETER, text)).transpose()
}

/// `name` is the parameter or header that contained the text.
pub(crate) fn parse(name: &str, text: &str) -> Result<VersionId, S3Error> {
    text.parse().map_err(|_| invalid_version(name, text))
}

pub(crate) fn give_back(version: Option<VersionId>, headers: &mut HeaderMap) {
    if let Some(version) = version {
        headers.insert(HeaderName::from_static(HEADER), value(version));
    }
}

/// Adds the version of a copy's source.
pub(crate) fn tell_source(version: Option<VersionId>, headers: &mut HeaderMap) {
    if let Some(version) = version {
        headers.insert(HeaderName::from_static("x-amz-copy-source-version-id"), value(version));
    }
}

fn value(version: VersionId) -> HeaderValue {
    HeaderValue::from_str(&version.to_string()).expect("version ids are hexadecimal or null")
}

/// The version that a write created. The version `null` is not reported, since the next write replaces it.
pub(crate) fn made(version: Option<VersionId>) -> Option<VersionId> {
    version.filter(|version| *version != VersionId::Null)
}
