//! A directory whose rows are being moved into PostgreSQL: neither a volume of its own any more, nor one of a shared volume yet.
//!
//! Why:        whether the rows are there is decided by one commit of the database, whose answer may be lost. Until it is known,
//!             neither may anybody change the rows here, nor may anybody think that they are there.
//! Invariants: M1 the format says so before the rows are committed, and until it is known whether they are.
//!             M2 the rows of before lie aside under another name before the directory is one of a shared volume, so nothing opens
//!                them.
//! Durability: each step is a file that is written, synced and renamed.
//! Not here:   the rows (`adopt`).

use std::io;
use std::path::{Path, PathBuf};

use margay_env::{Env, files};

use super::{
    CACHE_FORMAT_VERSION, DISKS_FORMAT_VERSION, DataDir, DataDirError, FORMAT_VERSION, MOVING_FORMAT_VERSION,
    SHARED_FORMAT_VERSION, check_format, check_owner, lock, mark,
};

/// Says where the rows go, while they go.
const MOVING_FILE: &str = "moving";
/// The rows of the embedded engine after they were moved.
pub const LEFT_TREE: &str = "tree.before-postgresql";
/// Longest text that says where, in bytes.
const PLACE_BYTES_MAX: u64 = 4096;

/// How far a directory has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moving {
    /// It is a volume of its own.
    NotBegun,
    /// Its rows may be there, in that place.
    Begun(String),
}

impl DataDir {
    /// Locks a directory whose rows are to be moved, or are on their way.
    pub fn open_to_move(env: &Env, path: &Path) -> Result<(DataDir, Moving), DataDirError> {
        let fail = |error| DataDirError::Io { path: path.to_owned(), error };
        match check_format(env, path)? {
            Some(CACHE_FORMAT_VERSION) => check_owner(env, path)?,
            Some(SHARED_FORMAT_VERSION) => return Err(DataDirError::Moved(path.to_owned())),
            Some(DISKS_FORMAT_VERSION) => return Err(DataDirError::HasDisks(path.to_owned())),
            Some(FORMAT_VERSION | MOVING_FORMAT_VERSION) => {}
            _ => return Err(DataDirError::Absent(path.to_owned())),
        }
        let dir = lock(env, path)?;
        // Another process may have moved it meanwhile.
        match check_format(env, path)? {
            Some(FORMAT_VERSION) => Ok((dir, Moving::NotBegun)),
            Some(MOVING_FORMAT_VERSION) => {
                let place = files::read(env, &path.join(MOVING_FILE), PLACE_BYTES_MAX).map_err(fail)?;
                Ok((dir, Moving::Begun(String::from_utf8_lossy(&place).trim_end().to_owned())))
            }
            _ => Err(DataDirError::Moved(path.to_owned())),
        }
    }

    /// The rows were not moved, and never will be by what was begun.
    pub fn stay(&self) -> io::Result<()> {
        // They may have been laid aside for rows that the database has lost since.
        let (tree, left) = (self.tree(), self.path.join(LEFT_TREE));
        if !self.env.disk.exists(&tree)? && self.env.disk.exists(&left)? {
            self.env.disk.rename(&left, &tree)?;
            self.env.disk.sync_dir(&self.path)?;
        }
        mark(&self.env, &self.path, FORMAT_VERSION)?;
        self.env.disk.remove(&self.path.join(MOVING_FILE))
    }

    /// The rows are in PostgreSQL. Returns where those of before lie.
    pub fn moved(&self) -> io::Result<PathBuf> {
        let (tree, left) = (self.tree(), self.path.join(LEFT_TREE));
        if self.env.disk.exists(&tree)? {
            self.env.disk.rename(&tree, &left)?;
            self.env.disk.sync_dir(&self.path)?;
        }
        mark(&self.env, &self.path, SHARED_FORMAT_VERSION)?;
        self.env.disk.remove(&self.path.join(MOVING_FILE))?;
        Ok(left)
    }
}

/// The rows of a directory, which the caller has locked, are about to be committed there.
pub fn begin_to_move(env: &Env, path: &Path, place: &str) -> io::Result<()> {
    files::write_new(env, &path.join(MOVING_FILE), format!("{place}\n").as_bytes())?;
    mark(env, path, MOVING_FORMAT_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_were_laid_aside_come_back_when_the_directory_stays() {
        let (env, folder) = (Env::real(), tempfile::tempdir().unwrap());
        let path = folder.path().join("data");
        let dir = DataDir::open_or_create(&env, &path).unwrap();
        env.disk.create_private_dir(&dir.tree()).unwrap();
        begin_to_move(&env, &path, "there").unwrap();
        // Killed behind the first step of `moved`, and the database was set back.
        env.disk.rename(&dir.tree(), &path.join(LEFT_TREE)).unwrap();
        drop(dir);
        let (dir, _) = DataDir::open_to_move(&env, &path).unwrap();
        dir.stay().unwrap();
        assert!(env.disk.exists(&dir.tree()).unwrap() && !env.disk.exists(&path.join(LEFT_TREE)).unwrap());
    }

    #[test]
    fn a_directory_on_its_way_is_opened_by_nobody_else() {
        let (env, folder) = (Env::real(), tempfile::tempdir().unwrap());
        let path = folder.path().join("data");
        drop(DataDir::open_or_create(&env, &path).unwrap());
        let (dir, moving) = DataDir::open_to_move(&env, &path).unwrap();
        assert_eq!(moving, Moving::NotBegun);
        env.disk.create_private_dir(&dir.tree()).unwrap();
        begin_to_move(&env, &path, "there").unwrap();
        drop(dir);
        let refused = |path: &Path| {
            for opened in [DataDir::open_or_create(&env, path), DataDir::open(&env, path)] {
                assert!(matches!(opened, Err(DataDirError::Moving(_))), "{opened:?}");
            }
            let shared = DataDir::open_or_create_shared(&env, path);
            assert!(matches!(shared, Err(DataDirError::Moving(_))), "{shared:?}");
        };
        refused(&path);
        let (dir, moving) = DataDir::open_to_move(&env, &path).unwrap();
        assert_eq!(moving, Moving::Begun("there".to_owned()));
        dir.stay().unwrap();
        drop(dir);
        drop(DataDir::open(&env, &path).unwrap());
        begin_to_move(&env, &path, "there").unwrap();
        let (dir, _) = DataDir::open_to_move(&env, &path).unwrap();
        assert!(env.disk.exists(&dir.moved().unwrap()).unwrap() && !env.disk.exists(&dir.tree()).unwrap());
        drop(dir);
        assert!(matches!(DataDir::open(&env, &path), Err(DataDirError::Shared(_))));
        assert!(matches!(DataDir::open_to_move(&env, &path), Err(DataDirError::Moved(_))));
        drop(DataDir::open_or_create_shared(&env, &path).unwrap());
    }
}
