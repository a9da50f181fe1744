//! The checksum algorithms of S3's headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A checksum algorithm of S3's `x-amz-checksum-*` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    pub const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// As in `x-amz-sdk-checksum-algorithm` and `ChecksumAlgorithm`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    /// The header or trailing header that carries its value in Base64.
    pub fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The length of its value in bytes.
    pub fn value_bytes(self) -> usize {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => 4,
            Algorithm::Crc64Nvme => 8,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 => 32,
        }
    }

    /// The algorithm of a name, in either case.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    /// The algorithm of a header, by its name in either case.
    pub fn from_header(header: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.header().eq_ignore_ascii_case(header))
    }
}

/// A checksum and the algorithm that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    algorithm: Algorithm,
    /// The value, then zeros.
    value: [u8; 32],
}

impl Checksum {
    /// `None` when the value's length does not fit the algorithm.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Option<Checksum> {
        if bytes.len() != algorithm.value_bytes() {
            return None;
        }
        let mut value = [0; 32];
        value[..bytes.len()].copy_from_slice(bytes);
        Some(Checksum { algorithm, value })
    }

    /// Reads the value of a checksum header.
    pub fn parse(algorithm: Algorithm, base64: &str) -> Option<Checksum> {
        Checksum::new(algorithm, &STANDARD.decode(base64).ok()?)
    }

    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The value, big-endian for a CRC.
    pub fn bytes(&self) -> &[u8] {
        &self.value[..self.algorithm.value_bytes()]
    }

    /// As headers and XML show it.
    pub fn base64(&self) -> String {
        STANDARD.encode(self.bytes())
    }
}
