//! The record of each request, for metrics and access logs.
//!
//! Not here: the metrics themselves (margay-metrics).

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, StatusCode};

use crate::access_subject::AccessSubject;

/// Where a request stands in a distributed trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanPlace {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    /// The client's span, if it named one.
    pub parent_id: Option<[u8; 8]>,
    /// `tracestate` of the client; empty if it sent none.
    pub state: String,
}

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub struct RequestDone<'a> {
    /// The operation's name in the AWS model, or `Unknown`.
    pub operation: &'static str,
    pub status: StatusCode,
    /// The S3 error code, when it failed.
    pub code: Option<&'static str>,
    pub request_id: &'a str,
    pub peer: SocketAddr,
    /// Bytes of the body received, as on the wire.
    pub bytes_in: u64,
    /// Bytes of the body sent.
    pub bytes_out: u64,
    /// Size of the whole object that was read or written, if the response or the body tells it; otherwise 0.
    pub object_bytes: u64,
    /// From the request's head to the response's head.
    pub first_byte: Duration,
    /// From the request's head to the last byte of the response, or until the client gave up.
    pub total: Duration,
    /// The client received the whole response.
    pub complete: bool,
    /// Further fields of an access log line; only if the observer asked for them.
    pub subject: Option<&'a AccessSubject>,
    /// If [`Observer::span`] gave the request one; then `subject` is there, too.
    pub span: Option<&'a SpanPlace>,
}

/// Called once per request, on the task that served it; must not block.
pub trait Observer: Send + Sync + Debug {
    /// Whether [`RequestDone::subject`] is needed; called when a request arrives.
    fn wants_subject(&self) -> bool {
        false
    }

    /// Where the span of a request with these headers stands; none if it gets none. Called when a request arrives.
    fn span(&self, _headers: &HeaderMap) -> Option<SpanPlace> {
        None
    }

    fn request_done(&self, done: &RequestDone<'_>);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silent;

impl Observer for Silent {
    fn request_done(&self, _: &RequestDone<'_>) {}
}
