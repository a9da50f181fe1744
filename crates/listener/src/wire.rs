//! A connection's bytes: plain TCP, TLS or a Unix socket, with counters and a stall timeout.
//!
//! Why:        the HTTP library has no timeout for a client that does not read its response.
//! Invariants: W1 bytes that were read ahead are returned first, and once.
//!             W2 a write that makes no progress for the stall time fails with `TimedOut`.
//! Not here:   limits on reading: heads (the HTTP library), bodies (`body`), idle time (`connection`).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;

use crate::Traffic;
use crate::pulse::Pulse;
use crate::unread::Backlog;

/// The transport.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Stream {
    /// Resolves when bytes, an end or an error wait in the kernel; holds no buffer meanwhile. It does not see bytes
    /// that the TLS library has already taken from the kernel: read until nothing comes before waiting here.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Tls(stream) => stream.get_ref().0.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    /// Whether TLS agreed on HTTP/2.
    pub(crate) fn negotiated_http2(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    fn reader(&mut self) -> &mut (dyn AsyncRead + Send + Unpin) {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.as_mut(),
            Stream::Unix(stream) => stream,
        }
    }

    fn writer(&mut self) -> &mut (dyn AsyncWrite + Send + Unpin) {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => stream.as_mut(),
            Stream::Unix(stream) => stream,
        }
    }
}

/// A stream with its read-ahead, its stall limit and its counters.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Stream,
    ahead: Bytes,
    pulse: Arc<Pulse>,
    traffic: Arc<Traffic>,
    stall_time_max: Duration,
    stall: Option<Pin<Box<Sleep>>>,
    backlog: Arc<Backlog>,
}

impl Wire {
    pub(crate) fn new(
        stream: Stream,
        pulse: Arc<Pulse>,
        traffic: Arc<Traffic>,
        stall_time_max: Duration,
        backlog: Arc<Backlog>,
    ) -> Wire {
        Wire { stream, ahead: Bytes::new(), pulse, traffic, stall_time_max, stall: None, backlog }
    }

    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Bytes that the next reads return before those of the stream; only while nothing is read ahead.
    pub(crate) fn give_back(&mut self, bytes: Bytes) {
        assert!(self.ahead.is_empty(), "bytes given back twice would change their order");
        self.ahead = bytes;
    }

    pub(crate) fn has_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    fn wrote(&mut self, context: &mut Context<'_>, poll: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &poll {
            Poll::Pending => {
                self.pulse.blocked(true);
                let stall = self.stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.stall_time_max)));
                if stall.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
            }
            Poll::Ready(result) => {
                if self.stall.take().is_some() {
                    self.pulse.blocked(false);
                }
                if let Ok(count) = result {
                    self.traffic.sent(*count as u64);
                    self.backlog.wrote(*count as u64);
                }
            }
        }
        poll
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..count]);
            self.ahead.advance(count);
            self.pulse.heard();
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let poll = Pin::new(self.stream.reader()).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        if count > 0 {
            self.pulse.heard();
            self.traffic.received(count as u64);
        }
        poll
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let poll = Pin::new(self.stream.writer()).poll_write(context, bytes);
        self.wrote(context, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(self.stream.writer()).poll_write_vectored(context, slices);
        self.wrote(context, poll)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Tcp(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
            Stream::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.writer()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.stream.writer()).poll_shutdown(context)
    }
}
