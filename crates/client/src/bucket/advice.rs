//! Advice for people on errors of an S3 store.

use std::io;

use super::Bucket;
use crate::error::{ClientError, Refusal};

/// Permissions that a backup's client needs.
const RIGHTS: &str = "s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject on what is in it";

impl Bucket {
    /// The error in one line, with advice.
    pub fn explain(&self, error: &ClientError) -> String {
        match error {
            ClientError::Connect { address, source } => {
                format!("{address} cannot be reached: {source}; check --endpoint, and that the store runs")
            }
            ClientError::Refused(refusal) => match self.advice(refusal) {
                Some(advice) => format!("{advice} ({} {})", refusal.status, refusal.code),
                None => error.to_string(),
            },
            error => error.to_string(),
        }
    }

    fn advice(&self, refusal: &Refusal) -> Option<String> {
        let (name, target) = (&self.name, self.calls.target());
        let elsewhere = matches!(refusal.status, 301 | 307) || refusal.code == "AuthorizationHeaderMalformed";
        if elsewhere || (!refusal.region.is_empty() && refusal.status == 400) {
            let region = if refusal.region.is_empty() { "its region" } else { refusal.region.as_str() };
            return Some(format!("the bucket {name} is not in the region {}: set AWS_REGION={region}", target.region));
        }
        Some(match refusal.code.as_str() {
            "NoSuchBucket" => format!("there is no bucket {name} at {}: make it first", target.url()),
            "InvalidAccessKeyId" | "SignatureDoesNotMatch" | "InvalidToken" | "ExpiredToken" => format!(
                "{} does not take these keys: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or where else they come from",
                target.url()
            ),
            "RequestTimeTooSkewed" => "this machine's clock and the store's differ: set it right".to_owned(),
            "AccessDenied" | "Forbidden" => {
                format!("the keys may not do that in the bucket {name}: they need {RIGHTS}")
            }
            _ => return None,
        })
    }

    /// The error as an I/O error.
    pub(crate) fn io_error(&self, error: &ClientError) -> io::Error {
        let kind = match error {
            ClientError::Connect { .. } | ClientError::Transport { .. } => io::ErrorKind::NotConnected,
            ClientError::Timeout { .. } => io::ErrorKind::TimedOut,
            ClientError::Refused(refusal) if refusal.status == 403 => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, self.explain(error))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::credentials::Credentials;
    use crate::target::{Addressing, Target};

    #[test]
    fn errors_say_what_to_do_and_no_secret() {
        let credentials = Credentials { access_key: "visible".to_owned(), secret_key: "hidden".to_owned() };
        let (authority, host) = ("s3.example".to_owned(), "s3.example".to_owned());
        let target = Target {
            authority,
            host,
            port: 80,
            region: "us-east-1".to_owned(),
            credentials: credentials.into(),
            tls: None,
            addressing: Addressing::Path,
        };
        let bucket = Bucket::new(Arc::new(target), "b").unwrap();
        let said = |status: u16, code: &str, region: &str| {
            let (request, message) = ("GET /b".to_owned(), "words of the store".to_owned());
            let (code, region) = (code.to_owned(), region.to_owned());
            bucket.explain(&ClientError::Refused(Box::new(Refusal { request, status, code, message, region })))
        };
        assert!(said(301, "PermanentRedirect", "eu-north-1").contains("set AWS_REGION=eu-north-1"));
        assert!(said(400, "AuthorizationHeaderMalformed", "eu-north-1").contains("set AWS_REGION=eu-north-1"));
        assert!(said(404, "NoSuchBucket", "").contains("make it first"));
        assert!(said(403, "AccessDenied", "").contains("s3:PutObject"));
        assert!(said(403, "SignatureDoesNotMatch", "").contains("AWS_SECRET_ACCESS_KEY"));
        assert!(said(400, "InvalidArgument", "").contains("words of the store"));
        assert!(!said(403, "AccessDenied", "").contains("hidden") && !format!("{bucket:?}").contains("hidden"));
        let refused = ClientError::Refused(Box::new(Refusal { status: 403, ..Refusal::default() }));
        assert_eq!(bucket.io_error(&refused).kind(), io::ErrorKind::PermissionDenied);
    }
}
