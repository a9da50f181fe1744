//! Requests to one store, over a pool of keep-alive connections.
//!
//! Invariants: L1 a connection on which a request did not complete is not reused.
//!             L2 keys that the store does not take any more are renewed once, and the request is sent again.
//! Not here:   retries (`retry`), the content of requests (`client`).

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;

use crate::client::{Answer, Ask, Client};
use crate::connection::Connection;
use crate::error::{ClientError, Refusal};
use crate::retry;
use crate::target::Target;

pub(crate) struct Calls {
    target: Arc<Target>,
    idle: Mutex<Vec<Client>>,
    /// Idle connections.
    idle_max: usize,
}

impl Calls {
    /// Sends no request yet.
    pub(crate) fn new(target: Arc<Target>, idle_max: usize) -> Calls {
        Calls { target, idle: Mutex::default(), idle_max }
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// One attempt of a request.
    pub(crate) async fn once(&self, ask: &Ask) -> Result<Answer, ClientError> {
        let idle = self.idle.lock().pop();
        let mut client = idle.unwrap_or_else(|| Client::new(Connection::new(Arc::clone(&self.target))));
        let mut outcome = within_time(&mut client, ask).await;
        if let Err(ClientError::Refused(refusal)) = &outcome
            && is_about_keys(refusal, ask)
            && let Some(keys) = client.keys().map(Arc::clone)
            && self.target.credentials.renew(&keys).await
        {
            outcome = within_time(&mut client, ask).await;
        }
        if matches!(outcome, Ok(_) | Err(ClientError::Refused(_))) {
            let mut idle = self.idle.lock();
            if idle.len() < self.idle_max {
                idle.push(client);
            }
        }
        outcome
    }
}

async fn within_time(client: &mut Client, ask: &Ask) -> Result<Answer, ClientError> {
    let limit = retry::time_of(ask);
    tokio::time::timeout(limit, client.ask(ask)).await.unwrap_or_else(|_| Err(late(ask, limit)))
}

/// There was no answer to it in this time.
pub(crate) fn late(ask: &Ask, time: Duration) -> ClientError {
    let request = format!("{} /{}/{}", ask.method, ask.bucket, ask.key);
    ClientError::Timeout { request, seconds: time.as_secs() }
}

/// Whether other keys may help. The answer to a HEAD has no document, so its code says nothing.
fn is_about_keys(refusal: &Refusal, ask: &Ask) -> bool {
    const CODES: [&str; 5] =
        ["ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"];
    CODES.contains(&refusal.code.as_str()) || (ask.method == Method::HEAD && matches!(refusal.status, 400 | 403))
}
