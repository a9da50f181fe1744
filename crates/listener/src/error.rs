//! Why a listener cannot start.
//!
//! Invariants: each message is one line that says what to do.

use std::io;

/// The address cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}; {remedy}")]
pub struct BindError {
    pub address: String,
    pub source: io::Error,
    pub remedy: String,
}

/// The certificate or its key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(pub String);
