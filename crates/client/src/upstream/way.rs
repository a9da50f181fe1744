//! How requests get to the store: over connections, or by what a caller brings.
//!
//! Why:        a model decides which of many requests the store sees next, and which of them is lost or comes twice. With
//!             sockets between them the kernel would decide that.
//! Not here:   the connections (`calls`), retries (`retry`).

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::calls::Calls;
use crate::client::{Answer, Ask};
use crate::error::ClientError;

/// The outcome of one attempt of a request.
pub type Carried = Pin<Box<dyn Future<Output = Result<Answer, ClientError>> + Send>>;

/// Carries requests in place of connections.
pub trait Carrier: Send + Sync + Debug {
    /// One attempt. An attempt without an answer is [`ClientError::Timeout`] if the store may have executed it.
    fn carry(&self, ask: &Ask) -> Carried;

    /// Waits before the next attempt.
    fn pause(&self, length: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

pub(super) enum Way {
    Connections(Calls),
    Carrier(Arc<dyn Carrier>),
}

impl Way {
    pub(super) async fn once(&self, ask: &Ask) -> Result<Answer, ClientError> {
        match self {
            Way::Connections(calls) => calls.once(ask).await,
            Way::Carrier(carrier) => carrier.carry(ask).await,
        }
    }

    /// Host and region; empty: nobody knows.
    pub(super) fn place(&self) -> (&str, &str) {
        match self {
            Way::Connections(calls) => (&calls.target().host, &calls.target().region),
            Way::Carrier(_) => ("", ""),
        }
    }

    pub(super) async fn pause(&self, length: Duration) {
        match self {
            Way::Connections(_) => tokio::time::sleep(length).await,
            Way::Carrier(carrier) => carrier.pause(length).await,
        }
    }
}

impl Debug for Way {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Way::Connections(calls) => out.write_str(&calls.target().url()),
            Way::Carrier(carrier) => carrier.fmt(out),
        }
    }
}
