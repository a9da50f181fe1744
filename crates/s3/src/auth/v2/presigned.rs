//! Signature Version 2 in the query of a URL: `AWSAccessKeyId`, `Expires` and `Signature`.
//!
//! Why: such a URL contains only the time of its end, in seconds since 1970, not of its beginning.

use std::borrow::Cow;

use super::super::canonical::{decode, pairs};
use super::super::claim::ACCESS_KEY_BYTES_MAX;
use super::super::date::AmzDate;
use super::super::header::single;
use super::super::{AuthError, CredentialSource, Head};
use super::Claim;

const MALFORMED: AuthError = AuthError::MalformedV2("a parameter of the signature is given twice, or is not encoded");

/// Parses the claim of a presigned URL and checks its time.
pub(crate) fn read<'a>(head: &Head<'a>, now: &AmzDate) -> Result<Claim<'a>, AuthError> {
    let (mut access_key, mut expires, mut signature, mut token) = (None, None, None, None);
    for (name, value) in pairs(head.query) {
        let given = match name {
            "AWSAccessKeyId" => &mut access_key,
            "Expires" => &mut expires,
            "Signature" => &mut signature,
            "x-amz-security-token" => &mut token,
            _ => continue,
        };
        // An unescaped plus sign is taken as part of Base64.
        let value = decode(&value.replace('+', "%2B")).ok_or(MALFORMED)?;
        if given.replace(value).is_some() {
            return Err(MALFORMED);
        }
    }
    let need = |value: Option<String>| value.filter(|value| !value.is_empty()).ok_or(AuthError::IncompleteV2Query);
    let (access_key, expires, signature) = (need(access_key)?, need(expires)?, need(signature)?);
    if access_key.len() > ACCESS_KEY_BYTES_MAX {
        return Err(AuthError::UnknownAccessKey(access_key.chars().take(ACCESS_KEY_BYTES_MAX).collect()));
    }
    check_time(&expires, now)?;
    let token = match token {
        Some(token) => Some(Cow::Owned(token)),
        None => single(head.headers, "x-amz-security-token")?.map(Cow::Borrowed),
    };
    Ok(Claim {
        given: CredentialSource::Query,
        access_key: Cow::Owned(access_key),
        signature: Cow::Owned(signature),
        date_line: Cow::Owned(expires),
        token,
    })
}

fn check_time(expires: &str, now: &AmzDate) -> Result<(), AuthError> {
    let digits = expires.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = expires.parse::<i64>().ok().filter(|_| digits).ok_or(AuthError::BadExpires)?;
    if now.seconds() > seconds {
        let expires = AmzDate::from_seconds(seconds).map(|end| end.iso()).unwrap_or_default();
        return Err(AuthError::Expired { expires, server_time: now.iso(), expires_seconds: None });
    }
    Ok(())
}
