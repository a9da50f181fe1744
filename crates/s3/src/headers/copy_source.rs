//! `x-amz-copy-source` and `x-amz-rename-source`: the source object of a copy or rename.

use margay_volume::{KEY_BYTES_MAX, VersionId};

use crate::error::{S3Error, key_too_long};
use crate::headers::version;
use crate::route::query::decode;

/// The source of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopySource {
    pub bucket: String,
    pub key: String,
    /// `None`: the current version.
    pub version: Option<VersionId>,
}

impl CopySource {
    pub(crate) fn name(&self) -> (&str, &str, Option<VersionId>) {
        (&self.bucket, &self.key, self.version)
    }
}

/// Parses `[/]bucket/key[?versionId=ID]`, percent-encoded.
pub(crate) fn parse_copy_source(header: &str, value: &str) -> Result<CopySource, S3Error> {
    if value.starts_with("arn:") {
        return Err(S3Error::not_implemented(&format!("{header} with an access point")));
    }
    // A question mark in a key is encoded as %3F.
    let (path, version) = value.split_once("?versionId=").map_or((value, None), |(path, id)| (path, Some(id)));
    let version = version.map(|text| version::parse(header, text)).transpose()?;
    let path = decode(path, false)?;
    let path = path.strip_prefix('/').unwrap_or(&path);
    match path.split_once('/') {
        Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
            Ok(CopySource { bucket: bucket.to_owned(), key: checked(key)?, version })
        }
        _ => Err(S3Error::argument(header, value, "Copy Source must mention the source bucket and key: bucket/key")),
    }
}

/// Parses the source of a rename: a key of the same bucket, percent-encoded, with or without `/bucket/` before it.
pub(crate) fn parse_rename_source(bucket: &str, value: &str) -> Result<String, S3Error> {
    let path = decode(value, false)?;
    let key = match path.strip_prefix('/').and_then(|path| path.strip_prefix(bucket)?.strip_prefix('/')) {
        Some(key) => key,
        None => path.strip_prefix('/').unwrap_or(&path),
    };
    if key.is_empty() {
        return Err(S3Error::argument("x-amz-rename-source", value, "the source must be a key of the bucket"));
    }
    checked(key)
}

fn checked(key: &str) -> Result<String, S3Error> {
    if key.len() > KEY_BYTES_MAX { Err(key_too_long()) } else { Ok(key.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_sources() {
        let of = |value: &str| parse_copy_source("x-amz-copy-source", value);
        let wanted = CopySource { bucket: "bucket".to_owned(), key: "a/b c+?".to_owned(), version: None };
        assert_eq!(of("/bucket/a/b%20c+%3F").unwrap(), wanted);
        let of_version = |version| CopySource { version: Some(version), ..wanted.clone() };
        assert_eq!(of("bucket/a/b%20c+%3F?versionId=null").unwrap(), of_version(VersionId::Null));
        let numbered = of("bucket/a/b%20c+%3F?versionId=00000000000000ff").unwrap();
        assert_eq!(numbered, of_version(VersionId::Numbered(255)));
        assert_eq!(of("bucket%2Fa/b%20c+%3F").unwrap(), wanted);
        for bad in ["", "/", "bucket", "bucket/", "//key", "bucket/k?versionId=1", "arn:aws:s3:x", "b/%ff"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(of(&format!("b/{}", "k".repeat(1025))).is_err());
    }

    #[test]
    fn rename_sources() {
        assert_eq!(parse_rename_source("bucket", "/bucket/a%2Fb").unwrap(), "a/b");
        assert_eq!(parse_rename_source("bucket", "a/b").unwrap(), "a/b");
        assert_eq!(parse_rename_source("bucket", "/a/b/").unwrap(), "a/b/");
        assert!(parse_rename_source("bucket", "").is_err());
        assert!(parse_rename_source("bucket", "/bucket/").is_err());
    }
}
