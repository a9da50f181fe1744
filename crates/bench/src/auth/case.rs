//! The cases: what is sent, and how it is signed.
//!
//! Source:   `v2`, `v4`, `v4chunk` and `v4chunk-nohash` are the four of LeoFS' comparison of signatures, by its names.
//! Not here: making the signatures (`sign`).

use margay_client::{PayloadHash, Scheme};

/// One way to send the same objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// PUT without any signature; the bucket is opened to everybody for it
    Unsigned,
    /// PUT, Signature V2
    V2,
    /// PUT, Signature V4 over headers and the SHA-256 of the body, known before it is sent
    V4,
    /// PUT, Signature V4 over the headers only (UNSIGNED-PAYLOAD)
    V4Headers,
    /// PUT, Signature V4, aws-chunked, each chunk signed
    V4chunk,
    /// PUT, as v4chunk with blank chunk signatures, for a server that was told not to check them
    V4chunkNohash,
    /// GET without any signature
    GetUnsigned,
    /// GET, Signature V2
    GetV2,
    /// GET, Signature V4
    GetV4,
}

impl Case {
    /// As the option `--cases` and the report name it.
    pub fn name(self) -> &'static str {
        match self {
            Case::Unsigned => "unsigned",
            Case::V2 => "v2",
            Case::V4 => "v4",
            Case::V4Headers => "v4-headers",
            Case::V4chunk => "v4chunk",
            Case::V4chunkNohash => "v4chunk-nohash",
            Case::GetUnsigned => "get-unsigned",
            Case::GetV2 => "get-v2",
            Case::GetV4 => "get-v4",
        }
    }

    /// Whether it reads objects that must be there before.
    pub fn reads(self) -> bool {
        matches!(self, Case::GetUnsigned | Case::GetV2 | Case::GetV4)
    }

    pub(super) fn scheme(self) -> Scheme {
        match self {
            Case::Unsigned | Case::GetUnsigned => Scheme::Anonymous,
            Case::V2 | Case::GetV2 => Scheme::V2,
            Case::V4 | Case::V4Headers | Case::V4chunk | Case::V4chunkNohash | Case::GetV4 => Scheme::V4,
        }
    }

    /// What the signature covers of a body with this SHA-256.
    pub(super) fn hash(self, sha256: [u8; 32]) -> PayloadHash {
        match self {
            Case::V4 | Case::GetV4 => PayloadHash::Sha256(sha256),
            Case::V4chunk => PayloadHash::SignedChunks,
            Case::V4chunkNohash => PayloadHash::BlankChunks,
            _ => PayloadHash::Unsigned,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn a_case_has_one_name() {
        for case in Case::value_variants() {
            assert_eq!(case.to_possible_value().unwrap().get_name(), case.name());
            assert_eq!(case.reads(), case.name().starts_with("get-"));
        }
    }
}
