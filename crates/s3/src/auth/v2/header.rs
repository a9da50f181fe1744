//! Signature Version 2 in the `Authorization` header: `AWS ACCESS_KEY:SIGNATURE`.

use std::borrow::Cow;

use super::super::claim::ACCESS_KEY_BYTES_MAX;
use super::super::date::AmzDate;
use super::super::header::{check_skew, single};
use super::super::{AuthError, CredentialSource, Head, Options};
use super::Claim;

/// The scheme of Version 2.
pub(crate) const SCHEME: &str = "AWS";

const FORM: AuthError =
    AuthError::MalformedV2("AWS authorization header is invalid. Expected AwsAccessKeyId:signature");

/// Parses the rest after the scheme and checks the request's time.
pub(crate) fn read<'a>(
    credentials: &'a str,
    head: &Head<'a>,
    options: &Options,
    now: &AmzDate,
) -> Result<Claim<'a>, AuthError> {
    // From the right: an access key may contain a colon, Base64 may not.
    let (access_key, signature) = credentials.trim().rsplit_once(':').ok_or(FORM)?;
    if access_key.is_empty() || access_key.len() > ACCESS_KEY_BYTES_MAX || signature.is_empty() {
        return Err(FORM);
    }
    let (date, date_line) = match single(head.headers, "x-amz-date")? {
        // `x-amz-date` is among the covered headers, so the line of `Date` stays empty.
        Some(text) => (text, ""),
        None => {
            let text = single(head.headers, http::header::DATE.as_str())?.ok_or(AuthError::NoDate)?;
            (text, text)
        }
    };
    // As at AWS, a time before 1970 is an invalid date, not one with a large skew.
    let date = AmzDate::parse_http(date).filter(|date| date.seconds() >= 0).ok_or(AuthError::NoDate)?;
    check_skew(&date, options, now)?;
    Ok(Claim {
        given: CredentialSource::Header,
        access_key: Cow::Borrowed(access_key),
        signature: Cow::Borrowed(signature),
        date_line: Cow::Borrowed(date_line),
        token: single(head.headers, "x-amz-security-token")?.map(Cow::Borrowed),
    })
}
