//! Fields of an access log line that come from a request's head.
//!
//! Not here: the line (`access_line`), the outcome (`observer`).

use http::HeaderMap;
use http::request::Parts;

use crate::auth::decode;
use crate::route::target::Target;

/// Query parameters whose values are not logged, in lower case: signatures, tokens and customers' keys.
const SECRET: [&str; 5] = [
    "signature",
    "x-amz-copy-source-server-side-encryption-customer-key",
    "x-amz-security-token",
    "x-amz-server-side-encryption-customer-key",
    "x-amz-signature",
];

/// The request's part of a log line.
#[derive(Clone, Debug, Default)]
pub struct AccessSubject {
    /// Empty when the request names none.
    pub bucket: String,
    pub(crate) key: String,
    pub(crate) method: String,
    /// Path and query as received, without secrets.
    pub(crate) target: String,
    pub(crate) host: String,
    pub(crate) referer: String,
    pub(crate) user_agent: String,
    pub(crate) version: String,
    /// The access key that the request names; empty for an anonymous one.
    pub(crate) requester: String,
    /// `SigV4` or `SigV2`.
    pub(crate) signature: &'static str,
    /// `AuthHeader` or `QueryString`.
    pub(crate) authentication: &'static str,
    pub(crate) secure: bool,
}

/// What a live trace and a span show of a request; the key as the client wrote it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShownSubject<'a> {
    pub bucket: &'a str,
    pub key: &'a str,
    /// The access key that the request names; empty for an anonymous one.
    pub requester: &'a str,
    pub user_agent: &'a str,
    pub method: &'a str,
    /// Without the query.
    pub path: &'a str,
    pub host: &'a str,
    pub is_secure: bool,
}

impl AccessSubject {
    pub fn shown(&self) -> ShownSubject<'_> {
        ShownSubject {
            bucket: &self.bucket,
            key: &self.key,
            requester: &self.requester,
            user_agent: &self.user_agent,
            method: &self.method,
            path: self.target.split('?').next().unwrap_or_default(),
            host: &self.host,
            is_secure: self.secure,
        }
    }

    /// From the request's head, before authentication.
    pub(crate) fn of(parts: &Parts, host: &str, target: Option<&Target>, secure: bool) -> AccessSubject {
        let header = |name: &str| text(&parts.headers, name);
        let query = parts.uri.query().unwrap_or_default();
        let authorization = header("authorization");
        let in_query = |name: &str| query.split('&').any(|pair| pair.starts_with(name));
        let (signature, authentication) = if authorization.starts_with("AWS4-") {
            ("SigV4", "AuthHeader")
        } else if authorization.starts_with("AWS ") {
            ("SigV2", "AuthHeader")
        } else if in_query("X-Amz-Signature=") {
            ("SigV4", "QueryString")
        } else if in_query("Signature=") {
            ("SigV2", "QueryString")
        } else {
            ("", "")
        };
        let version = query.split('&').find_map(|pair| pair.strip_prefix("versionId="));
        AccessSubject {
            bucket: target.map(|target| target.bucket.clone()).unwrap_or_default(),
            key: target.map(|target| target.key.clone()).unwrap_or_default(),
            method: parts.method.to_string(),
            target: parts.uri.path_and_query().map(|target| redacted(target.as_str())).unwrap_or_default(),
            host: host.to_owned(),
            referer: redacted(&header("referer")),
            user_agent: header("user-agent"),
            version: version.unwrap_or_default().to_owned(),
            requester: requester(&authorization, query).to_owned(),
            signature,
            authentication,
            secure,
        }
    }
}

/// A URL without the values that would allow a reader of the log to replay the request.
fn redacted(url: &str) -> String {
    let Some((path, query)) = url.split_once('?') else { return url.to_owned() };
    let shown = |pair: &str| {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let plain = decode(name).unwrap_or_default().to_ascii_lowercase();
        if SECRET.contains(&plain.as_str()) { format!("{name}=REDACTED") } else { pair.to_owned() }
    };
    format!("{path}?{}", query.split('&').map(shown).collect::<Vec<_>>().join("&"))
}

/// The access key in an `Authorization` header or in a presigned query.
fn requester<'a>(authorization: &'a str, query: &'a str) -> &'a str {
    let end = |text: &'a str| text.split(['/', ':', '&', ',', ' ']).next().unwrap_or_default();
    if let Some(credential) = authorization.split("Credential=").nth(1) {
        return end(credential);
    }
    if let Some(credential) = authorization.strip_prefix("AWS ") {
        return end(credential);
    }
    let named = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name));
    let credential = named("X-Amz-Credential=").or_else(|| named("AWSAccessKeyId=")).unwrap_or_default();
    // A presigned query percent-encodes the slash.
    end(credential.split('%').next().unwrap_or_default())
}

fn text(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_can_be_used_to_send_the_request_again() {
        assert_eq!(redacted("/b/k"), "/b/k");
        assert_eq!(redacted("/b/k?a=1&versionId=Signature"), "/b/k?a=1&versionId=Signature");
        for name in ["X-Amz-Signature", "X-Amz-Security-Token", "Signature", "x-amz-security-token", "%53ignature"] {
            assert_eq!(redacted(&format!("/b/k?a=1&{name}=secret&b")), format!("/b/k?a=1&{name}=REDACTED&b"));
        }
        let key = "x-amz-server-side-encryption-customer-key";
        assert_eq!(redacted(&format!("http://h/?{key}=k")), format!("http://h/?{key}=REDACTED"));
    }

    #[test]
    fn the_access_key_is_found_where_the_signature_is() {
        assert_eq!(requester("AWS me:sig", ""), "me");
        assert_eq!(requester("", "a=b&X-Amz-Credential=me%2F2026&c"), "me");
        assert_eq!(requester("", "AWSAccessKeyId=me&Signature=x"), "me");
        assert_eq!(requester("Bearer x", "a"), "");
    }
}
