//! Decodes a request body in any payload form into its payload.

use std::error::Error;

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::Body;
use http_body_util::BodyExt;

use super::chunked::ChunkReader;
use super::{BodyError, Trailers};
use crate::auth::{ChunkChain, PayloadForm};

const DECODED_LENGTH: &str = "x-amz-decoded-content-length";

/// Checks during decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderOptions {
    /// Whether the payload's SHA-256 and the signatures of chunks and trailers are verified. If not, the payload is not
    /// hashed for them and may have been altered in transit; framing, and the client's checksums and MD5, are checked
    /// all the same.
    pub chunk_verification: bool,
}

impl Default for DecoderOptions {
    fn default() -> DecoderOptions {
        DecoderOptions { chunk_verification: true }
    }
}

/// Payload bytes announced in the head: `x-amz-decoded-content-length`, which a chunked form must have, or
/// `Content-Length`, which may be absent.
pub fn announced_bytes(headers: &HeaderMap, form: &PayloadForm) -> Result<Option<u64>, BodyError> {
    match form.is_chunked() {
        true => number(headers, DECODED_LENGTH)?.map(Some).ok_or(BodyError::NoLength),
        false => number(headers, CONTENT_LENGTH.as_str()),
    }
}

/// The single number of a header; with two it would be unclear which one counts.
fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, BodyError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let digits = value.to_str().ok().map(str::trim).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match (digits.and_then(|digits| digits.parse().ok()), values.next()) {
        (Some(number), None) => Ok(Some(number)),
        _ => Err(BodyError::BadLength(name)),
    }
}

/// A `Content-Encoding` without `aws-chunked`, which belongs to the transfer and is not stored; `None` when nothing is
/// left.
pub fn stored_encoding(content_encoding: &str) -> Option<String> {
    let codings = content_encoding.split(',').map(str::trim);
    let kept: Vec<&str> = codings.filter(|coding| !coding.eq_ignore_ascii_case("aws-chunked")).collect();
    if kept.len() == content_encoding.split(',').count() {
        let whole = content_encoding.trim();
        return (!whole.is_empty()).then(|| whole.to_owned());
    }
    let kept: Vec<&str> = kept.into_iter().filter(|coding| !coding.is_empty()).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

#[derive(Debug)]
enum Framing {
    Identity {
        announced: Option<u64>,
        passed: u64,
    },
    Chunked(Box<ChunkReader>),
    /// The body has been read to its end.
    Ended(Trailers),
    /// An error was reported.
    Failed,
}

/// Returns the payload of a body in the pieces in which it arrives.
#[derive(Debug)]
pub struct Decoder<B> {
    body: B,
    /// Received but not yet decoded.
    input: Bytes,
    framing: Framing,
}

impl<B> Decoder<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// `form` and `chain` come from the verified head.
    pub fn new(
        body: B,
        headers: &HeaderMap,
        form: &PayloadForm,
        chain: Option<ChunkChain>,
        options: DecoderOptions,
    ) -> Result<Decoder<B>, BodyError> {
        assert_eq!(chain.is_some(), form.has_signed_chunks(), "signed chunks and their chain come together");
        let framing = match announced_bytes(headers, form)? {
            Some(announced) if form.is_chunked() => {
                let chain = chain.filter(|_| options.chunk_verification);
                Framing::Chunked(Box::new(ChunkReader::new(*form, announced, chain)))
            }
            announced => Framing::Identity { announced, passed: 0 },
        };
        Ok(Decoder { body, input: Bytes::new(), framing })
    }

    /// The next piece of payload, never empty; `None` at the end, after the framing was checked completely. After an
    /// error it returns nothing more.
    pub async fn next(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.step() {
                Ok(None) => {}
                Ok(Some(piece)) => return Ok(Some(piece)),
                Err(error) => return Err(self.fail(error)),
            }
            if matches!(self.framing, Framing::Ended(_)) {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    // S3 does not use trailers of the transport itself.
                    if let Ok(data) = frame.into_data() {
                        self.input = data;
                    }
                }
                Some(Err(error)) => return Err(self.fail(BodyError::Transport(error.into()))),
                None => {
                    let trailers = self.end()?;
                    self.framing = Framing::Ended(trailers);
                    return Ok(None);
                }
            }
        }
    }

    fn fail(&mut self, error: BodyError) -> BodyError {
        self.framing = Framing::Failed;
        self.input = Bytes::new();
        error
    }

    fn step(&mut self) -> Result<Option<Bytes>, BodyError> {
        match &mut self.framing {
            Framing::Chunked(reader) => reader.step(&mut self.input),
            Framing::Identity { announced, passed } => {
                let piece = std::mem::take(&mut self.input);
                *passed += piece.len() as u64;
                match *announced {
                    Some(announced) if *passed > announced => Err(BodyError::TooLong { announced }),
                    _ => Ok((!piece.is_empty()).then_some(piece)),
                }
            }
            Framing::Ended(_) => Ok(None),
            Framing::Failed => Err(BodyError::Incomplete { announced: None, received: 0 }),
        }
    }

    fn end(&mut self) -> Result<Trailers, BodyError> {
        match std::mem::replace(&mut self.framing, Framing::Failed) {
            Framing::Chunked(reader) => reader.end(),
            Framing::Identity { announced: Some(announced), passed } if passed != announced => {
                Err(BodyError::Incomplete { announced: Some(announced), received: passed })
            }
            Framing::Identity { .. } => Ok(Trailers::default()),
            Framing::Ended(trailers) => Ok(trailers),
            Framing::Failed => Err(BodyError::Incomplete { announced: None, received: 0 }),
        }
    }

    /// The trailing headers of a body that was read to its end; an error when it was not.
    pub fn finish(self) -> Result<Trailers, BodyError> {
        match self.framing {
            Framing::Ended(trailers) => Ok(trailers),
            Framing::Chunked(reader) => Err(BodyError::Incomplete { announced: None, received: reader.passed() }),
            Framing::Identity { announced, passed } => Err(BodyError::Incomplete { announced, received: passed }),
            Framing::Failed => Err(BodyError::Incomplete { announced: None, received: 0 }),
        }
    }
}
