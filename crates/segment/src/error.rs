//! Errors of reading or writing stored data.
//!
//! Not here:   what an error means for a client (volume, the doors).

use std::io;

use crate::format::FormatError;
use crate::{SegmentId, StoreNumber};

#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    #[error("no space left for data")]
    Full,
    #[error("segment {segment:?} is damaged at byte {offset}: {what}")]
    Corrupt { segment: SegmentId, offset: u64, what: &'static str },
    #[error("segment {0:?} does not exist")]
    Missing(SegmentId),
    /// It may exist: its store does not answer.
    #[error("segment {0:?} is in store {number}, which cannot be reached", number = .1.0)]
    Unreachable(SegmentId, StoreNumber),
    /// Too few stores have the bytes: what was written is not acknowledged.
    #[error("segment {0:?} has too few copies: {1}")]
    TooFewCopies(SegmentId, String),
    /// A sync failed earlier; data can be read but not written until a restart.
    #[error("data is read-only after a storage fault: {0}")]
    Poisoned(String),
    #[error("segment storage: {0}")]
    Io(#[source] io::Error),
}

impl From<io::Error> for SegmentError {
    /// A full disk is `Full`, whichever call detects it.
    fn from(error: io::Error) -> SegmentError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SegmentError::Full,
            _ => SegmentError::Io(error),
        }
    }
}

pub(crate) fn newer(id: SegmentId, error: FormatError) -> SegmentError {
    SegmentError::Io(io::Error::new(io::ErrorKind::Unsupported, format!("segment {id:?}: {error}")))
}

pub(crate) fn invalid(what: impl Into<String>) -> SegmentError {
    SegmentError::Io(io::Error::new(io::ErrorKind::InvalidInput, what.into()))
}
