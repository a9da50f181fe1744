//! Computes the digests of a body and compares them with the announced ones.
//!
//! Why:        an object may become visible only when everything that its sender announced is true.
//! Invariants: D1 `finish` compares every announced digest, from headers and trailer.
//! Locking:    none; `Digests` is `Send`, so large pieces can be hashed on a blocking thread.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use ring::digest::{Context, SHA256};
use sha1::{Digest as _, Sha1};

use super::md5::Md5;
use super::{Algorithm, Checksum, DigestError, DigestPlan, Trailers};
use crate::auth::hex;

/// Each piece of this size passes through all digests before the next, so that it stays in the L1 cache.
const PASS_BYTES: usize = 16 * 1024;

/// Digests of a body so far.
pub struct Digests {
    plan: DigestPlan,
    bytes: u64,
    md5: Option<Md5>,
    sha256: Option<Context>,
    sha1: Option<Sha1>,
    crc: Option<crc_fast::Digest>,
}

impl std::fmt::Debug for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digests").field("plan", &self.plan).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The verified digests of a whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// Length of the payload.
    pub bytes: u64,
    /// Present when wanted or announced.
    pub md5: Option<[u8; 16]>,
    /// Present when the payload's form or its checksum uses it.
    pub sha256: Option<[u8; 32]>,
    /// The client's checksum, else the fallback.
    pub checksum: Option<Checksum>,
    /// Whether the client chose that checksum.
    pub chosen: bool,
}

impl Digests {
    pub(crate) fn new(plan: DigestPlan) -> Digests {
        let crc = plan.checksum.and_then(crc_algorithm);
        let sha256 = plan.expected_sha256.is_some() || plan.checksum == Some(Algorithm::Sha256);
        Digests {
            bytes: 0,
            md5: plan.md5.then(Md5::new),
            sha256: sha256.then(|| Context::new(&SHA256)),
            sha1: (plan.checksum == Some(Algorithm::Sha1)).then(Sha1::new),
            crc: crc.map(crc_fast::Digest::new),
            plan,
        }
    }

    /// Whether a digest costs more than one pass over memory.
    pub fn is_heavy(&self) -> bool {
        self.md5.is_some() || self.sha256.is_some() || self.sha1.is_some()
    }

    /// Takes the next piece of payload.
    pub fn update(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        for pass in piece.chunks(PASS_BYTES) {
            if let Some(md5) = &mut self.md5 {
                md5.update(pass);
            }
            if let Some(sha256) = &mut self.sha256 {
                sha256.update(pass);
            }
            if let Some(sha1) = &mut self.sha1 {
                sha1.update(pass);
            }
            if let Some(crc) = &mut self.crc {
                crc.update(pass);
            }
        }
    }

    /// Compares everything, including the trailer, and returns the digests.
    pub fn finish(self, trailers: &Trailers) -> Result<Computed, DigestError> {
        let Digests { plan, bytes, md5, sha256, sha1, crc } = self;
        let md5: Option<[u8; 16]> = md5.map(Md5::finish);
        let sha256: Option<[u8; 32]> =
            sha256.map(|sha256| sha256.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes"));
        if let (Some(expected), Some(calculated)) = (plan.expected_sha256, sha256)
            && expected != calculated
        {
            let (expected, calculated) = (hex::text(&expected), hex::text(&calculated));
            return Err(DigestError::Sha256Mismatch { expected, calculated });
        }
        if let (Some(expected), Some(calculated)) = (plan.expected_md5, md5)
            && expected != calculated
        {
            let (expected, calculated) = (STANDARD.encode(expected), STANDARD.encode(calculated));
            return Err(DigestError::Md5Mismatch { expected, calculated });
        }
        let checksum = plan.checksum.map(|algorithm| {
            let value = match algorithm {
                Algorithm::Sha256 => sha256.map(|sha256| sha256.to_vec()),
                Algorithm::Sha1 => sha1.map(|sha1| sha1.finalize().to_vec()),
                Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Crc64Nvme => {
                    crc.map(|crc| crc.finalize().to_be_bytes().to_vec())
                }
            };
            let value = value.expect("the plan's checksum is computed");
            let start = value.len().checked_sub(algorithm.value_bytes()).expect("a CRC is held in 64 bits");
            Checksum::new(algorithm, &value[start..]).expect("cut to the algorithm's length")
        });
        let expected = match trailer_checksum(&plan, trailers)? {
            Some(in_trailer) => Some(in_trailer),
            None => plan.expected_checksum,
        };
        if let (Some(expected), Some(calculated)) = (expected, checksum)
            && expected != calculated
        {
            return Err(DigestError::ChecksumMismatch {
                algorithm: expected.algorithm(),
                expected: expected.base64(),
                calculated: calculated.base64(),
            });
        }
        Ok(Computed { bytes, md5, sha256, checksum, chosen: expected.is_some() })
    }
}

fn crc_algorithm(algorithm: Algorithm) -> Option<CrcAlgorithm> {
    match algorithm {
        Algorithm::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
        Algorithm::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
        Algorithm::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
        Algorithm::Sha1 | Algorithm::Sha256 => None,
    }
}

/// The checksum in the trailer, which must contain exactly what was announced.
fn trailer_checksum(plan: &DigestPlan, trailers: &Trailers) -> Result<Option<Checksum>, DigestError> {
    let announced = plan.trailer.map(Algorithm::header);
    if let Some((name, _)) = trailers.iter().find(|(name, _)| Some(*name) != announced) {
        return Err(DigestError::WrongTrailer(name.to_owned()));
    }
    let Some(algorithm) = plan.trailer else { return Ok(None) };
    let value =
        trailers.get(algorithm.header()).ok_or_else(|| DigestError::WrongTrailer(algorithm.header().to_owned()))?;
    Checksum::parse(algorithm, value).map(Some).ok_or(DigestError::BadTrailerValue(algorithm.header()))
}
