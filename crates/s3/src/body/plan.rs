//! Which digests a request needs, and their expected values.
//!
//! Why:      an announced digest that is malformed, ambiguous or unknown is refused before any byte is received.
//! Not here: requests whose checksum headers describe something other than their body (CompleteMultipartUpload,
//!           CreateMultipartUpload); this code must not parse those.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};

use super::{Algorithm, Checksum, DigestError, Digests};
use crate::auth::PayloadForm;

const CHECKSUM_PREFIX: &str = "x-amz-checksum-";
const ALGORITHM: &str = "x-amz-checksum-algorithm";
/// Headers with the checksum prefix that contain no checksum.
const NOT_CHECKSUMS: [&str; 3] = [ALGORITHM, "x-amz-checksum-mode", "x-amz-checksum-type"];

/// Digests that the operation needs, whatever the client announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// For an ETag.
    pub md5: bool,
    /// Computed when the client names no checksum.
    pub fallback: Option<Algorithm>,
}

/// The digests to compute over one body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DigestPlan {
    pub(crate) md5: bool,
    /// From `Content-MD5`.
    pub(crate) expected_md5: Option<[u8; 16]>,
    /// From `x-amz-content-sha256`.
    pub(crate) expected_sha256: Option<[u8; 32]>,
    /// From a checksum header.
    pub(crate) expected_checksum: Option<Checksum>,
    /// Its value will follow in the trailer.
    pub(crate) trailer: Option<Algorithm>,
    /// Requested by name.
    pub(crate) asked: Option<Algorithm>,
    /// The checksum to compute and return: the client's, else the fallback.
    pub(crate) checksum: Option<Algorithm>,
}

impl DigestPlan {
    /// Parses what the headers say about the body.
    pub fn read(headers: &HeaderMap, form: &PayloadForm, want: Want) -> Result<DigestPlan, DigestError> {
        let expected_md5 = content_md5(headers)?;
        let expected_checksum = checksum_header(headers)?;
        let trailer = announced_trailer(headers)?;
        if trailer.is_some() && !form.has_trailer() {
            return Err(DigestError::TrailerWithoutForm);
        }
        if trailer.is_some() && expected_checksum.is_some() {
            return Err(DigestError::SeveralChecksums);
        }
        let named = trailer.or(expected_checksum.map(|checksum| checksum.algorithm()));
        check_sdk_algorithm(headers, named)?;
        let asked = asked_algorithm(headers, named)?;
        Ok(DigestPlan {
            md5: want.md5 || expected_md5.is_some(),
            expected_md5,
            expected_sha256: match form {
                PayloadForm::Sha256(digest) => Some(*digest),
                _ => None,
            },
            expected_checksum,
            trailer,
            asked,
            checksum: named.or(asked).or(want.fallback),
        })
    }

    /// The same plan without verifying the payload's SHA-256 of the signature.
    pub fn without_payload_hash(self) -> DigestPlan {
        DigestPlan { expected_sha256: None, ..self }
    }

    /// The checksum algorithm that the client chose.
    pub fn chosen(&self) -> Option<Algorithm> {
        self.trailer.or(self.expected_checksum.map(|checksum| checksum.algorithm())).or(self.asked)
    }

    /// Begins to compute.
    pub fn digests(self) -> Digests {
        Digests::new(self)
    }
}

fn content_md5(headers: &HeaderMap) -> Result<Option<[u8; 16]>, DigestError> {
    let mut values = headers.get_all("content-md5").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(DigestError::BadContentMd5);
    }
    let bytes = STANDARD.decode(value.as_bytes().trim_ascii()).map_err(|_| DigestError::BadContentMd5)?;
    bytes.try_into().map(Some).map_err(|_| DigestError::BadContentMd5)
}

fn checksum_header(headers: &HeaderMap) -> Result<Option<Checksum>, DigestError> {
    let mut found = None;
    let names = headers.keys().map(HeaderName::as_str);
    for name in names.filter(|name| name.starts_with(CHECKSUM_PREFIX) && !NOT_CHECKSUMS.contains(name)) {
        let algorithm = Algorithm::from_header(name).ok_or_else(|| DigestError::UnknownAlgorithm(name.to_owned()))?;
        for value in headers.get_all(name) {
            let value = value.to_str().unwrap_or("").trim();
            let checksum = Checksum::parse(algorithm, value).ok_or(DigestError::BadValue(algorithm.header()))?;
            if found.replace(checksum).is_some() {
                return Err(DigestError::SeveralChecksums);
            }
        }
    }
    Ok(found)
}

fn announced_trailer(headers: &HeaderMap) -> Result<Option<Algorithm>, DigestError> {
    let mut found = None;
    for value in headers.get_all("x-amz-trailer") {
        let value = value.to_str().map_err(|_| DigestError::UnknownTrailer)?;
        for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let algorithm = Algorithm::from_header(name).ok_or(DigestError::UnknownTrailer)?;
            if found.replace(algorithm).is_some() {
                return Err(DigestError::SeveralChecksums);
            }
        }
    }
    Ok(found)
}

/// The algorithm of `x-amz-checksum-algorithm`, unless the body's checksum or trailer contradicts it.
fn asked_algorithm(headers: &HeaderMap, named: Option<Algorithm>) -> Result<Option<Algorithm>, DigestError> {
    let Some(value) = headers.get(ALGORITHM) else { return Ok(None) };
    let algorithm = value.to_str().ok().and_then(|name| Algorithm::from_name(name.trim()));
    match algorithm {
        Some(algorithm) if named.is_none_or(|named| named == algorithm) => Ok(Some(algorithm)),
        _ => Err(DigestError::BadAskedAlgorithm),
    }
}

fn check_sdk_algorithm(headers: &HeaderMap, named: Option<Algorithm>) -> Result<(), DigestError> {
    let Some(value) = headers.get("x-amz-sdk-checksum-algorithm") else { return Ok(()) };
    let algorithm = value.to_str().ok().and_then(|name| Algorithm::from_name(name.trim()));
    match (algorithm, named) {
        (None, _) => Err(DigestError::BadSdkAlgorithm),
        (Some(_), None) => Err(DigestError::SdkAlgorithmAlone),
        (Some(algorithm), Some(named)) if algorithm != named => Err(DigestError::BadSdkAlgorithm),
        (Some(_), Some(_)) => Ok(()),
    }
}
