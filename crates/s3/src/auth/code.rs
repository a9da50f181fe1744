//! S3 error codes of signatures and bodies.
//!
//! Why:      signature and body code returns a code as a value; the S3 door renders it as XML like all other codes.
//! Not here: codes about buckets and objects, the XML.

/// An S3 error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    AccessDenied,
    AuthorizationHeaderMalformed,
    AuthorizationQueryParametersError,
    BadDigest,
    IncompleteBody,
    InvalidAccessKeyId,
    InvalidArgument,
    InvalidDigest,
    InvalidRequest,
    InvalidToken,
    MalformedTrailerError,
    MissingContentLength,
    NotImplemented,
    RequestTimeout,
    RequestTimeTooSkewed,
    SignatureDoesNotMatch,
    XAmzContentSHA256Mismatch,
}

impl Code {
    /// The text of the `Code` element.
    pub fn name(self) -> &'static str {
        match self {
            Code::AccessDenied => "AccessDenied",
            Code::AuthorizationHeaderMalformed => "AuthorizationHeaderMalformed",
            Code::AuthorizationQueryParametersError => "AuthorizationQueryParametersError",
            Code::BadDigest => "BadDigest",
            Code::IncompleteBody => "IncompleteBody",
            Code::InvalidAccessKeyId => "InvalidAccessKeyId",
            Code::InvalidArgument => "InvalidArgument",
            Code::InvalidDigest => "InvalidDigest",
            Code::InvalidRequest => "InvalidRequest",
            Code::InvalidToken => "InvalidToken",
            Code::MalformedTrailerError => "MalformedTrailerError",
            Code::MissingContentLength => "MissingContentLength",
            Code::NotImplemented => "NotImplemented",
            Code::RequestTimeout => "RequestTimeout",
            Code::RequestTimeTooSkewed => "RequestTimeTooSkewed",
            Code::SignatureDoesNotMatch => "SignatureDoesNotMatch",
            Code::XAmzContentSHA256Mismatch => "XAmzContentSHA256Mismatch",
        }
    }

    /// The HTTP status that goes with the code.
    pub fn status(self) -> http::StatusCode {
        match self {
            Code::AccessDenied
            | Code::InvalidAccessKeyId
            | Code::RequestTimeTooSkewed
            | Code::SignatureDoesNotMatch => http::StatusCode::FORBIDDEN,
            Code::MissingContentLength => http::StatusCode::LENGTH_REQUIRED,
            Code::NotImplemented => http::StatusCode::NOT_IMPLEMENTED,
            _ => http::StatusCode::BAD_REQUEST,
        }
    }
}
