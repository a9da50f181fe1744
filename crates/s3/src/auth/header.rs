//! Signature Version 4 in the `Authorization` header.

use std::borrow::Cow;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};

use super::claim::{Claim, CredentialText, check_signed_headers};
use super::date::AmzDate;
use super::{AuthError, CONTENT_SHA256, CredentialSource, Head, Options, PayloadForm, hex};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// The SHA-256 of an empty text.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ECDSA_ALGORITHM: &str = "AWS4-ECDSA-P256-SHA256";

fn malformed(reason: &'static str) -> AuthError {
    AuthError::Malformed { given: CredentialSource::Header, reason }
}

/// The scheme of an `Authorization` header, and the rest of it.
pub(crate) fn scheme(authorization: &HeaderValue) -> Result<(&str, &str), AuthError> {
    let text = authorization.to_str().map_err(|_| malformed("it holds bytes that are not ASCII"))?;
    Ok(text.split_once(' ').unwrap_or((text, "")))
}

/// Parses the claim of an `Authorization` header and checks its time.
pub(crate) fn read<'a>(
    scheme: &'a str,
    rest: &'a str,
    head: &Head<'a>,
    options: &Options,
    now: &AmzDate,
) -> Result<Claim<'a>, AuthError> {
    let parts = parse(scheme, rest)?;
    let credential = CredentialText::parse(parts.credential, CredentialSource::Header, options.service)?;
    check_signed_headers(parts.signed_headers, CredentialSource::Header)?;
    let signature = hex::decode(parts.signature.as_bytes()).ok_or(malformed("Signature must be 64 hex digits"))?;
    let date = request_date(head.headers)?;
    check_skew(&date, options, now)?;
    credential.check_day(&date, CredentialSource::Header)?;
    let payload_line = match single(head.headers, CONTENT_SHA256)? {
        Some(value) => value,
        // curl signs the digest of an empty body without sending it; the digest is verified all the same.
        None if has_no_body(head.headers) => EMPTY_SHA256,
        // Services other than S3 need no header; their bodies were read before.
        None if head.body_sha256.is_some() => head.body_sha256.unwrap_or_default(),
        None => return Err(AuthError::NoContentSha256),
    };
    Ok(Claim {
        given: CredentialSource::Header,
        access_key: Cow::Borrowed(credential.access_key),
        region: Cow::Borrowed(credential.region),
        signed_headers: Cow::Borrowed(parts.signed_headers),
        signature,
        date,
        payload_line: Cow::Borrowed(payload_line),
        payload: PayloadForm::parse(payload_line)?,
        token: single(head.headers, "x-amz-security-token")?.map(Cow::Borrowed),
    })
}

/// A request is valid for a limited time around the moment of signing.
pub(crate) fn check_skew(date: &AmzDate, options: &Options, now: &AmzDate) -> Result<(), AuthError> {
    if date.seconds().abs_diff(now.seconds()) <= u64::from(options.skew_seconds_max) {
        return Ok(());
    }
    Err(AuthError::TimeTooSkewed {
        request_time: date.text().to_owned(),
        server_time: now.iso(),
        allowed_ms: u64::from(options.skew_seconds_max) * 1000,
    })
}

/// Whether the head announces no body.
fn has_no_body(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH).map(HeaderValue::as_bytes);
    length.is_none_or(|length| length == b"0") && !headers.contains_key(TRANSFER_ENCODING)
}

struct Parts<'a> {
    credential: &'a str,
    signed_headers: &'a str,
    signature: &'a str,
}

fn parse<'a>(scheme: &str, rest: &'a str) -> Result<Parts<'a>, AuthError> {
    match scheme {
        ALGORITHM => {}
        ECDSA_ALGORITHM => return Err(AuthError::NotImplemented(ECDSA_ALGORITHM)),
        _ => return Err(AuthError::UnknownScheme),
    }
    let (mut credential, mut signed_headers, mut signature) = (None, None, None);
    for part in rest.split(',') {
        let (name, value) = part.trim().split_once('=').ok_or(malformed("a part of it is not NAME=VALUE"))?;
        let slot = match name {
            "Credential" => &mut credential,
            "SignedHeaders" => &mut signed_headers,
            "Signature" => &mut signature,
            _ => return Err(malformed("it holds a part other than Credential, SignedHeaders and Signature")),
        };
        if slot.replace(value).is_some() {
            return Err(malformed("a part of it is given twice"));
        }
    }
    Ok(Parts {
        credential: credential.ok_or(malformed("the Credential is missing"))?,
        signed_headers: signed_headers.ok_or(malformed("the SignedHeaders are missing"))?,
        signature: signature.ok_or(malformed("the Signature is missing"))?,
    })
}

/// The single value of a header; with two it would be unclear which one counts.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, AuthError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(malformed("x-amz-date, x-amz-content-sha256 or x-amz-security-token is given twice"));
    }
    first.map(|value| value.to_str().map(str::trim).map_err(|_| malformed("a header is not ASCII"))).transpose()
}

fn request_date(headers: &HeaderMap) -> Result<AmzDate, AuthError> {
    if let Some(text) = single(headers, "x-amz-date")? {
        return AmzDate::parse(text.as_bytes()).ok_or(AuthError::NoDate);
    }
    let text = headers.get(http::header::DATE).and_then(|value| value.to_str().ok()).ok_or(AuthError::NoDate)?;
    AmzDate::parse_http(text.trim()).ok_or(AuthError::NoDate)
}
