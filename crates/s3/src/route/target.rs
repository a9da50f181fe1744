//! The target of a request: the service, a bucket, or an object.
//!
//! Why:        path style and virtual-host style must give the same bucket and key.
//! Invariants: K1 a key is the path after the bucket, percent-decoded exactly once; nothing is normalized (`a//b`, `.`,
//!                `..` and `+` stay as they are).

use margay_volume::KEY_BYTES_MAX;

use super::operation::Scope;
use super::query::decode;
use crate::error::{Code, S3Error, key_too_long};

/// The empty string stands for "none", since neither a bucket nor a key can be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub bucket: String,
    pub key: String,
    /// The bucket was named by the host, not by the path.
    pub virtual_host: bool,
}

impl Target {
    /// `domains` are the names under which buckets are subdomains, in lower case and without a port.
    pub(crate) fn parse(host: &str, path: &str, domains: &[String]) -> Result<Target, S3Error> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let (bucket, key, virtual_host) = match bucket_of_host(host, domains) {
            Some(bucket) => (bucket, path, true),
            None => {
                let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
                (decode(bucket, false)?, key, false)
            }
        };
        // A decoded key has at least a third of the encoded size.
        if key.len() > 3 * KEY_BYTES_MAX {
            return Err(key_too_long());
        }
        let target = Target { bucket, key: decode(key, false)?, virtual_host };
        target.check_key()?;
        if target.bucket.is_empty() && !target.key.is_empty() {
            return Err(S3Error::new(Code::InvalidURI, "a key without a bucket"));
        }
        Ok(target)
    }

    /// Checks the key's size, wherever it comes from.
    pub(crate) fn check_key(&self) -> Result<(), S3Error> {
        if self.key.len() > KEY_BYTES_MAX { Err(key_too_long()) } else { Ok(()) }
    }

    /// The bucket, if the host names it.
    pub(crate) fn host_bucket(&self) -> Option<&str> {
        self.virtual_host.then_some(self.bucket.as_str())
    }

    pub(crate) fn scope(&self) -> Scope {
        match (self.bucket.is_empty(), self.key.is_empty()) {
            (true, _) => Scope::Service,
            (false, true) => Scope::Bucket,
            (false, false) => Scope::Object,
        }
    }
}

/// The bucket that a host names, below one of the domains.
pub(crate) fn bucket_of_host(host: &str, domains: &[String]) -> Option<String> {
    let host = if host.starts_with('[') { host } else { host.split(':').next().unwrap_or(host) };
    let host = host.to_ascii_lowercase();
    domains.iter().find_map(|domain| {
        let bucket = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
        (!bucket.is_empty()).then(|| bucket.to_owned())
    })
}

/// The naming rules of general purpose buckets.
pub(crate) fn check_bucket_name(name: &str) -> Result<(), S3Error> {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    let fits = (3..=63).contains(&name.len())
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| edge(Some(byte)) || matches!(byte, b'.' | b'-'))
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
        && !["xn--", "sthree-", "amzn-s3-demo-"].iter().any(|reserved| name.starts_with(reserved))
        && !["-s3alias", "--ol-s3", ".mrap", "--x-s3", "--table-s3"].iter().any(|reserved| name.ends_with(reserved));
    if fits { Ok(()) } else { Err(S3Error::from(Code::InvalidBucketName).with("BucketName", name)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(host: &str, path: &str) -> (String, String) {
        let target = Target::parse(host, path, &["s3.example.com".to_owned(), "localhost".to_owned()]).unwrap();
        (target.bucket, target.key)
    }

    #[test]
    fn both_styles_name_the_same_object() {
        let wanted = ("photos".to_owned(), "a/b c+%".to_owned());
        assert_eq!(target("127.0.0.1:9000", "/photos/a/b%20c+%25"), wanted);
        assert_eq!(target("photos.s3.example.com", "/a/b%20c+%25"), wanted);
        assert_eq!(target("Photos.LOCALHOST:9000", "/a/b%20c+%25"), wanted);
        assert_eq!(target("s3.example.com", "/photos/a/b%20c+%25"), wanted);
        assert_eq!(target("[::1]:9000", "/photos/a/b%20c+%25"), wanted);
    }

    #[test]
    fn scopes_and_odd_keys() {
        let scope = |path| Target::parse("h", path, &[]).unwrap().scope();
        assert_eq!(scope("/"), Scope::Service);
        assert_eq!(scope(""), Scope::Service);
        assert_eq!(scope("/bucket"), Scope::Bucket);
        assert_eq!(scope("/bucket/"), Scope::Bucket);
        assert_eq!(scope("/bucket//"), Scope::Object);
        assert_eq!(target("h", "/bucket//a//../.").1, "/a//../.");
    }

    #[test]
    fn bad_addresses_are_refused() {
        let code = |path: &str| Target::parse("h", path, &[]).unwrap_err().code;
        assert_eq!(code("//key"), Code::InvalidURI);
        assert_eq!(code("/b/%ff"), Code::InvalidURI);
        assert_eq!(code(&format!("/b/{}", "k".repeat(1025))), Code::KeyTooLongError);
        assert_eq!(code(&format!("/b/{}", "%41".repeat(1025))), Code::KeyTooLongError);
        assert!(Target::parse("h", &format!("/b/{}", "%41".repeat(1024)), &[]).is_ok());
    }

    #[test]
    fn bucket_names() {
        for name in ["abc", "a-b.c", "0bucket", &"a".repeat(63)] {
            assert!(check_bucket_name(name).is_ok(), "{name}");
        }
        for name in ["ab", "Abc", "a_b", "-ab", "ab-", "a..b", "192.168.5.4", "xn--abc", "a-s3alias", &"a".repeat(64)] {
            assert!(check_bucket_name(name).is_err(), "{name}");
        }
    }
}
