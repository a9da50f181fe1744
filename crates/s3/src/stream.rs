//! The body of a response: empty, a few buffers, an object read piece by piece, or data produced on demand.
//!
//! Why:        an object of any size is sent with two pieces in memory per connection.
//! Invariants: B1 while a piece is sent, at most the next one is read.
//!             B2 a failed read ends the connection, so a client never takes a truncated object for a whole one (its
//!                length was announced).

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use margay_volume::{Error, Reader};

/// Maximum bytes of an object per read; a download holds two such pieces.
pub(crate) const PIECE_BYTES_MAX: u64 = 256 << 10;

/// Called once when the body has ended or was cancelled.
pub(crate) type Ended = Box<dyn FnOnce(u64, bool) + Send + Sync>;

/// The body of every answer of the door.
pub struct S3Body {
    source: Source,
    sent: u64,
    ended: Option<Ended>,
}

enum Source {
    Buffers(VecDeque<Bytes>),
    Object(ObjectPieces),
    /// `None`: everything was produced.
    Produced(Option<Producing>),
}

/// A future for the next bytes of a body of unknown length, and the producer of the rest.
pub(crate) type Producing = Pin<Box<dyn Future<Output = Option<(Bytes, Box<dyn Producer>)>> + Send>>;

/// Produces a body; called again only after its output was taken.
pub(crate) trait Producer: Send {
    fn next(self: Box<Self>) -> Producing;
}

type Reading = Pin<Box<dyn Future<Output = Result<Bytes, Error>> + Send>>;

/// The rest of an object's range.
pub(crate) struct ObjectPieces {
    reader: Arc<Reader>,
    rest: Range<u64>,
    ready: Option<Result<Bytes, Error>>,
    reading: Option<Reading>,
}

impl ObjectPieces {
    /// Reads the first piece, so that a damaged object gives an error response and not a truncated body.
    pub(crate) async fn open(reader: Reader, range: Range<u64>) -> Result<ObjectPieces, Error> {
        let reader = Arc::new(reader);
        let mut pieces = ObjectPieces { reader, rest: range, ready: None, reading: None };
        if !pieces.rest.is_empty() {
            let first = pieces.read_next().await?;
            pieces.ready = Some(Ok(pieces.took(first)?));
        }
        Ok(pieces)
    }

    fn read_next(&self) -> Reading {
        let reader = Arc::clone(&self.reader);
        let (offset, len) = (self.rest.start, (self.rest.end - self.rest.start).min(PIECE_BYTES_MAX));
        Box::pin(async move { reader.read(offset, len).await })
    }

    fn took(&mut self, piece: Bytes) -> Result<Bytes, Error> {
        let len = piece.len() as u64;
        if len == 0 || len > self.rest.end - self.rest.start {
            return Err(Error::Corrupt("an object is shorter than its entry says".to_owned()));
        }
        self.rest.start += len;
        Ok(piece)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
        let piece = match self.ready.take() {
            Some(piece) => piece?,
            None if self.rest.is_empty() => return Poll::Ready(None),
            None => std::task::ready!(self.poll_read(context))?,
        };
        if !self.rest.is_empty()
            && let Poll::Ready(next) = self.poll_read(context)
        {
            self.ready = Some(next);
        }
        Poll::Ready(Some(Ok(piece)))
    }

    /// Reads the next piece and starts the one after it.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        let mut reading = self.reading.take().unwrap_or_else(|| self.read_next());
        match reading.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome.and_then(|piece| self.took(piece))),
            Poll::Pending => {
                self.reading = Some(reading);
                Poll::Pending
            }
        }
    }

    fn remaining(&self) -> u64 {
        let ready = self.ready.as_ref().and_then(|piece| piece.as_ref().ok()).map_or(0, Bytes::len);
        ready as u64 + self.rest.end.saturating_sub(self.rest.start)
    }
}

impl S3Body {
    pub(crate) fn empty() -> S3Body {
        S3Body::buffers(VecDeque::new())
    }

    pub(crate) fn full(bytes: Bytes) -> S3Body {
        S3Body::buffers(VecDeque::from([bytes]))
    }

    pub(crate) fn buffers(mut buffers: VecDeque<Bytes>) -> S3Body {
        buffers.retain(|buffer| !buffer.is_empty());
        S3Body { source: Source::Buffers(buffers), sent: 0, ended: None }
    }

    pub(crate) fn object(pieces: ObjectPieces) -> S3Body {
        S3Body { source: Source::Object(pieces), sent: 0, ended: None }
    }

    /// These bytes, followed by those of a producer.
    pub(crate) fn produced(first: Bytes, rest: Box<dyn Producer>) -> S3Body {
        let first = Box::pin(std::future::ready(Some((first, rest))));
        S3Body { source: Source::Produced(Some(first)), sent: 0, ended: None }
    }

    /// Sets the callback for the end of the body.
    pub(crate) fn on_end(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// Bytes of a response that is wholly in memory.
    pub fn bytes_in_memory(&self) -> Option<u64> {
        if let Source::Buffers(_) = &self.source { self.remaining() } else { None }
    }

    /// Bytes not yet sent, if known.
    fn remaining(&self) -> Option<u64> {
        match &self.source {
            Source::Buffers(buffers) => Some(buffers.iter().map(|buffer| buffer.len() as u64).sum()),
            Source::Object(pieces) => Some(pieces.remaining()),
            Source::Produced(None) => Some(0),
            Source::Produced(Some(_)) => None,
        }
    }
}

impl std::fmt::Debug for S3Body {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("S3Body").field("sent", &self.sent).field("remaining", &self.remaining()).finish()
    }
}

impl Body for S3Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let this = self.get_mut();
        let next = match &mut this.source {
            Source::Buffers(buffers) => Poll::Ready(buffers.pop_front().map(Ok)),
            Source::Object(pieces) => pieces.poll(context),
            Source::Produced(slot) => poll_produced(slot, context),
        };
        let next = std::task::ready!(next);
        match &next {
            Some(Ok(piece)) => this.sent += piece.len() as u64,
            Some(Err(error)) => tracing::error!(%error, "an answer was cut off"),
            None => {}
        }
        Poll::Ready(next.map(|outcome| outcome.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.remaining().map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn poll_produced(slot: &mut Option<Producing>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Error>>> {
    let Some(producing) = slot else { return Poll::Ready(None) };
    let made = std::task::ready!(producing.as_mut().poll(context));
    let (bytes, rest) = made.unzip();
    *slot = rest.map(Producer::next);
    Poll::Ready(bytes.map(Ok))
}

impl Drop for S3Body {
    fn drop(&mut self) {
        if let Some(ended) = self.ended.take() {
            ended(self.sent, self.remaining() == Some(0));
        }
    }
}
