//! Payload forms: how a request frames its body and protects its integrity.

use http::HeaderMap;

use super::header::single;
use super::{AuthError, CONTENT_SHA256, hex};

const UNSIGNED: &str = "UNSIGNED-PAYLOAD";
const STREAMING_SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const STREAMING_SIGNED_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
const STREAMING_UNSIGNED_TRAILER: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";

/// The form of a body, as `x-amz-content-sha256` announces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadForm {
    /// Unframed, not covered by the signature.
    Unsigned,
    /// Unframed, with this SHA-256.
    Sha256([u8; 32]),
    /// aws-chunked, each chunk signed.
    StreamingSigned,
    /// aws-chunked, each chunk and the trailer signed.
    StreamingSignedTrailer,
    /// aws-chunked with a trailer, without signatures.
    StreamingUnsignedTrailer,
}

impl PayloadForm {
    /// Reads the value of `x-amz-content-sha256`.
    pub fn parse(value: &str) -> Result<PayloadForm, AuthError> {
        match value {
            UNSIGNED => Ok(PayloadForm::Unsigned),
            STREAMING_SIGNED => Ok(PayloadForm::StreamingSigned),
            STREAMING_SIGNED_TRAILER => Ok(PayloadForm::StreamingSignedTrailer),
            STREAMING_UNSIGNED_TRAILER => Ok(PayloadForm::StreamingUnsignedTrailer),
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD" => {
                Err(AuthError::NotImplemented("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD"))
            }
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER" => {
                Err(AuthError::NotImplemented("STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER"))
            }
            _ => hex::decode(value.as_bytes()).map(PayloadForm::Sha256).ok_or(AuthError::BadContentSha256),
        }
    }

    /// The form of a body without a Version 4 signature. Version 2 clients announce aws-chunked framing only by
    /// `Content-Encoding` and the decoded length.
    pub(crate) fn without_v4(headers: &HeaderMap) -> Result<PayloadForm, AuthError> {
        let form = match single(headers, CONTENT_SHA256)? {
            Some(value) => PayloadForm::parse(value)?,
            None if announces_chunks(headers) => PayloadForm::StreamingUnsignedTrailer,
            None => PayloadForm::Unsigned,
        };
        if form.has_signed_chunks() { Err(AuthError::SignedChunksWithoutV4) } else { Ok(form) }
    }

    /// The value of `x-amz-content-sha256` for this form.
    pub fn header_value(&self) -> String {
        match self {
            PayloadForm::Unsigned => UNSIGNED.to_owned(),
            PayloadForm::Sha256(digest) => hex::text(digest),
            PayloadForm::StreamingSigned => STREAMING_SIGNED.to_owned(),
            PayloadForm::StreamingSignedTrailer => STREAMING_SIGNED_TRAILER.to_owned(),
            PayloadForm::StreamingUnsignedTrailer => STREAMING_UNSIGNED_TRAILER.to_owned(),
        }
    }

    /// Whether the body has aws-chunked framing.
    pub fn is_chunked(&self) -> bool {
        !matches!(self, PayloadForm::Unsigned | PayloadForm::Sha256(_))
    }

    /// Whether each chunk carries a signature.
    pub fn has_signed_chunks(&self) -> bool {
        matches!(self, PayloadForm::StreamingSigned | PayloadForm::StreamingSignedTrailer)
    }

    /// Whether a trailer may follow the last chunk.
    pub fn has_trailer(&self) -> bool {
        matches!(self, PayloadForm::StreamingSignedTrailer | PayloadForm::StreamingUnsignedTrailer)
    }
}

/// Whether the head announces aws-chunked framing.
fn announces_chunks(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(http::header::CONTENT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = encodings.flat_map(|value| value.split(',')).map(str::trim);
    headers.contains_key("x-amz-decoded-content-length")
        && codings.any(|coding| coding.eq_ignore_ascii_case("aws-chunked"))
}
