//! How a request ended: the operation, and what failed.

use super::mix::Operation;
use crate::error::BenchError;
use margay_client::ClientError;

/// The most letters of the words for a failure: a server chooses some of them.
const WHAT_CHARS_MAX: usize = 60;

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureKind {
    /// The server answered with a status and an S3 code.
    Refused,
    Timeout,
    /// It could not be made, or it broke.
    Connection,
    /// The answer was not what it must be.
    Wrong,
}

impl FailureKind {
    const ALL: [FailureKind; 4] =
        [FailureKind::Refused, FailureKind::Timeout, FailureKind::Connection, FailureKind::Wrong];

    pub(super) fn name(self) -> &'static str {
        match self {
            FailureKind::Refused => "refused",
            FailureKind::Timeout => "timeout",
            FailureKind::Connection => "connection",
            FailureKind::Wrong => "wrong",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Failure {
    pub(super) kind: FailureKind,
    /// Status and S3 code, or a few words: letters, digits, and single blanks between them.
    pub(super) what: String,
}

impl Failure {
    fn new(kind: FailureKind, what: &str) -> Failure {
        let words = what.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let what: String = words.collect::<Vec<_>>().join(" ").chars().take(WHAT_CHARS_MAX).collect();
        Failure { kind, what: what.trim_end().to_owned() }
    }

    pub(super) fn of(error: &BenchError) -> Failure {
        let kind = match error {
            BenchError::Client(ClientError::Refused(_)) => FailureKind::Refused,
            BenchError::Timeout { .. } => FailureKind::Timeout,
            BenchError::Client(ClientError::Connect { .. }) | BenchError::Client(ClientError::Transport { .. }) => {
                FailureKind::Connection
            }
            _ => FailureKind::Wrong,
        };
        Failure::new(kind, &error.kind())
    }
}

/// Requests of one operation that ended alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Series {
    pub(super) operation: Operation,
    /// None for what succeeded.
    pub(super) failure: Option<Failure>,
}

impl Series {
    /// As a tag of a log: `get`, or `get:refused:503-SlowDown`.
    pub(super) fn tag(&self) -> String {
        let name = self.operation.name();
        match &self.failure {
            None => name.to_owned(),
            Some(failure) => format!("{name}:{}:{}", failure.kind.name(), failure.what.replace(' ', "-")),
        }
    }

    /// Reads a tag; None when it is none of ours.
    pub(super) fn from_tag(tag: &str) -> Option<Series> {
        let mut parts = tag.splitn(3, ':');
        let operation = Operation::named(parts.next()?)?;
        let Some(kind) = parts.next() else { return Some(Series { operation, failure: None }) };
        let kind = FailureKind::ALL.into_iter().find(|known| known.name() == kind)?;
        Some(Series { operation, failure: Some(Failure::new(kind, parts.next()?)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refusal;

    #[test]
    fn errors_have_their_kinds_and_tags() {
        let refusal = |code: &str| {
            let (request, message) = ("GET /b/k".to_owned(), String::new());
            BenchError::Client(ClientError::Refused(Box::new(Refusal {
                request,
                status: 503,
                code: code.to_owned(),
                message,
                region: String::new(),
            })))
        };
        let timeout = BenchError::Timeout { request: "get".to_owned(), seconds: 5 };
        let connect = BenchError::Client(ClientError::Connect {
            address: "a:1".to_owned(),
            source: std::io::ErrorKind::NotConnected.into(),
        });
        let wrong = BenchError::Nonsense { request: "get".to_owned(), reason: "wrong content".to_owned() };
        for (error, tag) in [
            (refusal("SlowDown"), "get:refused:503-SlowDown"),
            (refusal("Slow, \nDown: \u{1f431}"), "get:refused:503-Slow-Down"),
            (timeout, "get:timeout:no-answer-within-5-s"),
            (connect, "get:connection:cannot-connect"),
            (wrong, "get:wrong:wrong-content"),
        ] {
            let series = Series { operation: Operation::Get, failure: Some(Failure::of(&error)) };
            assert_eq!(series.tag(), tag);
            assert_eq!(Series::from_tag(tag), Some(series));
        }
        let long = Failure::of(&refusal(&"long ".repeat(100)));
        assert!(long.what.len() <= WHAT_CHARS_MAX, "{long:?}");
        assert_eq!(Series::from_tag("put"), Some(Series { operation: Operation::Put, failure: None }));
        for wrong in ["", "fly", "get:", "get:odd:x", "get:timeout"] {
            assert_eq!(Series::from_tag(wrong), None, "{wrong}");
        }
    }
}
