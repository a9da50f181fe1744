//! The body of a request: empty, in memory, or a stream of known length.
//!
//! Why:        one body type for all requests keeps one connection type, and small bodies cost no allocation.
//! Invariants: P1 a stream's length is known before it starts and is sent as Content-Length.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Produces the next piece of a body; `Ok(None)` is the end.
pub trait Chunks: Send {
    fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;
}

pub enum Payload {
    Empty,
    Whole(Bytes),
    /// A stream, and the number of bytes it has left.
    Stream(Box<dyn Chunks>, u64),
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Payload of {} bytes", self.len())
    }
}

impl Payload {
    /// Bytes still to be sent.
    pub fn len(&self) -> u64 {
        match self {
            Payload::Empty => 0,
            Payload::Whole(bytes) => bytes.len() as u64,
            Payload::Stream(_, left) => *left,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match std::mem::replace(&mut *self, Payload::Empty) {
            Payload::Empty => Poll::Ready(None),
            Payload::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Payload::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Payload::Stream(_, 0) => Poll::Ready(None),
            Payload::Stream(mut chunks, left) => match chunks.poll_chunk(context) {
                Poll::Pending => {
                    *self = Payload::Stream(chunks, left);
                    Poll::Pending
                }
                Poll::Ready(Ok(Some(chunk))) if chunk.len() as u64 <= left => {
                    *self = Payload::Stream(chunks, left - chunk.len() as u64);
                    Poll::Ready(Some(Ok(Frame::data(chunk))))
                }
                Poll::Ready(Ok(Some(_))) => {
                    Poll::Ready(Some(Err(io::Error::other("the source grew while it was sent"))))
                }
                Poll::Ready(Ok(None)) => Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into()))),
                Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}
