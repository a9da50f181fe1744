//! A request's claim about its signature: parsed but not yet verified.

use std::borrow::Cow;

use super::date::AmzDate;
use super::key::TERMINATOR;
use super::{AuthError, CredentialSource, PayloadForm};

/// Maximum size of an access key, in bytes.
pub const ACCESS_KEY_BYTES_MAX: usize = 128;
/// Maximum size of a region's name, in bytes.
pub const REGION_BYTES_MAX: usize = 64;
/// Maximum number of signed headers.
pub const SIGNED_HEADERS_MAX: usize = 128;

/// A signature and everything that it covers besides the request itself.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    pub given: CredentialSource,
    pub access_key: Cow<'a, str>,
    pub region: Cow<'a, str>,
    pub signed_headers: Cow<'a, str>,
    pub signature: [u8; 32],
    /// When it was signed; must be on the day of the scope.
    pub date: AmzDate,
    /// As in the canonical request.
    pub payload_line: Cow<'a, str>,
    pub payload: PayloadForm,
    pub token: Option<Cow<'a, str>>,
}

/// The parts of `ACCESS_KEY/YYYYMMDD/REGION/s3/aws4_request`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CredentialText<'a> {
    pub access_key: &'a str,
    pub day: &'a str,
    pub region: &'a str,
}

impl CredentialText<'_> {
    /// Parses from the right, since an access key may contain a slash.
    pub(crate) fn parse<'t>(
        text: &'t str,
        given: CredentialSource,
        wanted: &str,
    ) -> Result<CredentialText<'t>, AuthError> {
        let refuse = |reason| AuthError::Malformed { given, reason };
        let mut parts = text.rsplitn(5, '/');
        let wrong = "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"";
        let mut next = |may_be_empty| parts.next().filter(|part| may_be_empty || !part.is_empty()).ok_or(refuse(wrong));
        let (terminator, service) = (next(false)?, next(false)?);
        // boto3 without a region signs an empty one; the region's name has no effect here anyway.
        let (region, day, access_key) = (next(true)?, next(false)?, next(false)?);
        if terminator != TERMINATOR {
            return Err(refuse("incorrect terminal. This endpoint uses \"aws4_request\""));
        }
        if service != wanted {
            return Err(refuse(
                "incorrect service. This endpoint belongs to \"s3\" (\"iam\" and \"sts\" for their actions)",
            ));
        }
        if region.len() > REGION_BYTES_MAX {
            return Err(refuse("the region is too long"));
        }
        if access_key.len() > ACCESS_KEY_BYTES_MAX {
            return Err(refuse("the access key is too long"));
        }
        Ok(CredentialText { access_key, day, region })
    }

    /// The scope must be of the day on which the request was signed.
    pub(crate) fn check_day(&self, date: &AmzDate, given: CredentialSource) -> Result<(), AuthError> {
        match self.day.as_bytes() == date.day() {
            true => Ok(()),
            false => Err(AuthError::Malformed {
                given,
                reason: "the date in the credential scope is not the day of the request's date",
            }),
        }
    }
}

/// The list of signed headers must be sorted, in lower case, without duplicates, and include the host.
pub(crate) fn check_signed_headers(list: &str, given: CredentialSource) -> Result<(), AuthError> {
    let refuse = |reason| Err(AuthError::Malformed { given, reason });
    let mut last = "";
    let mut has_host = false;
    for (index, name) in list.split(';').enumerate() {
        let clean = name.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase());
        if !clean || name <= last {
            return refuse("SignedHeaders must be lower-case names, sorted, each once, with semicolons between them");
        }
        if index == SIGNED_HEADERS_MAX {
            return refuse("SignedHeaders names too many headers");
        }
        has_host |= name == "host";
        last = name;
    }
    if has_host { Ok(()) } else { refuse("'Host' must be a signed header") }
}
