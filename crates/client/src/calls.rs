//! Requests to one store, over a pool of keep-alive connections.
//!
//! Invariants: L1 a connection on which a request did not complete is not reused.
//! Not here:   retries (`retry`), the content of requests (`client`).

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;

use crate::client::{Answer, Ask, Client};
use crate::connection::Connection;
use crate::error::ClientError;
use crate::retry;
use crate::target::Target;

const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

pub(crate) struct Calls {
    target: Arc<Target>,
    token: Option<HeaderValue>,
    idle: Mutex<Vec<Client>>,
    /// Idle connections.
    idle_max: usize,
}

impl Calls {
    /// Sends no request yet. `token` belongs to temporary keys.
    pub(crate) fn new(target: Arc<Target>, token: Option<&str>, idle_max: usize) -> Result<Calls, ClientError> {
        let token = token.map(HeaderValue::from_str).transpose();
        let mut token = token.map_err(|_| ClientError::Usage("the session token is no header value".to_owned()))?;
        token.iter_mut().for_each(|token| token.set_sensitive(true));
        Ok(Calls { target, token, idle: Mutex::default(), idle_max })
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// One attempt of a request.
    pub(crate) async fn once(&self, ask: &Ask) -> Result<Answer, ClientError> {
        let idle = self.idle.lock().pop();
        let mut client = idle.unwrap_or_else(|| Client::new(Connection::new(Arc::clone(&self.target))));
        let mut ask = ask.clone();
        ask.headers.extend(self.token.clone().map(|token| (SESSION_TOKEN, token)));
        let limit = retry::time_of(&ask);
        let Ok(outcome) = tokio::time::timeout(limit, client.ask(&ask)).await else {
            return Err(timed_out(&ask, limit));
        };
        if matches!(outcome, Ok(_) | Err(ClientError::Refused(_))) {
            let mut idle = self.idle.lock();
            if idle.len() < self.idle_max {
                idle.push(client);
            }
        }
        outcome
    }
}

fn timed_out(ask: &Ask, limit: Duration) -> ClientError {
    let request = format!("{} /{}/{}", ask.method, ask.bucket, ask.key);
    ClientError::Timeout { request, seconds: limit.as_secs() }
}
