//! Length and ETag of a body that becomes an object or a part.
//!
//! Not here: receiving it (`payload`), the key that encrypts it (`encryption`).

use margay_volume::{ETag, PART_BYTES_MAX};

use super::Call;
use crate::body::Computed;
use crate::error::{Code, S3Error};
use crate::payload::{Length, Payload};

/// The length of the body, which must be within the limit.
pub(super) fn body_length(call: &Call<'_>, payload: &Payload) -> Result<Length, S3Error> {
    match payload.length(call.headers)?.ok_or(Code::MissingContentLength)? {
        Length::Exactly(len) if len > PART_BYTES_MAX => Err(S3Error::from(Code::EntityTooLarge)
            .with("ProposedSize", len.to_string())
            .with("MaxSizeAllowed", PART_BYTES_MAX.to_string())),
        length => Ok(length),
    }
}

/// The length of the body, which must be announced and within the limit.
pub(super) fn body_len(call: &Call<'_>, payload: &Payload) -> Result<u64, S3Error> {
    match body_length(call, payload)? {
        Length::Exactly(len) => Ok(len),
        Length::AtMost(_) => Err(Code::MissingContentLength.into()),
    }
}

/// The ETag of a simple object or a part.
pub(super) fn md5(computed: &Computed) -> Result<ETag, S3Error> {
    let digest = computed.md5.ok_or_else(|| S3Error::internal(&"a body was received without its MD5"))?;
    Ok(ETag { digest, parts: 0 })
}
