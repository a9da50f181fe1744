//! Errors between a client and an S3 server.
//!
//! Not here: retries (`retry`), errors of benchmarks (crates/bench).

use std::io;

use http::StatusCode;

/// An unsuccessful response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The request, such as `PUT /bucket/key`.
    pub request: String,
    pub status: u16,
    /// The S3 error code, or the status's own phrase when the response had no body (HEAD).
    pub code: String,
    pub message: String,
    /// The bucket's region if the server named it; otherwise empty.
    pub region: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{0}")]
    Usage(String),
    #[error("cannot connect to {address}: {source}; is the server running? `margay serve` starts one")]
    Connect { address: String, source: io::Error },
    #[error("the connection to {address} broke: {source}")]
    Transport { address: String, source: hyper::Error },
    #[error("{}: the server answered {} {}: {}", .0.request, .0.status, .0.code, .0.message)]
    Refused(Box<Refusal>),
    #[error("{request}: an answer that makes no sense: {reason}")]
    Nonsense { request: String, reason: String },
    #[error("{request}: no answer within {seconds} s")]
    Timeout { request: String, seconds: u64 },
    #[error("{0}")]
    NoKeys(String),
    /// The place that gives the keys does not answer, or could not give any for now.
    #[error("{0}")]
    KeysLate(String),
    #[error("what was to be sent cannot be read: {0}")]
    Source(#[source] io::Error),
}

impl ClientError {
    /// A short label for counting errors, such as `503 SlowDown` or `connection broke`.
    pub fn kind(&self) -> String {
        match self {
            ClientError::Refused(refusal) => format!("{} {}", refusal.status, refusal.code),
            ClientError::Connect { .. } => "cannot connect".to_owned(),
            ClientError::Transport { .. } => "connection broke".to_owned(),
            ClientError::Timeout { seconds, .. } => format!("no answer within {seconds} s"),
            ClientError::Nonsense { reason, .. } => reason.clone(),
            ClientError::Usage(text) => text.clone(),
            ClientError::NoKeys(_) | ClientError::KeysLate(_) => "no keys".to_owned(),
            ClientError::Source(_) => "source unreadable".to_owned(),
        }
    }

    /// The status of an answer that is not a success.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Refused(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    pub fn code(&self) -> Option<&str> {
        match self {
            ClientError::Refused(refusal) => Some(&refusal.code),
            _ => None,
        }
    }

    /// Whether the server may have executed the request although it failed.
    pub fn may_be_done(&self) -> bool {
        match self {
            ClientError::Connect { .. } | ClientError::Usage(_) | ClientError::NoKeys(_) | ClientError::KeysLate(_) => {
                false
            }
            // A server that is busy says so before it begins.
            ClientError::Refused(refusal) => refusal.status >= 500 && refusal.status != 503,
            _ => true,
        }
    }

    /// Whether nobody has decided about the request: no answer, one that says that the server is busy or broken, or no keys
    /// to ask with for now.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, ClientError::KeysLate(_)) || self.is_passing()
    }

    /// Whether an attempt failed by something that passes.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ClientError::Connect { .. } | ClientError::Transport { .. } | ClientError::Timeout { .. } => true,
            ClientError::Refused(refusal) => {
                matches!(refusal.status, 408 | 429 | 500 | 502..=504) || refusal.code == "RequestTimeout"
            }
            ClientError::Usage(_)
            | ClientError::NoKeys(_)
            // Who gives keys is not asked more often for that.
            | ClientError::KeysLate(_)
            | ClientError::Nonsense { .. }
            | ClientError::Source(_) => false,
        }
    }

    /// Whether the server said that the requested object or bucket does not exist.
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }
}

/// For an answer without a document.
pub(crate) fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "there is no such thing",
        StatusCode::FORBIDDEN => "not allowed; check the keys",
        _ => "the answer says no more",
    }
}
