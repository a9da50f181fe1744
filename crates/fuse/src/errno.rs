//! Maps the volume's errors to error numbers: the only such table.
//!
//! Why:      each error has one number, wherever it occurs.
//! Not here: which operations fail (volume).

use margay_volume::Error;
use margay_volume::posix::PosixError;
use rustix::io::Errno;

/// The error number that a program sees.
pub fn errno(error: &PosixError) -> Errno {
    match error {
        PosixError::NotFound => Errno::NOENT,
        PosixError::Exists => Errno::EXIST,
        PosixError::NotDirectory => Errno::NOTDIR,
        PosixError::IsDirectory => Errno::ISDIR,
        PosixError::NotEmpty => Errno::NOTEMPTY,
        PosixError::NameTooLong => Errno::NAMETOOLONG,
        PosixError::TooManyLinks => Errno::MLINK,
        PosixError::Invalid => Errno::INVAL,
        PosixError::NotPermitted => Errno::PERM,
        PosixError::ReadOnlyMount => Errno::ROFS,
        PosixError::NoAttribute => Errno::NODATA,
        PosixError::TooLarge => Errno::TOOBIG,
        PosixError::FileTooLarge => Errno::FBIG,
        PosixError::NoSuchOffset => Errno::NXIO,
        PosixError::Stale => Errno::STALE,
        PosixError::Unsupported => Errno::OPNOTSUPP,
        PosixError::BadHandle => Errno::BADF,
        PosixError::NoLocks => Errno::NOLCK,
        PosixError::MountedElsewhere(_) => Errno::BUSY,
        PosixError::Failed(error) => failed(error),
    }
}

fn failed(error: &Error) -> Errno {
    let number = match error {
        Error::NoSuchBucket
        | Error::NoSuchKey
        | Error::NoSuchUpload
        | Error::NoSuchVersion
        | Error::Deleted(_)
        | Error::DeleteMarker { .. } => Errno::NOENT,
        Error::Locked => Errno::PERM,
        // The answer of rename(2) across file systems, on which `mv` copies instead.
        Error::KeepsVersions => Errno::XDEV,
        Error::BucketExists => Errno::EXIST,
        Error::BucketNotEmpty => Errno::NOTEMPTY,
        Error::KeyTooLong => Errno::NAMETOOLONG,
        Error::TooLarge => Errno::FBIG,
        // Encrypted with a customer's key (SSE-C), or with a key that the server no longer has.
        Error::KeyRequired | Error::WrongKey | Error::NoMasterKey => Errno::ACCESS,
        Error::Full => Errno::NOSPC,
        Error::QuotaExceeded => Errno::DQUOT,
        Error::ReadOnly(_) => Errno::ROFS,
        Error::Busy => Errno::BUSY,
        // As a network file system that gives up: the store did not answer, which is not lost data (EIO), nor a reason to
        // try at once (EAGAIN).
        Error::Unavailable(_) | Error::StoreUnavailable(_) | Error::OutcomeUnknown => Errno::TIMEDOUT,
        Error::Io(error) => error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error),
        Error::Corrupt(_)
        | Error::InvalidPart(_)
        | Error::InvalidPartOrder
        | Error::PartTooSmall(_)
        | Error::PreconditionFailed
        | Error::NotModified
        | Error::KeepsNoVersions
        | Error::NoObjectLock
        | Error::RetentionOver
        | Error::KeyNotApplicable
        | Error::NotShareable
        | Error::TooManyParts
        | Error::NoNamedKey
        | Error::WrongLength
        | Error::WrongOffset(_)
        | Error::Unread
        | Error::Fenced
        | Error::LeaseLost
        | Error::InvalidRange => Errno::IO,
    };
    if matches!(number, Errno::IO | Errno::TIMEDOUT) {
        tracing::error!(%error, "a request of the kernel failed");
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_name_have_their_own_numbers() {
        assert_eq!(errno(&PosixError::NotFound), Errno::NOENT);
        assert_eq!(errno(&Error::Full.into()), Errno::NOSPC);
        assert_eq!(errno(&Error::ReadOnly("fault".to_owned()).into()), Errno::ROFS);
        assert_eq!(errno(&Error::Unavailable("fail-over".to_owned()).into()), Errno::TIMEDOUT);
        assert_eq!(errno(&Error::StoreUnavailable("one of two".to_owned()).into()), Errno::TIMEDOUT);
        assert_eq!(errno(&Error::OutcomeUnknown.into()), Errno::TIMEDOUT);
        assert_eq!(errno(&Error::Corrupt("row".to_owned()).into()), Errno::IO);
        assert_eq!(errno(&Error::Io(std::io::Error::from_raw_os_error(5)).into()), Errno::IO);
    }
}
