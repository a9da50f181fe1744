//! Signature Version 4 in the query of a URL.
//!
//! Invariants: P1 a presigned URL is valid from its date (less the tolerance) for at most seven days.

use std::borrow::Cow;

use super::canonical::{decode, pairs};
use super::claim::{Claim, CredentialText, check_signed_headers};
use super::date::AmzDate;
use super::header::single;
use super::{AuthError, CONTENT_SHA256, CredentialSource, Head, Options, PayloadForm, Version, hex};

/// Maximum validity of a presigned URL, in seconds.
pub const EXPIRES_SECONDS_MAX: u64 = 7 * 86_400;

/// The version of a presigned URL; `None` when the query has no signature.
pub(crate) fn version(query: &str) -> Option<Version> {
    if query.is_empty() {
        return None;
    }
    let mut found = None;
    for (name, _) in pairs(query) {
        match name {
            "X-Amz-Algorithm" | "X-Amz-Credential" | "X-Amz-Signature" => return Some(Version::V4),
            "AWSAccessKeyId" | "Signature" => found = Some(Version::V2),
            _ => {}
        }
    }
    found
}

fn malformed(reason: &'static str) -> AuthError {
    AuthError::Malformed { given: CredentialSource::Query, reason }
}

#[derive(Default)]
struct Parameters {
    algorithm: Option<String>,
    credential: Option<String>,
    date: Option<String>,
    expires: Option<String>,
    signed_headers: Option<String>,
    signature: Option<String>,
    token: Option<String>,
    content_sha256: Option<String>,
}

impl Parameters {
    fn read(query: &str) -> Result<Parameters, AuthError> {
        let mut found = Parameters::default();
        for (name, value) in pairs(query) {
            let slot = match name {
                "X-Amz-Algorithm" => &mut found.algorithm,
                "X-Amz-Credential" => &mut found.credential,
                "X-Amz-Date" => &mut found.date,
                "X-Amz-Expires" => &mut found.expires,
                "X-Amz-SignedHeaders" => &mut found.signed_headers,
                "X-Amz-Signature" => &mut found.signature,
                "X-Amz-Security-Token" => &mut found.token,
                "X-Amz-Content-Sha256" | "X-Amz-Content-SHA256" => &mut found.content_sha256,
                _ => continue,
            };
            let value = decode(value).ok_or(malformed("an X-Amz parameter is not percent-encoded UTF-8"))?;
            if slot.replace(value).is_some() {
                return Err(malformed("an X-Amz parameter is given twice"));
            }
        }
        Ok(found)
    }
}

/// Parses the claim of a presigned URL and checks its time.
pub(crate) fn read<'a>(head: &Head<'a>, options: &Options, now: &AmzDate) -> Result<Claim<'a>, AuthError> {
    const MISSING: &str = "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
                           X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters";
    let parameters = Parameters::read(head.query)?;
    let need = |parameter: Option<String>| parameter.ok_or(malformed(MISSING));
    match need(parameters.algorithm)?.as_str() {
        "AWS4-HMAC-SHA256" => {}
        "AWS4-ECDSA-P256-SHA256" => return Err(AuthError::NotImplemented("AWS4-ECDSA-P256-SHA256")),
        _ => return Err(malformed("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")),
    }
    let credential = need(parameters.credential)?;
    let credential = CredentialText::parse(&credential, CredentialSource::Query, options.service)?;
    let date = AmzDate::parse(need(parameters.date)?.as_bytes())
        .ok_or(malformed("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\""))?;
    credential.check_day(&date, CredentialSource::Query)?;
    check_time(&date, &need(parameters.expires)?, options, now)?;
    let signed_headers = need(parameters.signed_headers)?;
    check_signed_headers(&signed_headers, CredentialSource::Query)?;
    let signature = hex::decode(need(parameters.signature)?.as_bytes())
        .ok_or(malformed("X-Amz-Signature must be 64 hex digits"))?;
    let payload_line = match (parameters.content_sha256, single(head.headers, CONTENT_SHA256)?) {
        (Some(value), _) => Cow::Owned(value),
        (None, Some(value)) => Cow::Borrowed(value),
        (None, None) => Cow::Borrowed("UNSIGNED-PAYLOAD"),
    };
    let token = match parameters.token {
        Some(token) => Some(Cow::Owned(token)),
        None => single(head.headers, "x-amz-security-token")?.map(Cow::Borrowed),
    };
    Ok(Claim {
        given: CredentialSource::Query,
        access_key: Cow::Owned(credential.access_key.to_owned()),
        region: Cow::Owned(credential.region.to_owned()),
        signed_headers: Cow::Owned(signed_headers),
        signature,
        date,
        payload: PayloadForm::parse(&payload_line)?,
        payload_line,
        token,
    })
}

fn check_time(date: &AmzDate, expires: &str, options: &Options, now: &AmzDate) -> Result<(), AuthError> {
    if expires.starts_with('-') {
        return Err(malformed("X-Amz-Expires must be non-negative"));
    }
    let seconds: u64 = expires.parse().map_err(|_| malformed("X-Amz-Expires should be a number"))?;
    if seconds > EXPIRES_SECONDS_MAX {
        return Err(malformed("X-Amz-Expires must be less than a week (in seconds)"));
    }
    if date.seconds() > now.seconds() + i64::from(options.skew_seconds_max) {
        return Err(AuthError::NotYetValid { request_time: date.iso(), server_time: now.iso() });
    }
    let end = date.seconds() + i64::try_from(seconds).expect("at most a week");
    // Times have whole seconds, so the last second still counts; only a validity of zero is over at once.
    if now.seconds() > end || seconds == 0 {
        let expires = AmzDate::from_seconds(end).map(|end| end.iso()).unwrap_or_default();
        return Err(AuthError::Expired { expires, server_time: now.iso(), expires_seconds: Some(seconds) });
    }
    Ok(())
}
