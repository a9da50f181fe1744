//! Bodies in aws-chunked framing: each chunk with its length and a signature, created while sending.
//!
//! Why:        the seed's cases `v4chunk` and `v4chunk-nohash` differ only by the cost of these signatures, so blank
//!             ones must cost nothing here.
//! Invariants: every chunk but the last one holds `CHUNK_BYTES`, so the encoded length is known before the first byte.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::Request;
use http::header::{CONTENT_LENGTH, HeaderValue};
use margay_s3::auth::{ChunkChain, PayloadForm};
use margay_s3::body::{ChunkEncoder, encoded_bytes};

use crate::payload::{Chunks, Payload};

/// Payload bytes of a chunk, as in the AWS SDKs.
const CHUNK_BYTES: usize = 64 << 10;
/// Placeholder for a signature that the server does not check.
const BLANK: [u8; 64] = [b'0'; 64];

/// Sets the length of the framed body; the signature may cover it, so this comes first.
pub(super) fn announce(request: &mut Request<Payload>, form: PayloadForm) {
    let length = encoded_bytes(&form, request.body().len(), CHUNK_BYTES as u64, &[]);
    request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
}

/// Replaces the body by its chunks; without a chain their signatures are blank.
pub(super) fn wrap(request: &mut Request<Payload>, form: PayloadForm, chain: Option<ChunkChain>) {
    let body = std::mem::replace(request.body_mut(), Payload::Empty);
    let length = encoded_bytes(&form, body.len(), CHUNK_BYTES as u64, &[]);
    let encoder = chain.map(|chain| ChunkEncoder::new(form, Some(chain)));
    let wrapped =
        Wrapped { left: body.len(), body, encoder, held: BytesMut::new(), ready: VecDeque::new(), ended: false };
    *request.body_mut() = Payload::Stream(Box::new(wrapped), length);
}

struct Wrapped {
    body: Payload,
    /// Payload bytes that are not framed yet.
    left: u64,
    /// None for blank signatures.
    encoder: Option<ChunkEncoder>,
    /// The beginning of an incomplete chunk.
    held: BytesMut,
    ready: VecDeque<Bytes>,
    ended: bool,
}

impl Wrapped {
    fn head(&mut self, payload: &[u8]) -> Bytes {
        let mut line = Vec::with_capacity(96);
        match &mut self.encoder {
            Some(encoder) => encoder.head(payload, &mut line),
            None => {
                line.extend_from_slice(format!("{:x};chunk-signature=", payload.len()).as_bytes());
                line.extend_from_slice(&BLANK);
                line.extend_from_slice(b"\r\n");
            }
        }
        Bytes::from(line)
    }

    fn queue(&mut self, payload: Bytes) {
        self.left -= payload.len() as u64;
        let head = self.head(&payload);
        self.ready.extend([head, payload, Bytes::from_static(b"\r\n")]);
    }

    /// Splits off complete chunks; without copying when a chunk lies in one piece.
    fn take(&mut self, mut piece: Bytes) {
        while !piece.is_empty() {
            let whole = CHUNK_BYTES.min(usize::try_from(self.left).unwrap_or(CHUNK_BYTES));
            if self.held.is_empty() && piece.len() >= whole {
                let chunk = piece.split_to(whole);
                self.queue(chunk);
                continue;
            }
            let more = (whole - self.held.len()).min(piece.len());
            self.held.extend_from_slice(&piece.split_to(more));
            if self.held.len() == whole {
                let chunk = self.held.split().freeze();
                self.queue(chunk);
            }
        }
    }
}

impl Chunks for Wrapped {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(ready)));
            }
            if self.ended {
                return Poll::Ready(Ok(None));
            }
            if self.left == 0 {
                self.ended = true;
                let head = self.head(b"");
                self.ready.extend([head, Bytes::from_static(b"\r\n")]);
                continue;
            }
            match std::mem::replace(&mut self.body, Payload::Empty) {
                Payload::Empty => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Payload::Whole(bytes) => self.take(bytes),
                Payload::Stream(mut chunks, left) => {
                    let polled = chunks.poll_chunk(context);
                    self.body = Payload::Stream(chunks, left);
                    match polled {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Ok(Some(piece))) if piece.len() as u64 <= self.left - self.held.len() as u64 => {
                            self.take(piece);
                        }
                        Poll::Ready(Ok(Some(_))) => {
                            return Poll::Ready(Err(io::Error::other("the source grew while it was sent")));
                        }
                        Poll::Ready(Ok(None)) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything a wrapped body sends.
    fn send(body: Payload) -> (Vec<u8>, u64) {
        let mut request = Request::new(body);
        announce(&mut request, PayloadForm::StreamingSigned);
        let announced: u64 = request.headers()[CONTENT_LENGTH].to_str().unwrap().parse().unwrap();
        wrap(&mut request, PayloadForm::StreamingSigned, None);
        let Payload::Stream(mut chunks, length) = request.into_body() else { panic!("not a stream") };
        assert_eq!(length, announced);
        let mut sent = Vec::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Ok(Some(piece))) = chunks.poll_chunk(&mut context) {
            sent.extend_from_slice(&piece);
        }
        (sent, length)
    }

    struct Pieces(Bytes, usize);

    impl Chunks for Pieces {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
            let count = self.1.min(self.0.len());
            Poll::Ready(Ok((count > 0).then(|| self.0.split_to(count))))
        }
    }

    #[test]
    fn the_length_is_as_announced_and_the_source_s_pieces_do_not_show() {
        for length in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 17] {
            let payload = Bytes::from(vec![b'x'; length]);
            let (whole, announced) = send(Payload::Whole(payload.clone()));
            assert_eq!(whole.len() as u64, announced, "{length} bytes");
            assert!(whole.ends_with(b"\r\n\r\n"));
            for piece in [1000, CHUNK_BYTES, 100_000] {
                let stream = Payload::Stream(Box::new(Pieces(payload.clone(), piece)), length as u64);
                assert_eq!(send(stream).0, whole, "{length} bytes in pieces of {piece}");
            }
        }
    }
}
