//! What a checker found.

/// A broken promise, in words; whoever runs the seed adds how to replay it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    pub fn new(what: impl Into<String>) -> Failure {
        Failure(what.into())
    }
}

/// `Err` with a formatted [`Failure`].
#[macro_export]
macro_rules! fail {
    ($($what:tt)*) => { return Err($crate::Failure(format!($($what)*))) };
}
