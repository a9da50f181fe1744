//! Decoder of aws-chunked framing: repeated `SIZE[;chunk-signature=HEX]CRLF payload CRLF`, the last with size 0.
//!
//! Why:        a chunk may be gigabytes long, so its payload is passed on while its digest is being computed; the last
//!             piece of a chunk is held back until its signature is verified.
//! Invariants: C1 at most the announced payload is passed on.
//!             C2 a signed body's payload is complete and authentic if and only if `end` returns Ok.

use bytes::Bytes;
use ring::digest;

use super::BodyError;
use super::trailer::{TRAILER_BYTES_MAX, TrailerReader, Trailers};
use crate::auth::hex;
use crate::auth::{ChunkChain, PayloadForm};

/// Maximum size of a chunk's header line including its end, in bytes. A signed one takes at most 99.
pub const CHUNK_HEADER_BYTES_MAX: usize = 1024;

#[derive(Debug)]
enum State {
    /// In the header line of a chunk.
    Header,
    /// In the payload of a chunk: bytes still to come, and the expected signature.
    Payload { left: u64 },
    /// In the CRLF after a payload: bytes of it seen.
    PayloadEnd { seen: usize },
    /// After the last chunk.
    Trailer { bytes: usize },
}

/// State of chunk signature verification.
struct Verification {
    chain: ChunkChain,
    /// Digest of the current chunk's payload so far.
    digest: digest::Context,
    /// The current chunk's claimed signature.
    signature: [u8; 32],
}

/// Decodes an aws-chunked body piece by piece.
pub(crate) struct ChunkReader {
    form: PayloadForm,
    announced: u64,
    /// Payload bytes in the chunks begun so far.
    begun: u64,
    state: State,
    /// A line that is not complete yet.
    line: Vec<u8>,
    trailer: TrailerReader,
    /// None for unsigned chunks and when verification is switched off.
    verification: Option<Verification>,
}

impl std::fmt::Debug for ChunkReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkReader").field("begun", &self.begun).field("state", &self.state).finish_non_exhaustive()
    }
}

impl ChunkReader {
    /// `chain` is present when signatures are verified.
    pub(crate) fn new(form: PayloadForm, announced: u64, chain: Option<ChunkChain>) -> ChunkReader {
        assert!(form.is_chunked(), "only a chunked form has chunks");
        let verification = chain.map(|chain| Verification {
            chain,
            digest: digest::Context::new(&digest::SHA256),
            signature: [0; 32],
        });
        ChunkReader {
            form,
            announced,
            begun: 0,
            state: State::Header,
            line: Vec::new(),
            trailer: TrailerReader::default(),
            verification,
        }
    }

    /// Payload bytes passed on.
    pub(crate) fn passed(&self) -> u64 {
        match self.state {
            State::Payload { left } => self.begun - left,
            _ => self.begun,
        }
    }

    /// Consumes `input` until a piece of payload is found or the input is used up.
    pub(crate) fn step(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, BodyError> {
        while !input.is_empty() {
            match &mut self.state {
                State::Header => {
                    let room = CHUNK_HEADER_BYTES_MAX - self.line.len();
                    if self.take_line(input, room).ok_or(BodyError::BadChunk("a header line is too long"))? {
                        self.begin_chunk()?;
                    }
                }
                State::Payload { left } => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    let piece = input.split_to(count);
                    *left -= count as u64;
                    let is_last = *left == 0;
                    if let Some(verification) = &mut self.verification {
                        verification.digest.update(&piece);
                    }
                    if is_last {
                        self.state = State::PayloadEnd { seen: 0 };
                        self.verify_chunk()?;
                    }
                    return Ok(Some(piece));
                }
                State::PayloadEnd { seen } => {
                    let byte = input.split_to(1)[0];
                    if byte != b"\r\n"[*seen] {
                        return Err(BodyError::BadChunk("the payload of a chunk does not end with CRLF"));
                    }
                    *seen += 1;
                    if *seen == 2 {
                        self.state = State::Header;
                    }
                }
                State::Trailer { bytes } => {
                    let room = TRAILER_BYTES_MAX - *bytes;
                    let before = input.len();
                    let is_line =
                        self.take_line(input, room).ok_or(BodyError::BadTrailer("it is longer than allowed"))?;
                    let taken = before - input.len();
                    self.end_trailer_line(taken, is_line)?;
                }
            }
        }
        Ok(None)
    }

    /// Moves input into the line up to a line feed: true when the line is complete (including its end), `None` when it
    /// takes more than `room` further bytes.
    fn take_line(&mut self, input: &mut Bytes, room: usize) -> Option<bool> {
        let end = input.iter().take(room).position(|byte| *byte == b'\n');
        let count = end.map_or(input.len(), |place| place + 1);
        if count > room || (end.is_none() && count == room) {
            return None;
        }
        self.line.extend_from_slice(&input.split_to(count));
        Some(end.is_some())
    }

    fn begin_chunk(&mut self) -> Result<(), BodyError> {
        let line =
            self.line.strip_suffix(b"\r\n").ok_or(BodyError::BadChunk("a header line does not end with CRLF"))?;
        let (size, signature) = parse_header(line)?;
        if self.form.has_signed_chunks() && signature.is_none() {
            return Err(BodyError::BadChunk("a chunk has no chunk-signature"));
        }
        if size > self.announced - self.begun {
            return Err(BodyError::TooLong { announced: self.announced });
        }
        self.line.clear();
        self.begun += size;
        if let (Some(verification), Some(signature)) = (&mut self.verification, signature) {
            verification.signature = signature;
        }
        if size > 0 {
            self.state = State::Payload { left: size };
            return Ok(());
        }
        self.state = State::Trailer { bytes: 0 };
        self.verify_chunk()
    }

    fn verify_chunk(&mut self) -> Result<(), BodyError> {
        let Some(verification) = &mut self.verification else { return Ok(()) };
        let payload = std::mem::replace(&mut verification.digest, digest::Context::new(&digest::SHA256)).finish();
        match verification.chain.verify_chunk(&payload, &verification.signature) {
            true => Ok(()),
            false => Err(BodyError::SignatureMismatch),
        }
    }

    fn end_trailer_line(&mut self, taken: usize, is_line: bool) -> Result<(), BodyError> {
        let State::Trailer { bytes } = &mut self.state else { unreachable!("only called in the trailer") };
        *bytes += taken;
        if !is_line {
            return Ok(());
        }
        let line = self.line.strip_suffix(b"\n").expect("a complete line ends with a line feed");
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if !line.is_empty() && !self.form.has_trailer() {
            return Err(BodyError::BadChunk("something follows the last chunk"));
        }
        self.trailer.line(line)?;
        self.line.clear();
        Ok(())
    }

    /// Checks at the end of the transport's data that the body is complete.
    pub(crate) fn end(self) -> Result<Trailers, BodyError> {
        let is_whole = matches!(self.state, State::Trailer { .. }) && self.line.is_empty();
        if !is_whole || self.begun != self.announced {
            return Err(BodyError::Incomplete { announced: Some(self.announced), received: self.passed() });
        }
        let (trailers, signature) = self.trailer.into_parts();
        let Some(mut verification) = self.verification.filter(|_| self.form.has_trailer()) else {
            return Ok(trailers);
        };
        let signature = signature.ok_or(BodyError::BadTrailer("it is not signed"))?;
        let digest = digest::digest(&digest::SHA256, &trailers.canonical());
        match verification.chain.verify_trailer(&digest, &signature) {
            true => Ok(trailers),
            false => Err(BodyError::SignatureMismatch),
        }
    }
}

/// The size of a chunk and its signature, from a header line without its end.
fn parse_header(line: &[u8]) -> Result<(u64, Option<[u8; 32]>), BodyError> {
    let mut parts = line.split(|byte| *byte == b';');
    let digits = parts.next().expect("a split gives at least one part").trim_ascii();
    if digits.is_empty() || digits.len() > 16 {
        return Err(BodyError::BadChunk("a chunk size is not a hex number"));
    }
    let size =
        digits.iter().try_fold(0u64, |size, digit| Some(size << 4 | u64::from(char::from(*digit).to_digit(16)?)));
    let size = size.ok_or(BodyError::BadChunk("a chunk size is not a hex number"))?;
    let mut signature = None;
    for part in parts {
        let Some(digits) = part.trim_ascii().strip_prefix(b"chunk-signature=") else { continue };
        let value = hex::decode(digits).ok_or(BodyError::BadChunk("a chunk-signature is not 64 hex digits"))?;
        if signature.replace(value).is_some() {
            return Err(BodyError::BadChunk("a chunk has two signatures"));
        }
    }
    Ok((size, signature))
}
