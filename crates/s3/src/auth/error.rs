//! Why a signature was refused, with the facts that S3 shows to the client.
//!
//! Invariants: E1 no variant carries a secret key, a signing key or the expected signature.
//! Not here:   the XML (the door's error table).

use std::fmt;

use super::Code;

/// Where the credentials were given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// The `Authorization` header.
    Header,
    /// The query of a presigned URL.
    Query,
    /// The fields of a browser's form.
    Form,
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CredentialSource::Header => "The authorization header is malformed",
            CredentialSource::Query => "Error parsing the query parameters",
            CredentialSource::Form => "Error parsing the form fields",
        })
    }
}

/// The inputs of a failed comparison; the client sent all of it or can derive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub access_key: String,
    /// As the client gave it, in hex.
    pub signature_provided: String,
    pub string_to_sign: String,
    /// Version 4 only.
    pub canonical_request: Option<String>,
}

/// Why the signature of a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    #[error("{given}; {reason}.")]
    Malformed { given: CredentialSource, reason: &'static str },
    #[error("Unsupported Authorization Type")]
    UnknownScheme,
    #[error(
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256. \
         (Signature version 2 is not accepted here.)"
    )]
    SignatureV2,
    /// Malformed Version 2 credentials; says what is wrong.
    #[error("{0}")]
    MalformedV2(&'static str),
    #[error("Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters")]
    IncompleteV2Query,
    #[error("Bucket POST must contain a field named '{0}'. If it is specified, please check the order of the fields.")]
    FormFieldMissing(&'static str),
    #[error("Invalid date (should be seconds since epoch)")]
    BadExpires,
    /// Holds the parameter's name.
    #[error("The query parameter {0} stands for a header, and contradicts it or cannot be one")]
    BadHoistedHeader(String),
    #[error(
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
         parameter or the Authorization header should be specified"
    )]
    TwoMechanisms,
    /// A signature or payload form of AWS that is not implemented here.
    #[error("{0} is not implemented.")]
    NotImplemented(&'static str),
    #[error("AWS authentication requires a valid Date or x-amz-date header")]
    NoDate,
    /// Requests without a body may omit it.
    #[error(
        "Missing required header for this request: x-amz-content-sha256 (with curl, add \
         -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD')"
    )]
    NoContentSha256,
    #[error(
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value."
    )]
    BadContentSha256,
    /// Times are ISO 8601 text.
    #[error("The difference between the request time and the current time is too large.")]
    TimeTooSkewed { request_time: String, server_time: String, allowed_ms: u64 },
    #[error("Request has expired")]
    Expired {
        expires: String,
        server_time: String,
        /// Version 4 only.
        expires_seconds: Option<u64>,
    },
    #[error("Request is not yet valid")]
    NotYetValid { request_time: String, server_time: String },
    #[error("There were headers present in the request which were not signed")]
    HeadersNotSigned(Vec<String>),
    #[error(
        "The request signature we calculated does not match the signature you provided. \
         The signed header {0} is absent from the request."
    )]
    SignedHeaderAbsent(String),
    #[error("The AWS Access Key Id you provided does not exist in our records.")]
    UnknownAccessKey(String),
    #[error(
        "The request signature we calculated does not match the signature you provided. \
         Check your key and signing method."
    )]
    Mismatch(Box<Mismatch>),
    #[error("The provided token is malformed or otherwise invalid.")]
    BadToken,
    #[error("Signed chunks need a request signed with Version 4.")]
    SignedChunksWithoutV4,
}

impl AuthError {
    /// The S3 code of this refusal.
    pub fn code(&self) -> Code {
        match self {
            AuthError::Malformed { given: CredentialSource::Header, .. } => Code::AuthorizationHeaderMalformed,
            AuthError::Malformed { given: CredentialSource::Query, .. } => Code::AuthorizationQueryParametersError,
            AuthError::Malformed { given: CredentialSource::Form, .. }
            | AuthError::FormFieldMissing(_)
            | AuthError::UnknownScheme
            | AuthError::MalformedV2(_)
            | AuthError::BadHoistedHeader(_)
            | AuthError::TwoMechanisms
            | AuthError::BadContentSha256 => Code::InvalidArgument,
            AuthError::SignatureV2 | AuthError::NoContentSha256 => Code::InvalidRequest,
            AuthError::NotImplemented(_) => Code::NotImplemented,
            AuthError::TimeTooSkewed { .. } => Code::RequestTimeTooSkewed,
            AuthError::NoDate
            | AuthError::Expired { .. }
            | AuthError::NotYetValid { .. }
            | AuthError::HeadersNotSigned(_)
            | AuthError::IncompleteV2Query
            | AuthError::BadExpires
            | AuthError::SignedChunksWithoutV4 => Code::AccessDenied,
            AuthError::SignedHeaderAbsent(_) | AuthError::Mismatch(_) => Code::SignatureDoesNotMatch,
            AuthError::UnknownAccessKey(_) => Code::InvalidAccessKeyId,
            AuthError::BadToken => Code::InvalidToken,
        }
    }

    /// Further elements of the XML error: names as S3 spells them, values not yet escaped.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        match self {
            AuthError::TimeTooSkewed { request_time, server_time, allowed_ms } => vec![
                ("RequestTime", request_time.clone()),
                ("ServerTime", server_time.clone()),
                ("MaxAllowedSkewMilliseconds", allowed_ms.to_string()),
            ],
            AuthError::Expired { expires, server_time, expires_seconds } => {
                let mut details = vec![("Expires", expires.clone()), ("ServerTime", server_time.clone())];
                details.extend(expires_seconds.map(|seconds| ("X-Amz-Expires", seconds.to_string())));
                details
            }
            AuthError::NotYetValid { request_time, server_time } => {
                vec![("RequestTime", request_time.clone()), ("ServerTime", server_time.clone())]
            }
            AuthError::HeadersNotSigned(names) => vec![("HeadersNotSigned", names.join(", "))],
            AuthError::UnknownAccessKey(access_key) => vec![("AWSAccessKeyId", access_key.clone())],
            AuthError::Mismatch(mismatch) => {
                let mut details = vec![
                    ("AWSAccessKeyId", mismatch.access_key.clone()),
                    ("StringToSign", mismatch.string_to_sign.clone()),
                    ("SignatureProvided", mismatch.signature_provided.clone()),
                ];
                details.extend(mismatch.canonical_request.clone().map(|text| ("CanonicalRequest", text)));
                details
            }
            _ => Vec::new(),
        }
    }
}
