//! Values that rows store and the doors show: ETags, version ids, facts of a bucket.
//!
//! Not here:   their encoding (record), requests and results (margay-volume).

use std::collections::BTreeMap;

use margay_env::Timestamp;

use crate::kinds::SettingSet;

pub const PART_NUMBER_MAX: u16 = 10_000;

/// An S3 ETag without quotes: an MD5, or the MD5 of the parts' MD5s with their count.
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
        let digits = base16ct::lower::encode_str(&self.digest, &mut digits).expect("32 digits fit");
        formatter.write_str(digits)?;
        if self.parts > 0 { write!(formatter, "-{}", self.parts) } else { Ok(()) }
    }
}

/// Headers that S3 stores with an object and returns unchanged. Names in lower case: `content-type`,
/// `content-encoding`, `content-language`, `content-disposition`, `cache-control`, `expires`, `x-amz-meta-*`,
/// `x-amz-website-redirect-location`, `x-amz-storage-class`, and checksums as `x-amz-checksum-<algorithm>` and
/// `x-amz-checksum-type`.
pub type Headers = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketInfo {
    pub name: String,
    pub created: Timestamp,
    /// Empty: the root account.
    pub owner: String,
    /// What is set on it.
    pub settings: SettingSet,
    /// Changes with every change of a setting, and differs in a later bucket of the same name.
    pub generation: u64,
}

/// Whether a bucket keeps replaced and deleted objects as versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Versioning {
    /// Versioning was never enabled.
    #[default]
    Never,
    Enabled,
    /// Existing versions are kept; new objects are version `null`, replacing an earlier one.
    Suspended,
}

/// A version's id in S3; an opaque string to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VersionId {
    /// Written without versioning.
    Null,
    /// Never reused; of one key the newer version has the larger number.
    Numbered(u64),
}

/// Text that is no valid version id.
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
