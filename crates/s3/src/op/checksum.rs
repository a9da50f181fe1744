//! Checksums in the stored headers of objects, uploads and parts.
//!
//! Invariants: C1 a stored checksum was verified against its bytes, or combined from verified ones.
//! Not here:   computing a body's checksum (body).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use http::{HeaderMap, HeaderName, HeaderValue};
use margay_volume::Headers;
use sha1::Digest as _;

use crate::body::{Algorithm, Checksum};
use crate::error::S3Error;
use crate::xml::write::Writer;

/// Of an upload: the algorithm that its parts must have.
pub(crate) const ALGORITHM: &str = "x-amz-checksum-algorithm";
pub(crate) const TYPE: &str = "x-amz-checksum-type";

/// How the checksum of a multipart object is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Over the parts' checksums, followed by a dash and their count.
    Composite,
    /// Over all bytes.
    FullObject,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Composite => "COMPOSITE",
            Kind::FullObject => "FULL_OBJECT",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Kind> {
        [Kind::Composite, Kind::FullObject].into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    /// The kind of an upload, from the client's request.
    pub(crate) fn of_upload(algorithm: Algorithm, asked: Option<Kind>) -> Result<Kind, S3Error> {
        let fits = match algorithm {
            Algorithm::Crc64Nvme => &[Kind::FullObject][..],
            Algorithm::Crc32 | Algorithm::Crc32c => &[Kind::Composite, Kind::FullObject],
            Algorithm::Sha1 | Algorithm::Sha256 => &[Kind::Composite],
        };
        let kind = asked.unwrap_or(fits[0]);
        if fits.contains(&kind) {
            return Ok(kind);
        }
        let (kind, algorithm) = (kind.name(), algorithm.name().to_lowercase());
        Err(S3Error::invalid_request(format!("The {kind} checksum type cannot be used with the {algorithm} checksum.")))
    }
}

/// The stored checksum as text: Base64, followed by `-N` if composite.
pub(crate) fn stored(headers: &Headers) -> Option<(Algorithm, &str)> {
    Algorithm::ALL.into_iter().find_map(|algorithm| Some((algorithm, headers.get(algorithm.header())?.as_str())))
}

/// The kind of a stored checksum.
pub(crate) fn stored_kind(headers: &Headers) -> Kind {
    headers.get(TYPE).and_then(|name| Kind::from_name(name)).unwrap_or(Kind::FullObject)
}

/// Stores the checksum of an object or a part.
pub(crate) fn store(headers: &mut Headers, checksum: &Checksum) {
    headers.insert(checksum.algorithm().header().to_owned(), checksum.base64());
}

/// Replaces the stored checksum by one over all of the object's bytes.
pub(crate) fn replace(headers: &mut Headers, checksum: &Checksum) {
    headers.retain(|name, _| name != TYPE && Algorithm::from_header(name).is_none());
    store(headers, checksum);
}

/// Adds the stored checksum of an object, or of a part, to a response's headers. `kind` is the object's.
pub(crate) fn give_back(stored_headers: &Headers, headers: &mut HeaderMap, kind: Kind) {
    let Some((algorithm, value)) = stored(stored_headers) else { return };
    let Ok(value) = HeaderValue::from_str(value) else { return };
    headers.insert(HeaderName::from_static(algorithm.header()), value);
    headers.insert(HeaderName::from_static(TYPE), HeaderValue::from_static(kind.name()));
}

/// The element that carries an algorithm's value in XML.
pub(crate) fn element(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Crc32 => "ChecksumCRC32",
        Algorithm::Crc32c => "ChecksumCRC32C",
        Algorithm::Crc64Nvme => "ChecksumCRC64NVME",
        Algorithm::Sha1 => "ChecksumSHA1",
        Algorithm::Sha256 => "ChecksumSHA256",
    }
}

/// Writes the stored checksum as an element.
pub(crate) fn write(headers: &Headers, writer: &mut Writer<'_>) {
    if let Some((algorithm, value)) = stored(headers) {
        writer.text(element(algorithm), value);
    }
}

/// The checksum of a multipart object; each part gives its checksum and its length in bytes.
pub(crate) fn combine(kind: Kind, algorithm: Algorithm, parts: &[(Checksum, u64)]) -> String {
    match kind {
        Kind::Composite => {
            let mut joined = Vec::with_capacity(parts.len() * algorithm.value_bytes());
            for (checksum, _) in parts {
                joined.extend_from_slice(checksum.bytes());
            }
            format!("{}-{}", STANDARD.encode(digest(algorithm, &joined)), parts.len())
        }
        Kind::FullObject => {
            let crc = crc(algorithm).expect("only a CRC can be of the full object");
            let number = |checksum: &Checksum| {
                checksum.bytes().iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte))
            };
            let mut whole = parts.first().map_or(0, |(first, _)| number(first));
            for (checksum, bytes) in parts.iter().skip(1) {
                whole = crc_fast::checksum_combine(crc, whole, number(checksum), *bytes);
            }
            STANDARD.encode(&whole.to_be_bytes()[8 - algorithm.value_bytes()..])
        }
    }
}

fn crc(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}

fn digest(algorithm: Algorithm, bytes: &[u8]) -> Vec<u8> {
    match (algorithm, crc(algorithm)) {
        (_, Some(crc)) => crc_fast::checksum(crc, bytes).to_be_bytes()[8 - algorithm.value_bytes()..].to_vec(),
        (Algorithm::Sha256, None) => ring::digest::digest(&ring::digest::SHA256, bytes).as_ref().to_vec(),
        (_, None) => sha1::Sha1::digest(bytes).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(algorithm: Algorithm, bytes: &[u8]) -> Checksum {
        Checksum::new(algorithm, &digest(algorithm, bytes)).unwrap()
    }

    #[test]
    fn parts_combine_to_the_whole() {
        let whole: Vec<u8> = (0..10_000u32).map(|number| (number * 7) as u8).collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let parts: Vec<_> = [&whole[..1], &whole[1..5000], &whole[5000..5000], &whole[5000..]]
                .iter()
                .map(|part| (of(algorithm, part), part.len() as u64))
                .collect();
            assert_eq!(combine(Kind::FullObject, algorithm, &parts), of(algorithm, &whole).base64(), "{algorithm:?}");
        }
    }

    #[test]
    fn composites_carry_their_count() {
        let parts = [(of(Algorithm::Sha256, b"a"), 1), (of(Algorithm::Sha256, b"b"), 1)];
        let value = combine(Kind::Composite, Algorithm::Sha256, &parts);
        let joined = [parts[0].0.bytes(), parts[1].0.bytes()].concat();
        assert_eq!(value, format!("{}-2", of(Algorithm::Sha256, &joined).base64()));
    }

    #[test]
    fn kinds_fit_their_algorithms() {
        assert_eq!(Kind::of_upload(Algorithm::Crc32, None).unwrap(), Kind::Composite);
        assert_eq!(Kind::of_upload(Algorithm::Crc64Nvme, None).unwrap(), Kind::FullObject);
        assert!(Kind::of_upload(Algorithm::Crc64Nvme, Some(Kind::Composite)).is_err());
        assert!(Kind::of_upload(Algorithm::Sha256, Some(Kind::FullObject)).is_err());
    }
}
