//! Links that open one object for whoever has them, for a time.
//!
//! Why:        the secret stays here, so the link is signed here; it can what its key can do, and no more.
//! Invariants: L1 a link reads, for at most a week.
//! Not here:   whether the object exists: the link says so when it is used.

use http::{HeaderMap, HeaderValue, Method};
use margay_env::Timestamp;
use margay_s3::auth::EXPIRES_SECONDS_MAX;
use margay_s3::auth::sign::Target;
use margay_s3::percent::encode_into;
use serde_json::Value;

use crate::keys::Key;
use crate::sessions::Session;
use crate::target::is_clean;

/// The URL for an order `{"origin": "https://host:port", "target": "/bucket/key?versionId=1", "seconds": 3600}`; the error is one line.
pub(crate) fn link(order: &Value, session: &Session, key: &Key, now: Timestamp) -> Result<String, String> {
    let text = |name: &str| order[name].as_str().ok_or_else(|| format!("{name} is missing"));
    let (origin, target) = (text("origin")?, text("target")?);
    let seconds = order["seconds"].as_u64().filter(|seconds| (1..=EXPIRES_SECONDS_MAX).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("seconds must be between 1 and {EXPIRES_SECONDS_MAX}"))?;
    let wrong = || "origin must be http:// or https:// with a host and maybe a port".to_owned();
    let (scheme, host) = origin.split_once("://").ok_or_else(wrong)?;
    let host_fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b':' | b'[' | b']' | b'_');
    if !matches!(scheme, "http" | "https") || host.is_empty() || !host.bytes().all(host_fits) {
        return Err(wrong());
    }
    if !is_clean(target) {
        return Err("target must be a percent-encoded path".to_owned());
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut query = query.to_owned();
    if let Some(token) = &session.token {
        let separator = if query.is_empty() { "" } else { "&" };
        query.push_str(&format!("{separator}X-Amz-Security-Token="));
        encode_into(&mut query, token, false);
    }
    let mut headers = HeaderMap::new();
    headers.insert(http::header::HOST, HeaderValue::from_str(host).map_err(|_| wrong())?);
    let signed = Target { method: &Method::GET, path, query: &query };
    let query = key.signer.presign(signed, &headers, seconds, now).map_err(|error| error.to_string())?;
    Ok(format!("{scheme}://{host}{path}?{query}"))
}
