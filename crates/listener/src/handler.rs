//! The handler of a listener's requests, and the state that its connections share.
//!
//! Not here:   accepting (listener), one connection (connection).

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};

use crate::body::{RequestBody, ResponseBody};
use crate::idle::Idle;
use crate::unread::Unread;
use crate::{ConnectionLimits, Traffic};

pub type AnswerFuture = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

/// Answers requests; never fails, never panics.
pub trait Handler: Send + Sync + 'static {
    /// `peer` is `None` on a Unix socket.
    fn handle(&self, request: Request<RequestBody>, peer: Option<SocketAddr>) -> AnswerFuture;
}

/// State that all connections of a listener share.
pub(crate) struct Shared {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) limits: ConnectionLimits,
    pub(crate) unread: Arc<Unread>,
    pub(crate) idle: Idle,
}
