//! What can go wrong in a client or a benchmark, told to the person who started it.
//!
//! Why:      one narrow list, so that the binary has one place for messages and exit codes.
//! Not here: errors counted while a load runs (`load::stats` counts them by kind and goes on).

use std::io;
use std::path::Path;

use margay_client::ClientError;
pub use margay_client::Refusal;

#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("{0}")]
    Usage(String),
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{request}: an answer that makes no sense: {reason}")]
    Nonsense { request: String, reason: String },
    #[error("{request}: no answer within {seconds} s")]
    Timeout { request: String, seconds: u64 },
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    /// A rival, or the server of `bench all`, does not start or ended.
    #[error("{0}")]
    Rival(String),
    #[error("stopped before the end")]
    Interrupted,
    /// Who read the output had enough, as `head` has.
    #[error("the output is not read any more")]
    ReaderGone,
    #[error("missed: {0}")]
    Missed(String),
}

impl BenchError {
    /// An error of the file or directory at `path`.
    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> BenchError + '_ {
        move |source| BenchError::File { path: path.display().to_string(), source }
    }

    /// The exit code for scripts: 0 nobody reads the output any more, 2 wrong usage, 3 no connection, 4 a goal of `--check` missed, 130 Ctrl-C, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            BenchError::Usage(_) | BenchError::Client(ClientError::Usage(_)) => 2,
            BenchError::Client(ClientError::Connect { .. }) => 3,
            BenchError::Missed(_) => 4,
            BenchError::Interrupted => 130,
            BenchError::ReaderGone => 0,
            _ => 1,
        }
    }

    /// A short label to count this error by, such as `503 SlowDown` or `connection broke`.
    pub fn kind(&self) -> String {
        match self {
            BenchError::Client(error) => error.kind(),
            BenchError::Timeout { seconds, .. } => format!("no answer within {seconds} s"),
            BenchError::Nonsense { reason, .. } => reason.clone(),
            other => other.to_string(),
        }
    }

    /// Whether the server said that the thing asked for is not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, BenchError::Client(error) if error.is_not_found())
    }
}
