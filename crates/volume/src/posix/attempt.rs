//! Runs an operation of the mount: read, decide, commit, and retry on a conflict.
//!
//! Why:        as `Volume::retry`, but the first attempt may use cached directories, and an answer waits for durability
//!             only if the mount requires it.
//! Invariants: A1 a refusal, or that there is nothing to do, is valid if the rows it depends on are unchanged. Cached
//!                data is only trusted in a commit that asserts it, so a refusal that depends on it needs an attempt
//!                without the cache.
//!             A2 with `MountOptions::sync` the commit is durable when the operation returns.
//! Locking:    none of its own.
//! Not here:   the operations.

use margay_meta::{Committed, Cursor, EngineError};
use margay_rows::record::Damaged;

use crate::api::Error;
use crate::draft::{Draft, Seen};
use crate::driver::{self, TRIES_MAX};
use crate::error::Refused;
use crate::posix::api::PosixError;
use crate::posix::mount::Mount;

/// Why an attempt did not commit.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// A row that the attempt read has changed: read again.
    Conflict,
    Refused(PosixError),
}

impl From<PosixError> for Attempt {
    fn from(error: PosixError) -> Attempt {
        Attempt::Refused(error)
    }
}

impl From<Error> for Attempt {
    fn from(error: Error) -> Attempt {
        Attempt::Refused(error.into())
    }
}

impl From<EngineError> for Attempt {
    fn from(error: EngineError) -> Attempt {
        Error::from(error).into()
    }
}

impl From<Damaged> for Attempt {
    fn from(damaged: Damaged) -> Attempt {
        Error::from(damaged).into()
    }
}

impl From<Refused> for Attempt {
    fn from(refused: Refused) -> Attempt {
        match refused {
            Refused::Conflict => Attempt::Conflict,
            Refused::Error(error) => error.into(),
        }
    }
}

/// One attempt of an operation: what it has read, and whether it may use cached data.
#[derive(Debug, Default)]
pub(crate) struct Try {
    pub(crate) seen: Seen,
    pub(crate) fresh: bool,
    /// The names were resolved from cached rows.
    pub(crate) kept: bool,
}

impl Mount {
    /// Runs a change until it commits or is refused definitively. `attempt` returns no commit if there was nothing to
    /// change.
    pub(crate) fn change<T>(
        &self,
        mut attempt: impl FnMut(&mut Try) -> Result<(T, Option<Committed>), Attempt>,
    ) -> Result<T, PosixError> {
        if self.options.read_only {
            return Err(PosixError::ReadOnlyMount);
        }
        for tries in 1..=TRIES_MAX {
            let before = self.volume.engine.last_cursor();
            let mut one = Try { fresh: tries > 1, ..Try::default() };
            if one.fresh {
                self.volume.bucket_facts.forget(self.bucket_root);
            }
            match attempt(&mut one) {
                // A1: only a commit asserts cached rows.
                Ok((_, None)) | Err(Attempt::Refused(_)) if one.kept => {}
                // Nothing to change: valid only if rows read at several moments were all current at one.
                Ok((_, None)) if !self.holds(before, &one.seen)? => self.volume.wait_a_little(tries),
                Ok((value, done)) => {
                    if let Some(done) = done.filter(|_| self.options.sync) {
                        self.volume.engine.wait_durable(done.cursor).map_err(Error::from)?;
                    }
                    return Ok(value);
                }
                Err(Attempt::Refused(error)) if is_fault(&error) || self.holds(before, &one.seen)? => {
                    return Err(error);
                }
                Err(_) => self.volume.wait_a_little(tries),
            }
        }
        Err(Error::Busy.into())
    }

    /// Runs reads, none of which uses unrecorded cached data; a refusal is valid if they were of one moment.
    pub(crate) fn consistent<T>(
        &self,
        mut read: impl FnMut(&mut Seen) -> Result<T, PosixError>,
    ) -> Result<T, PosixError> {
        for tries in 1..=TRIES_MAX {
            let before = self.volume.engine.last_cursor();
            let mut seen = Seen::default();
            match read(&mut seen) {
                Ok(value) => return Ok(value),
                Err(error) if is_fault(&error) || seen.is_of_one_moment() => return Err(error),
                Err(error) if self.holds(before, &seen)? => return Err(error),
                Err(_) => self.volume.wait_a_little(tries),
            }
        }
        Err(Error::Busy.into())
    }

    /// Whether everything read since `before` was the newest commit is unchanged.
    fn holds(&self, before: Cursor, seen: &Seen) -> Result<bool, PosixError> {
        Ok(self.volume.engine.unchanged_since(before) || self.volume.still(seen)?)
    }

    /// Commits a change that the kernel already knows of.
    pub(crate) fn commit(&self, draft: Draft) -> Result<Committed, Attempt> {
        Ok(self.volume.commit_from_mount(&self.lease, draft)?)
    }
}

/// Whether an error does not depend on rows, so that reading them again is useless. Damaged rows are read again: a name
/// and its inode record are two rows.
fn is_fault(error: &PosixError) -> bool {
    matches!(error, PosixError::Failed(error) if driver::is_fault(error) || matches!(error, Error::Busy))
}
