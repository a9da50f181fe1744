//! Version ids in requests and answers.

use http::{HeaderMap, HeaderName, HeaderValue};
use margay_volume::VersionId;

use crate::error::{S3Error, invalid_version};
use crate::route::query::Query;

/// Says which version an answer is about.
pub(crate) const HEADER: &str = "x-amz-version-id";
/// Says that the version is a delete marker.
pub(crate) const DELETE_MARKER: &str = "x-amz-delete-marker";
const PARAMETER: &str = "versionId";

/// The version that a request names.
pub(crate) fn asked(query: &Query) -> Result<Option<VersionId>, S3Error> {
    query.get(PARAMETER).map(|text| parse(PARAMETER, text)).transpose()
}

/// `name` is where the text stood.
pub(crate) fn parse(name: &str, text: &str) -> Result<VersionId, S3Error> {
    text.parse().map_err(|_| invalid_version(name, text))
}

pub(crate) fn give_back(version: Option<VersionId>, headers: &mut HeaderMap) {
    if let Some(version) = version {
        headers.insert(HeaderName::from_static(HEADER), value(version));
    }
}

/// The version of the source that a copy was asked to take.
pub(crate) fn tell_source(version: Option<VersionId>, headers: &mut HeaderMap) {
    if let Some(version) = version {
        headers.insert(HeaderName::from_static("x-amz-copy-source-version-id"), value(version));
    }
}

fn value(version: VersionId) -> HeaderValue {
    HeaderValue::from_str(&version.to_string()).expect("version ids are hexadecimal or null")
}

/// The version that a write made. A version `null` is not told, since the next write takes its place.
pub(crate) fn made(version: Option<VersionId>) -> Option<VersionId> {
    version.filter(|version| *version != VersionId::Null)
}
