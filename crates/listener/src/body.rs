//! Request and response bodies with the listener's limits around them.
//!
//! Why:        a client that sends its body slowly holds memory and a connection, so it is refused after a fair time.
//! Invariants: B1 only time spent waiting for the client counts, never the server's own time.
//! Not here:   the largest body, the body's checksum (both: the door).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use crate::pulse::Running;
use crate::unread::{Backlog, LOOK_EVERY, Unread};

/// An error of a request body or a response body.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// The body of a response.
#[derive(Debug)]
pub struct ResponseBody {
    pub body: http_body_util::combinators::UnsyncBoxBody<Bytes, BodyError>,
    /// How many bytes of it are already in memory, if the whole body is.
    pub in_memory: Option<u64>,
}

impl ResponseBody {
    /// One that is made while it is sent: what the channel gives, until it is closed or gives an error.
    pub fn of_pieces(pieces: mpsc::Receiver<Result<Bytes, BodyError>>) -> ResponseBody {
        ResponseBody { body: Pieces(pieces).boxed_unsync(), in_memory: None }
    }
}

struct Pieces(mpsc::Receiver<Result<Bytes, BodyError>>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum PaceError {
    #[error("the client sent nothing for {0:?} in the middle of a body")]
    Stalled(Duration),
    #[error("the client sends its body slower than {0} bytes per second")]
    TooSlow(u64),
}

/// As an I/O error, so that the door recognizes a timeout (`RequestTimeout`) without knowing this type.
fn given_up(error: PaceError) -> BodyError {
    io::Error::new(io::ErrorKind::TimedOut, error).into()
}

/// A request body that fails when its client stalls or is slower than the minimum rate.
#[derive(Debug)]
pub struct RequestBody {
    inner: Incoming,
    stall_time_max: Duration,
    rate_min: u64,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    waited: Duration,
    received: u64,
}

impl RequestBody {
    pub fn new(inner: Incoming, stall_time_max: Duration, rate_min: u64) -> RequestBody {
        RequestBody { inner, stall_time_max, rate_min, waiting: None, waited: Duration::ZERO, received: 0 }
    }

    /// Whether the bytes received so far took longer than the minimum rate allows.
    fn too_slow(&self) -> bool {
        let granted = self.received.checked_div(self.rate_min).map_or(Duration::MAX, Duration::from_secs);
        self.waited > self.stall_time_max.saturating_add(granted)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(context) {
            Poll::Pending => {
                let limit = this.stall_time_max;
                let (_, sleep) =
                    this.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(limit))));
                match sleep.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(given_up(PaceError::Stalled(limit))))),
                    Poll::Pending => Poll::Pending,
                }
            }
            Poll::Ready(frame) => {
                if let Some((since, _)) = this.waiting.take() {
                    this.waited = this.waited.saturating_add(since.elapsed());
                }
                let Some(frame) = frame else { return Poll::Ready(None) };
                let frame = frame.map_err(BodyError::from);
                if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                    this.received += data.remaining() as u64;
                }
                if frame.is_ok() && this.too_slow() {
                    return Poll::Ready(Some(Err(given_up(PaceError::TooSlow(this.rate_min)))));
                }
                Poll::Ready(Some(frame))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A response body that counts its request as running, and its bytes as unread, until it is dropped.
#[derive(Debug)]
pub struct RunningBody {
    inner: ResponseBody,
    all: Arc<Unread>,
    backlog: Arc<Backlog>,
    number: u64,
    wait: Option<Pin<Box<Sleep>>>,
    _running: Running,
}

impl RunningBody {
    pub(crate) fn new(inner: ResponseBody, all: &Arc<Unread>, backlog: &Arc<Backlog>, running: Running) -> RunningBody {
        let number = backlog.begin(inner.in_memory.unwrap_or(0));
        let (all, backlog) = (Arc::clone(all), Arc::clone(backlog));
        RunningBody { inner, all, backlog, number, wait: None, _running: running }
    }

    /// Waits until the next piece may be read. A body that is wholly in memory never waits: reading it frees memory.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.inner.in_memory.is_some() {
            return Poll::Ready(());
        }
        if let Some(wait) = &mut self.wait {
            std::task::ready!(wait.as_mut().poll(context));
            self.wait = None;
        }
        while !self.all.has_room() {
            let mut wait = Box::pin(tokio::time::sleep(LOOK_EVERY));
            if wait.as_mut().poll(context).is_pending() {
                self.wait = Some(wait);
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }
}

impl Drop for RunningBody {
    fn drop(&mut self) {
        self.backlog.end(self.number);
    }
}

impl Body for RunningBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        std::task::ready!(this.poll_room(context));
        let frame = std::task::ready!(Pin::new(&mut this.inner.body).poll_frame(context));
        if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref) {
            this.backlog.hand(this.number, data.len() as u64);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.body.size_hint()
    }
}
