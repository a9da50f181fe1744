//! Values that rows hold and the doors show: ETags, ids of versions, facts of a bucket.
//!
//! Not here:   how they are encoded (record), requests and their answers (margay-volume).

use std::collections::BTreeMap;

use margay_env::Timestamp;

use crate::kinds::SettingSet;

pub const PART_NUMBER_MAX: u16 = 10_000;

/// What S3 calls an ETag, without quotes: an MD5, or the MD5 of the parts' MD5s with their count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ETag {
    pub digest: [u8; 16],
    /// 0 for a simple object, else the number after the dash.
    pub parts: u16,
}

impl std::fmt::Display for ETag {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // In one piece: every answer about an object has one.
        let mut digits = [0; 32];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.digest) {
            let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        formatter.write_str(std::str::from_utf8(&digits).map_err(|_| std::fmt::Error)?)?;
        if self.parts > 0 { write!(formatter, "-{}", self.parts) } else { Ok(()) }
    }
}

/// Headers that S3 stores with an object and gives back as they came. Names in lower case:
/// `content-type`, `content-encoding`, `content-language`, `content-disposition`, `cache-control`, `expires`,
/// `x-amz-meta-*`, `x-amz-website-redirect-location`, `x-amz-storage-class`, and checksums as
/// `x-amz-checksum-<algorithm>` and `x-amz-checksum-type`.
pub type Headers = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    pub name: String,
    pub created: Timestamp,
    /// Empty: the root account.
    pub owner: String,
    /// What is set on it.
    pub settings: SettingSet,
    /// Another one after each change of what is set, and in a bucket of the same name made later.
    pub generation: u64,
}

/// Whether a bucket keeps what is replaced and deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Versioning {
    /// Nothing was ever kept.
    #[default]
    Never,
    Enabled,
    /// Versions that there are stay; what is written is version `null`, in the place of an earlier one.
    Suspended,
}

/// What S3 calls a version by; to clients an opaque string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionId {
    /// Written while the bucket did not keep versions.
    Null,
    /// Never used twice; of one key the newer version has the larger number.
    Numbered(u64),
}

/// Text that no version has as its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no version has such an id")]
pub struct NoVersionId;

impl std::fmt::Display for VersionId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            VersionId::Null => formatter.write_str("null"),
            VersionId::Numbered(number) => write!(formatter, "{number:016x}"),
        }
    }
}

impl std::str::FromStr for VersionId {
    type Err = NoVersionId;

    fn from_str(text: &str) -> Result<VersionId, NoVersionId> {
        if text == "null" {
            return Ok(VersionId::Null);
        }
        let is_ours = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = u64::from_str_radix(text, 16).ok().filter(|number| is_ours && *number > 0);
        number.map(VersionId::Numbered).ok_or(NoVersionId)
    }
}
