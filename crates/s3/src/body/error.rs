//! Errors of a body, with the facts that S3 shows to the client.

use std::error::Error;
use std::io;

use super::Algorithm;
use crate::auth::Code;

/// Why a body could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("You did not provide the number of bytes specified by the Content-Length HTTP header")]
    Incomplete { announced: Option<u64>, received: u64 },
    /// More payload than announced; detected before the surplus is passed on.
    #[error("You provided more bytes than the announced {announced}")]
    TooLong { announced: u64 },
    #[error("You must provide the Content-Length HTTP header; a chunked body needs x-amz-decoded-content-length.")]
    NoLength,
    #[error("{0} must be a number of bytes")]
    BadLength(&'static str),
    #[error("The request body's aws-chunked framing is wrong: {0}")]
    BadChunk(&'static str),
    #[error("The request signature we calculated does not match the signature of a chunk or trailer.")]
    SignatureMismatch,
    #[error(
        "The request contained trailing data that was not well-formed or did not conform to our published schema: {0}"
    )]
    BadTrailer(&'static str),
    /// The connection broke or its own framing was wrong.
    #[error("The request body could not be received: {0}")]
    Transport(#[source] Box<dyn Error + Send + Sync>),
}

impl BodyError {
    /// The S3 code of this refusal.
    pub fn code(&self) -> Code {
        match self {
            BodyError::Transport(error) if timed_out(error.as_ref()) => Code::RequestTimeout,
            BodyError::Incomplete { .. } | BodyError::TooLong { .. } | BodyError::Transport(_) => Code::IncompleteBody,
            BodyError::NoLength => Code::MissingContentLength,
            BodyError::BadLength(_) => Code::InvalidArgument,
            BodyError::BadChunk(_) => Code::InvalidRequest,
            BodyError::SignatureMismatch => Code::SignatureDoesNotMatch,
            BodyError::BadTrailer(_) => Code::MalformedTrailerError,
        }
    }
}

/// Whether a body failed because its client sends nothing, or too slowly: its error is, or is caused by, an I/O error
/// of the kind `TimedOut`. SDKs retry S3's code for it.
pub(crate) fn timed_out(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Why announced digests were refused or did not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("The Content-MD5 you specified is not valid.")]
    BadContentMd5,
    #[error("Value for {0} header is invalid.")]
    BadValue(&'static str),
    #[error("Value for {0} trailing header is invalid.")]
    BadTrailerValue(&'static str),
    #[error("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")]
    SeveralChecksums,
    /// A checksum algorithm that is not supported here; contains the header's name.
    #[error("The checksum {0} is not implemented.")]
    UnknownAlgorithm(String),
    #[error("Value for x-amz-sdk-checksum-algorithm header is invalid.")]
    BadSdkAlgorithm,
    #[error("Value for x-amz-checksum-algorithm header is invalid.")]
    BadAskedAlgorithm,
    #[error(
        "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* or x-amz-trailer headers were \
         found."
    )]
    SdkAlgorithmAlone,
    #[error("The value specified in the x-amz-trailer header is not supported")]
    UnknownTrailer,
    #[error("x-amz-trailer needs a payload form with a trailer in x-amz-content-sha256")]
    TrailerWithoutForm,
    #[error("The trailer {0} was announced and did not come, or came unannounced.")]
    WrongTrailer(String),
    /// Both in Base64.
    #[error("The Content-MD5 you specified did not match what we received.")]
    Md5Mismatch { expected: String, calculated: String },
    /// Both in hex.
    #[error("The provided 'x-amz-content-sha256' header does not match what was computed.")]
    Sha256Mismatch { expected: String, calculated: String },
    /// Both in Base64.
    #[error("The {} you specified did not match the calculated checksum.", algorithm.name())]
    ChecksumMismatch { algorithm: Algorithm, expected: String, calculated: String },
}

impl DigestError {
    /// The S3 code of this refusal.
    pub fn code(&self) -> Code {
        match self {
            DigestError::BadContentMd5 => Code::InvalidDigest,
            DigestError::UnknownAlgorithm(_) => Code::NotImplemented,
            DigestError::WrongTrailer(_) => Code::MalformedTrailerError,
            DigestError::Md5Mismatch { .. } | DigestError::ChecksumMismatch { .. } => Code::BadDigest,
            DigestError::Sha256Mismatch { .. } => Code::XAmzContentSHA256Mismatch,
            DigestError::BadValue(_)
            | DigestError::BadTrailerValue(_)
            | DigestError::SeveralChecksums
            | DigestError::BadSdkAlgorithm
            | DigestError::BadAskedAlgorithm
            | DigestError::SdkAlgorithmAlone
            | DigestError::UnknownTrailer
            | DigestError::TrailerWithoutForm => Code::InvalidRequest,
        }
    }

    /// Further elements of the XML error: names as S3 spells them, values not yet escaped.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        match self {
            DigestError::Md5Mismatch { expected, calculated }
            | DigestError::ChecksumMismatch { expected, calculated, .. } => {
                vec![("ExpectedDigest", expected.clone()), ("CalculatedDigest", calculated.clone())]
            }
            DigestError::Sha256Mismatch { expected, calculated } => {
                vec![("ClientComputedContentSHA256", expected.clone()), ("S3ComputedContentSHA256", calculated.clone())]
            }
            _ => Vec::new(),
        }
    }
}
