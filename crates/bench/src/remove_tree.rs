//! Removing what was made in a directory that may be slow to hear of it.
//!
//! Why:        mounts of buckets say for a while that a directory is not empty when all in it was removed (TigrisFS: its store
//!             hears of it later), or leave names out while others of the directory are removed (goofys): what is left goes
//!             the next time.
//! Invariants: only "not empty" is tried again, for a bounded time.

use std::io;
use std::path::Path;
use std::time::Duration;

use margay_env::Env;

use crate::error::BenchError;

/// For a directory to become empty after it was first said not to be, how many passes it gets at least, since one pass of a slow
/// mount can take longer than all of that time, and when it gets no more.
const REMOVE_TIME: Duration = Duration::from_secs(60);
const REMOVE_PASSES: u32 = 10;
const REMOVE_TIME_MAX: Duration = Duration::from_secs(240);
/// Between two passes.
const REMOVE_STEP: Duration = Duration::from_millis(100);

/// Passes over a tree until one removes it.
pub(crate) fn in_passes(env: &Env, mut pass: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let (mut first_failed, mut passes) = (None, 0);
    loop {
        let removed = pass();
        let now = env.clock.monotonic();
        let failing = now - *first_failed.get_or_insert(now);
        passes += 1;
        match removed {
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && (failing < REMOVE_TIME || passes < REMOVE_PASSES && failing < REMOVE_TIME_MAX) =>
            {
                std::thread::sleep(REMOVE_STEP);
            }
            removed => return removed,
        }
    }
}

/// The error that names what is left.
pub(crate) fn left(root: &Path) -> impl Fn(io::Error) -> BenchError {
    move |source| BenchError::File { path: format!("{}, which cannot be removed", root.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_empty_is_tried_again() {
        let mut answers = vec![Ok(()), Err(io::ErrorKind::DirectoryNotEmpty), Err(io::ErrorKind::DirectoryNotEmpty)];
        let mut pass = || answers.pop().unwrap_or(Ok(())).map_err(io::Error::from);
        in_passes(&Env::real(), &mut pass).unwrap();
        assert!(answers.is_empty());
        let mut passes = 0;
        let refused = in_passes(&Env::real(), || {
            passes += 1;
            Err(io::ErrorKind::PermissionDenied.into())
        });
        assert_eq!((refused.unwrap_err().kind(), passes), (io::ErrorKind::PermissionDenied, 1));
    }
}
