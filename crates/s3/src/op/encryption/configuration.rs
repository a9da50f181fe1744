//! The default encryption of a bucket, as XML and as stored.
//!
//! Layout: stored: byte 1, byte algorithm (1: AES256 under the server's key), byte 1 if `BucketKeyEnabled` was set (it
//!         is given back and means nothing here).

use bytes::BytesMut;

use crate::error::{Code, S3Error};
use crate::xml::read::walk;
use crate::xml::write::Writer;

const LAYOUT: u8 = 1;
const MASTER: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    bucket_key: bool,
}

impl Configuration {
    /// Reads a `ServerSideEncryptionConfiguration`: one rule, `AES256`.
    pub(crate) fn parse(document: &[u8]) -> Result<Configuration, S3Error> {
        const ROOT: &str = "ServerSideEncryptionConfiguration";
        let (mut rules, mut algorithms, mut bucket_key, mut root) = (0, Vec::new(), false, false);
        let mut unknown = None;
        walk(document, &mut |path, text| {
            let below = path.strip_prefix(ROOT).map(|rest| rest.trim_start_matches('/'));
            match below {
                Some("") => root = true,
                Some("Rule") => rules += 1,
                Some("Rule/ApplyServerSideEncryptionByDefault") => {}
                Some("Rule/ApplyServerSideEncryptionByDefault/SSEAlgorithm") => algorithms.push(text.to_owned()),
                Some("Rule/BucketKeyEnabled") => bucket_key = text.trim().eq_ignore_ascii_case("true"),
                _ => {
                    unknown.get_or_insert_with(|| path.to_owned());
                }
            }
            Ok(())
        })?;
        match (&algorithms[..], unknown) {
            ([algorithm], _) if algorithm.trim() == "aws:kms" || algorithm.trim() == "aws:kms:dsse" => {
                Err(S3Error::not_implemented(&format!("SSEAlgorithm {}", algorithm.trim())))
            }
            ([algorithm], None) if root && rules == 1 && algorithm.trim() == super::ALGORITHM => {
                Ok(Configuration { bucket_key })
            }
            (_, Some(element)) if root => Err(S3Error::not_implemented(&format!("element {element}"))),
            _ => Err(Code::MalformedXML.into()),
        }
    }

    pub(crate) fn to_stored(self) -> [u8; 3] {
        [LAYOUT, MASTER, self.bucket_key.into()]
    }

    pub(crate) fn from_stored(stored: &[u8]) -> Result<Configuration, S3Error> {
        match stored {
            [LAYOUT, MASTER, bucket_key] => Ok(Configuration { bucket_key: *bucket_key != 0 }),
            _ => Err(S3Error::internal(&"the stored encryption of a bucket does not decode")),
        }
    }

    pub(crate) fn write(self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.root("ServerSideEncryptionConfiguration");
        writer.open("Rule");
        writer.open("ApplyServerSideEncryptionByDefault");
        writer.text("SSEAlgorithm", super::ALGORITHM);
        writer.close("ApplyServerSideEncryptionByDefault");
        writer.flag("BucketKeyEnabled", self.bucket_key);
        writer.close("Rule");
        writer.close("ServerSideEncryptionConfiguration");
    }
}
