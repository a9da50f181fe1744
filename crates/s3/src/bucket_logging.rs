//! The document of PutBucketLogging: the destination of a bucket's access log.
//!
//! Invariants: G1 writing and reading again gives the same value.
//! Not here:   lines (`access_line`), delivery (margay-jobs).

use bytes::BytesMut;

use crate::error::S3Error;
use crate::xml::read::{Malformed, walk};
use crate::xml::write::Writer;

const ROOT: &str = "BucketLoggingStatus";
/// Maximum size of a log object's prefix, in bytes; the rest of the key has 36 bytes.
const PREFIX_BYTES_MAX: usize = 800;

/// The bucket of the log objects, and the prefix of their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketLogging {
    pub target: String,
    pub prefix: String,
}

impl BucketLogging {
    /// Parses and checks a document; `None`: logging is off.
    pub fn read(document: &[u8]) -> Result<Option<BucketLogging>, S3Error> {
        let (mut enabled, mut target, mut prefix, mut refused) = (false, None, None, None);
        walk(document, &mut |path, text| {
            let Some(inside) = path.strip_prefix(ROOT) else { return Err(Malformed::because("another document")) };
            match inside {
                "" => {}
                "/LoggingEnabled" => enabled = true,
                "/LoggingEnabled/TargetBucket" => target = Some(text.trim().to_owned()),
                "/LoggingEnabled/TargetPrefix" => prefix = Some(text.to_owned()),
                "/LoggingEnabled/TargetObjectKeyFormat" | "/LoggingEnabled/TargetObjectKeyFormat/SimplePrefix" => {}
                "/LoggingEnabled/TargetGrants" => {}
                other if other.starts_with("/LoggingEnabled/TargetGrants/") => refused = Some("TargetGrants"),
                other if other.starts_with("/LoggingEnabled/TargetObjectKeyFormat/PartitionedPrefix") => {
                    refused = Some("PartitionedPrefix");
                }
                _ => return Err(Malformed::because("an unknown element")),
            }
            Ok(())
        })?;
        if let Some(element) = refused {
            return Err(S3Error::not_implemented(&format!("element {element}")));
        }
        match (enabled, target, prefix) {
            (false, ..) => Ok(None),
            (true, Some(target), Some(prefix)) if prefix.len() <= PREFIX_BYTES_MAX => {
                Ok(Some(BucketLogging { target, prefix }))
            }
            (true, Some(_), Some(prefix)) => {
                Err(S3Error::argument("TargetPrefix", &prefix, "The prefix is longer than 800 bytes"))
            }
            (true, ..) => Err(Malformed::because("TargetBucket and TargetPrefix").into()),
        }
    }

    /// XML that parses to the same value.
    pub fn write(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(256);
        let mut writer = Writer::new(&mut out);
        writer.root(ROOT);
        writer.open("LoggingEnabled");
        writer.text("TargetBucket", &self.target);
        writer.text("TargetPrefix", &self.prefix);
        writer.close("LoggingEnabled");
        writer.close(ROOT);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn of(inside: &str) -> Result<Option<BucketLogging>, Code> {
        BucketLogging::read(format!("<{ROOT}>{inside}</{ROOT}>").as_bytes()).map_err(|error| error.code)
    }

    fn enabled(inside: &str) -> Result<Option<BucketLogging>, Code> {
        of(&format!("<LoggingEnabled>{inside}</LoggingEnabled>"))
    }

    #[test]
    fn documents() {
        let both = "<TargetBucket>logs</TargetBucket><TargetPrefix>a&amp;/</TargetPrefix>";
        let logging = enabled(both).unwrap().unwrap();
        assert_eq!((logging.target.as_str(), logging.prefix.as_str()), ("logs", "a&/"));
        assert_eq!(BucketLogging::read(&logging.write()).unwrap(), Some(logging));
        assert_eq!(of(""), Ok(None));
        assert_eq!(enabled("<TargetBucket>logs</TargetBucket>"), Err(Code::MalformedXML));
        assert_eq!(enabled(&format!("{both}<Other/>")), Err(Code::MalformedXML));
        let grants = "<TargetGrants><Grant/></TargetGrants>";
        assert_eq!(enabled(&format!("{both}{grants}")), Err(Code::NotImplemented));
        let dates = "<TargetObjectKeyFormat><PartitionedPrefix/></TargetObjectKeyFormat>";
        assert_eq!(enabled(&format!("{both}{dates}")), Err(Code::NotImplemented));
        let simple = "<TargetObjectKeyFormat><SimplePrefix/></TargetObjectKeyFormat>";
        assert!(enabled(&format!("{both}{simple}")).unwrap().is_some());
        let long = format!("<TargetBucket>b</TargetBucket><TargetPrefix>{}</TargetPrefix>", "x".repeat(801));
        assert_eq!(enabled(&long), Err(Code::InvalidArgument));
    }
}
