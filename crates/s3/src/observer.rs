//! What the door tells about each request, for metrics and access logs.
//!
//! Not here: the metrics themselves (the binary).

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;

use crate::access_subject::AccessSubject;

/// One answered request.
#[derive(Clone, Copy, Debug)]
pub struct RequestDone<'a> {
    /// The operation's name in the AWS model, or `Unknown` when the request was none.
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
    /// Of the whole object that was read or written, as far as the answer or the body tells it; else 0.
    pub object_bytes: u64,
    /// From the request's head to the answer's head.
    pub first_byte: Duration,
    /// From the request's head to the last byte of the answer, or to the moment when the client gave up.
    pub total: Duration,
    /// The client took the whole answer.
    pub complete: bool,
    /// What a line of the access log needs besides; only when the observer asked for it.
    pub subject: Option<&'a AccessSubject>,
}

/// Called once per request, on the task that served it; must not block.
pub trait Observer: Send + Sync + Debug {
    /// Whether [`RequestDone::subject`] is to be kept; asked once when a request comes.
    fn wants_subject(&self) -> bool {
        false
    }

    fn request_done(&self, done: &RequestDone<'_>);
}

/// Observes nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silent;

impl Observer for Silent {
    fn request_done(&self, _: &RequestDone<'_>) {}
}
