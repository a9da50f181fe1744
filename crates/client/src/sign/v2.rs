//! AWS Signature Version 2, the client's half: HMAC-SHA1 over verb, date, `x-amz-` headers and resource.
//!
//! Why:      s3cmd, boto 2 and many appliances still send it, so its cost is a row of the benchmarks.
//! Source:   "Signing and authenticating REST requests (AWS signature version 2)" of the S3 developer guide.
//! Not here: presigned URLs and POST forms.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};
use http::{HeaderValue, Request};
use margay_env::Timestamp;
use ring::hmac;

/// Query parameters that select an operation and are therefore signed.
const SUBRESOURCES: [&str; 4] = ["acl", "delete", "policy", "uploads"];

pub(super) struct Signer {
    access_key: String,
    key: hmac::Key,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Signer").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

impl Signer {
    pub(super) fn new(access_key: &str, secret: &str) -> Signer {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes());
        Signer { access_key: access_key.to_owned(), key }
    }

    /// Adds `Date` and `Authorization`; the error says what cannot be a header.
    pub(super) fn sign<B>(&self, request: &mut Request<B>, now: Timestamp) -> Result<(), &'static str> {
        let date = HeaderValue::from_str(&http_date(now)).map_err(|_| "the date is no header value")?;
        request.headers_mut().insert(DATE, date);
        let tag = hmac::sign(&self.key, string_to_sign(request).as_bytes());
        let value = format!("AWS {}:{}", self.access_key, BASE64_STANDARD.encode(tag));
        let value = HeaderValue::from_str(&value).map_err(|_| "the access key is no header value")?;
        request.headers_mut().insert(AUTHORIZATION, value);
        Ok(())
    }
}

/// The date as HTTP writes it.
fn http_date(now: Timestamp) -> String {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(u64::try_from(now.0).unwrap_or(0));
    httpdate::fmt_http_date(time)
}

fn string_to_sign<B>(request: &Request<B>) -> String {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut text = format!(
        "{}\n{}\n{}\n{}\n",
        request.method(),
        header("content-md5"),
        header(CONTENT_TYPE.as_str()),
        header(DATE.as_str())
    );
    let mut amz: Vec<(&str, &str)> = request
        .headers()
        .iter()
        .filter(|(name, _)| name.as_str().starts_with("x-amz-"))
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap_or("").trim()))
        .collect();
    amz.sort_unstable();
    for (name, value) in amz {
        let _ = writeln!(text, "{name}:{value}");
    }
    text.push_str(request.uri().path());
    let mut signed: Vec<&str> = request
        .uri()
        .query()
        .unwrap_or("")
        .split('&')
        .filter(|part| SUBRESOURCES.contains(&part.split('=').next().unwrap_or("")))
        .map(|part| part.trim_end_matches('='))
        .collect();
    signed.sort_unstable();
    if !signed.is_empty() {
        let _ = write!(text, "?{}", signed.join("&"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    /// The object PUT of the developer guide, whose resource names the bucket as our path-style URLs do.
    #[test]
    fn the_published_example_signs_as_published() {
        let mut request = Request::put("/awsexamplebucket1/photos/puppy.jpg")
            .header("content-type", "image/jpeg")
            .header("date", "Tue, 27 Mar 2007 21:15:45 +0000")
            .body(())
            .unwrap();
        let text = string_to_sign(&request);
        assert_eq!(text, "PUT\n\nimage/jpeg\nTue, 27 Mar 2007 21:15:45 +0000\n/awsexamplebucket1/photos/puppy.jpg");
        let signer = Signer::new(KEY, SECRET);
        assert_eq!(BASE64_STANDARD.encode(hmac::sign(&signer.key, text.as_bytes())), "iqRzw+ileNPu1fhspnRs8nOjjIA=");
        signer.sign(&mut request, Timestamp(1_175_030_145_000_000_000)).unwrap();
        assert_eq!(request.headers()["date"], "Tue, 27 Mar 2007 21:15:45 GMT");
        assert!(request.headers()["authorization"].to_str().unwrap().starts_with("AWS AKIAIOSFODNN7EXAMPLE:"));
        assert!(!format!("{signer:?}").contains(SECRET));
    }

    #[test]
    fn subresources_and_amz_headers_are_signed_in_order() {
        let request = Request::post("/b?x=1&delete=&acl=")
            .header("x-amz-b", " 2 ")
            .header("x-amz-a", "1")
            .header("content-md5", "m")
            .body(())
            .unwrap();
        assert_eq!(string_to_sign(&request), "POST\nm\n\n\nx-amz-a:1\nx-amz-b:2\n/b?acl&delete");
    }
}
