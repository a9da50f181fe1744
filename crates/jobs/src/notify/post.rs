//! One HTTP connection to a target, kept alive while it works.
//!
//! Invariants: P1 a message counts as delivered only when the target answered 2xx; all else is an error in one line.
//!             P2 connecting and answering are bounded in time, the response's body in size.
//! Not here:   which message is next, retries (`notify`).

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use margay_client::endpoint::Endpoint;

/// Timeout of a message, from its first byte to the end of the response, connecting included.
const POST_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest body of a response, in bytes; it is read so that the connection can be reused.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// A connection, opened on first use and again after every failure.
#[derive(Debug)]
pub(super) struct Lane {
    endpoint: Endpoint,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Lane {
    pub(super) fn new(endpoint: Endpoint) -> Lane {
        Lane { endpoint, open: None }
    }

    /// Delivers one message.
    pub(super) async fn post(&mut self, message: Vec<u8>) -> Result<(), String> {
        let exchanged = tokio::time::timeout(POST_TIME_MAX, self.exchange(message)).await;
        let outcome = exchanged.unwrap_or_else(|_| Err(format!("no answer within {} s", POST_TIME_MAX.as_secs())));
        if outcome.is_err() {
            self.open = None;
        }
        outcome.map_err(|error| format!("{:?}: {error}", self.endpoint))
    }

    async fn exchange(&mut self, message: Vec<u8>) -> Result<(), String> {
        // The target may have closed the idle connection: that is not a failure.
        if let Some(sender) = self.open.take().filter(SendRequest::is_ready)
            && let Ok(()) = self.send(sender, message.clone()).await
        {
            return Ok(());
        }
        let sender = self.endpoint.connect().await?;
        self.send(sender, message).await
    }

    async fn send(&mut self, mut sender: SendRequest<Full<Bytes>>, message: Vec<u8>) -> Result<(), String> {
        let request = self.endpoint.request(Method::POST, message)?;
        let answer = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        if !status.is_success() {
            return Err(format!("answered {status}"));
        }
        // The message is delivered whatever the body was; only the connection cannot be reused.
        self.open = body.is_ok().then_some(sender);
        Ok(())
    }
}
