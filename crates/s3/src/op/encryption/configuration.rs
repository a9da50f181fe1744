//! The default encryption of a bucket, as XML and as stored.
//!
//! Layout: stored: docs/format/documents.md. `BucketKeyEnabled` is returned as set and has no effect.

use bytes::BytesMut;
use margay_volume::{KEY_NAME_BYTES_MAX, WrappingKey};

use super::{ALGORITHM, DEFAULT_KMS_KEY, Encryption, KMS};
use crate::error::{Code, S3Error};
use crate::xml::read::walk;
use crate::xml::write::Writer;

const ROOT: &str = "ServerSideEncryptionConfiguration";
const LAYOUT: u8 = 1;
const BY_MASTER: u8 = 1;
const BY_NAMED: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    /// For `aws:kms`: the key's name, if given; `None`: `AES256`.
    kms_key: Option<Option<String>>,
    bucket_key: bool,
}

impl Configuration {
    /// Parses a `ServerSideEncryptionConfiguration` with one rule.
    pub(crate) fn parse(document: &[u8]) -> Result<Configuration, S3Error> {
        let (mut rules, mut algorithms, mut key, mut bucket_key, mut root) = (0, Vec::new(), None, false, false);
        let mut unknown = None;
        walk(document, &mut |path, text| {
            let below = path.strip_prefix(ROOT).map(|rest| rest.trim_start_matches('/'));
            match below {
                Some("") => root = true,
                Some("Rule") => rules += 1,
                Some("Rule/ApplyServerSideEncryptionByDefault") => {}
                Some("Rule/ApplyServerSideEncryptionByDefault/SSEAlgorithm") => algorithms.push(text.trim().to_owned()),
                Some("Rule/ApplyServerSideEncryptionByDefault/KMSMasterKeyID") => key = Some(text.trim().to_owned()),
                Some("Rule/BucketKeyEnabled") => bucket_key = text.trim().eq_ignore_ascii_case("true"),
                _ => {
                    unknown.get_or_insert_with(|| path.to_owned());
                }
            }
            Ok(())
        })?;
        let refuse = |why: &'static str| Err(S3Error::argument("KMSMasterKeyID", "", why));
        match (&algorithms[..], unknown) {
            ([algorithm], _) if algorithm == "aws:kms:dsse" => {
                Err(S3Error::not_implemented("SSEAlgorithm aws:kms:dsse"))
            }
            (_, Some(element)) if root => Err(S3Error::not_implemented(&format!("element {element}"))),
            ([algorithm], None) if root && rules == 1 && algorithm == ALGORITHM => match key {
                Some(_) => refuse("A key id is for the algorithm aws:kms only"),
                None => Ok(Configuration { kms_key: None, bucket_key }),
            },
            ([algorithm], None) if root && rules == 1 && algorithm == KMS => match key {
                Some(key) if key.is_empty() || key.len() > KEY_NAME_BYTES_MAX => refuse("No key has such an id"),
                key => Ok(Configuration { kms_key: Some(key), bucket_key }),
            },
            _ => Err(Code::MalformedXML.into()),
        }
    }

    pub(crate) fn encryption(&self) -> Encryption {
        match &self.kms_key {
            None => Encryption::Master,
            Some(key) => Encryption::Named(key.as_deref().unwrap_or(DEFAULT_KMS_KEY).to_owned()),
        }
    }

    pub(crate) fn to_stored(&self) -> Vec<u8> {
        match &self.kms_key {
            None => vec![LAYOUT, BY_MASTER, self.bucket_key.into()],
            Some(key) => {
                let key = key.as_deref().unwrap_or_default();
                [&[LAYOUT, BY_NAMED, self.bucket_key.into()][..], key.as_bytes()].concat()
            }
        }
    }

    pub(crate) fn from_stored(stored: &[u8]) -> Result<Configuration, S3Error> {
        let damaged = || S3Error::internal(&"the stored encryption of a bucket does not decode");
        match stored {
            [LAYOUT, BY_MASTER, bucket_key] => Ok(Configuration { kms_key: None, bucket_key: *bucket_key != 0 }),
            [LAYOUT, BY_NAMED, bucket_key, key @ ..] => {
                let key = std::str::from_utf8(key).map_err(|_| damaged())?;
                let key = (!key.is_empty()).then(|| key.to_owned());
                Ok(Configuration { kms_key: Some(key), bucket_key: *bucket_key != 0 })
            }
            _ => Err(damaged()),
        }
    }

    pub(crate) fn write(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.root(ROOT);
        writer.open("Rule");
        writer.open("ApplyServerSideEncryptionByDefault");
        writer.text("SSEAlgorithm", if self.kms_key.is_some() { KMS } else { ALGORITHM });
        writer.optional("KMSMasterKeyID", self.kms_key.as_ref().and_then(Option::as_deref));
        writer.close("ApplyServerSideEncryptionByDefault");
        writer.flag("BucketKeyEnabled", self.bucket_key);
        writer.close("Rule");
        writer.close(ROOT);
    }
}

/// The key of a bucket's stored default, under which data keys are encrypted.
pub fn default_key(stored: &[u8]) -> Result<WrappingKey, S3Error> {
    Ok(Configuration::from_stored(stored)?.encryption().wrapping_key())
}
