//! Maps errors of the layers below to errors of operations.
//!
//! Why: one table decides what a caller sees; operations only write `?`.
//! Not here: S3 codes and errno (the doors).

use margay_meta::{CommitError, EngineError};
use margay_rows::record::Damaged;
use margay_segment::SegmentError;

use crate::api::Error;
use crate::encryption::EncryptionError;

impl Error {
    /// Whether somebody who was needed gave no answer in time: the same call may succeed later. Of a change it says whether it was made,
    /// or that nobody knows.
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::StoreUnavailable(_) | Error::OutcomeUnknown)
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        match error {
            EngineError::Poisoned(why) => Error::ReadOnly(why),
            EngineError::Unavailable(why) => Error::Unavailable(why),
            EngineError::Io(error) => Error::Io(error),
            EngineError::Corrupt(what) => Error::Corrupt(what),
        }
    }
}

impl From<SegmentError> for Error {
    fn from(error: SegmentError) -> Error {
        match error {
            SegmentError::Full => Error::Full,
            SegmentError::Poisoned(why) => Error::ReadOnly(why),
            SegmentError::Io(error) => Error::Io(error),
            error @ (SegmentError::Unreachable(..) | SegmentError::TooFewCopies(..)) => {
                Error::StoreUnavailable(error.to_string())
            }
            error @ (SegmentError::Corrupt { .. } | SegmentError::Missing(_)) => Error::Corrupt(error.to_string()),
        }
    }
}

impl From<Damaged> for Error {
    fn from(damaged: Damaged) -> Error {
        Error::Corrupt(damaged.to_string())
    }
}

impl From<EncryptionError> for Error {
    fn from(error: EncryptionError) -> Error {
        match error {
            EncryptionError::KeyRequired => Error::KeyRequired,
            EncryptionError::WrongKey => Error::WrongKey,
            EncryptionError::NoMasterKey => Error::NoMasterKey,
            EncryptionError::NoNamedKey => Error::NoNamedKey,
            EncryptionError::Damaged(what) => Error::Corrupt(what.to_owned()),
            EncryptionError::InvalidRange => Error::InvalidRange,
        }
    }
}

/// Why one attempt of an operation did not commit.
#[derive(Debug)]
pub(crate) enum Refused {
    /// A row that the attempt read has changed: read again.
    Conflict,
    Error(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Refused {
        Refused::Error(error)
    }
}

impl From<EngineError> for Refused {
    fn from(error: EngineError) -> Refused {
        Refused::Error(error.into())
    }
}

impl From<SegmentError> for Refused {
    fn from(error: SegmentError) -> Refused {
        Refused::Error(error.into())
    }
}

impl From<Damaged> for Refused {
    fn from(damaged: Damaged) -> Refused {
        Refused::Error(damaged.into())
    }
}

impl From<CommitError> for Refused {
    fn from(error: CommitError) -> Refused {
        match error {
            CommitError::Conflict { .. } => Refused::Conflict,
            CommitError::Full => Refused::Error(Error::Full),
            CommitError::Unknown(_) => Refused::Error(Error::OutcomeUnknown),
            CommitError::Invalid(what) => Refused::Error(Error::Io(std::io::Error::other(what))),
            CommitError::Failed(error) => Refused::Error(error.into()),
        }
    }
}
