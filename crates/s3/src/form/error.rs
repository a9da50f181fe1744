//! Errors of a form, with the details that S3 returns to the client.

use crate::body::WireError;

/// Why a form was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FormError {
    #[error("Bucket POST must be of the enclosure-type multipart/form-data")]
    NotMultipart,
    #[error("The body of your POST request is not well-formed multipart/form-data: {0}")]
    Malformed(&'static str),
    #[error("Your POST request fields preceding the upload file were too large.")]
    FieldsTooLarge,
    #[error("The form has too many fields")]
    TooManyFields,
    #[error("The form field {0} is given twice")]
    FieldTwice(String),
    #[error("The form field {0} holds what no header can carry")]
    BadHeader(String),
    #[error("POST requires exactly one file upload per request.")]
    NoFile,
    #[error("The bucket POST must contain the field key. If it is specified, check the order of the fields.")]
    NoKey,
    #[error("Invalid Policy: {0}")]
    BadPolicy(String),
    #[error("Invalid according to Policy: {0}")]
    AgainstPolicy(String),
    #[error("Your proposed upload exceeds the maximum allowed size")]
    FileTooLarge { max: u64 },
    #[error("Your proposed upload is smaller than the minimum allowed size")]
    FileTooSmall { size: u64, min: u64 },
    #[error("The body of your POST request ended before its form did")]
    Incomplete,
    /// The connection failed, or the framing of its body was invalid.
    #[error("The request body could not be received: {0}")]
    Transport(#[source] WireError),
}
