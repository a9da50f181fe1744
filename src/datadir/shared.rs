//! The directory of a server whose rows are in PostgreSQL: keys and segments, and no tree.
//!
//! Invariants: S1 the directory of a volume of its own is never opened as one of these, nor the other way round: either would take
//!                all segments for dead.
//! Not here:   where the rows are (settings), which store of the volume it is (margay-volume).

use std::path::Path;

use margay_disks::DiskWish;
use margay_env::Env;

use super::{
    CACHE_FORMAT_VERSION, DataDir, DataDirError, FORMAT_VERSION, MOVING_FORMAT_VERSION, SHARED_FORMAT_VERSION,
    check_format, check_owner, open_or_mark,
};

impl DataDir {
    /// Locks an existing one.
    pub fn open_shared(env: &Env, path: &Path) -> Result<DataDir, DataDirError> {
        let fail = |error| DataDirError::Io { path: path.to_owned(), error };
        if !env.disk.exists(&path.join("format")).map_err(fail)? {
            return Err(DataDirError::Absent(path.to_owned()));
        }
        DataDir::open_or_create_shared(env, path)
    }

    /// Creates the directory if it is absent or empty, and locks it.
    pub fn open_or_create_shared(env: &Env, path: &Path) -> Result<DataDir, DataDirError> {
        open_or_mark(env, path, SHARED_FORMAT_VERSION, &DiskWish::default(), |env, path| {
            match check_format(env, path)? {
                Some(FORMAT_VERSION) => Err(DataDirError::NotShared(path.to_owned())),
                Some(CACHE_FORMAT_VERSION | MOVING_FORMAT_VERSION) => check_owner(env, path),
                _ => Ok(()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_kind_of_directory_is_taken_for_the_other() {
        let (env, folder) = (Env::real(), tempfile::tempdir().unwrap());
        let (own, shared) = (folder.path().join("own"), folder.path().join("shared"));
        drop(DataDir::open_or_create(&env, &own).unwrap());
        drop(DataDir::open_or_create_shared(&env, &shared).unwrap());
        drop(DataDir::open_or_create_shared(&env, &shared).unwrap());
        assert!(matches!(DataDir::open_or_create_shared(&env, &own), Err(DataDirError::NotShared(_))));
        assert!(matches!(DataDir::open_or_create(&env, &shared), Err(DataDirError::Shared(_))));
        assert!(matches!(DataDir::open(&env, &shared), Err(DataDirError::Shared(_))));
    }
}
