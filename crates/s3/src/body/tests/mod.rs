//! Tests of bodies: framing, its limits and lies, and digests.

mod digests;
mod framing;
mod hostile;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use http_body::{Body, Frame};
use margay_env::Timestamp;

use super::*;
use crate::auth::sign::{Signer, Target, announce_chunks};
use crate::auth::{ChunkChain, PayloadForm, Secret};

/// A body that is there at once, in these pieces.
#[derive(Debug)]
pub(super) struct Pieces(pub VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// The outcome of a future that never has to wait.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// Cuts bytes into pieces of these sizes, the last one repeated.
pub(super) fn cut(bytes: &[u8], sizes: &[usize]) -> Pieces {
    let mut rest = Bytes::copy_from_slice(bytes);
    let mut pieces = VecDeque::new();
    let mut sizes = sizes.iter();
    let mut size = 1;
    while !rest.is_empty() {
        size = sizes.next().copied().unwrap_or(size).max(1);
        pieces.push_back(rest.split_to(size.min(rest.len())));
    }
    Pieces(pieces)
}

/// A chain of chunk signatures and the headers that go with it.
pub(super) fn begin(form: PayloadForm, payload_bytes: u64) -> (HeaderMap, Option<ChunkChain>) {
    let mut headers = HeaderMap::new();
    headers.insert("host", HeaderValue::from_static("h"));
    if form.is_chunked() {
        announce_chunks(&mut headers, payload_bytes, None);
    } else {
        headers.insert("content-length", HeaderValue::from(payload_bytes));
    }
    let signer = Signer::new("a", Secret::new("s"), "r");
    let target = Target { method: &Method::PUT, path: "/b/k", query: "" };
    let chain = signer.sign(target, &mut headers, form, Timestamp(0)).unwrap();
    (headers, chain)
}

/// Wraps a payload in chunks of these sizes, the last one repeated.
pub(super) fn encode(
    form: PayloadForm,
    chain: Option<ChunkChain>,
    payload: &[u8],
    sizes: &[usize],
    trailers: &[(&str, &str)],
) -> Vec<u8> {
    let mut encoder = ChunkEncoder::new(form, chain);
    let mut out = Vec::new();
    for chunk in cut(payload, sizes).0 {
        encoder.chunk(&chunk, &mut out);
    }
    encoder.finish(trailers, &mut out);
    out
}

/// All payload and the trailers, or the first error and the payload before it.
pub(super) type Outcome = Result<(Vec<u8>, Trailers), (BodyError, Vec<u8>)>;

pub(super) fn decode(body: Pieces, headers: &HeaderMap, form: PayloadForm, chain: Option<ChunkChain>) -> Outcome {
    decode_with(body, headers, form, chain, DecoderOptions::default())
}

pub(super) fn decode_with(
    body: Pieces,
    headers: &HeaderMap,
    form: PayloadForm,
    chain: Option<ChunkChain>,
    options: DecoderOptions,
) -> Outcome {
    let mut decoder = Decoder::new(body, headers, &form, chain, options).map_err(|error| (error, Vec::new()))?;
    let mut payload = Vec::new();
    loop {
        match now(decoder.next()) {
            Ok(Some(piece)) => {
                assert!(!piece.is_empty());
                payload.extend_from_slice(&piece);
            }
            Ok(None) => break,
            Err(error) => {
                assert!(now(decoder.next()).is_err(), "a failed body stays failed");
                assert!(decoder.finish().is_err());
                return Err((error, payload));
            }
        }
    }
    assert!(now(decoder.next()).unwrap().is_none());
    decoder.finish().map(|trailers| (payload.clone(), trailers)).map_err(|error| (error, payload))
}

pub(super) const CHUNKED: [PayloadForm; 3] =
    [PayloadForm::StreamingSigned, PayloadForm::StreamingSignedTrailer, PayloadForm::StreamingUnsignedTrailer];
