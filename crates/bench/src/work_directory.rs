//! A new directory for what a run starts and makes; it is removed at the end.
//!
//! Invariants: every mount below it is taken off first, since removing would reach through a mount. A directory that cannot
//!             be removed is named.

use std::path::Path;

use tempfile::TempDir;

use crate::error::BenchError;
use crate::mount_table;

#[derive(Debug)]
pub(crate) struct WorkDirectory(Option<TempDir>);

impl WorkDirectory {
    /// Makes one in `above`, or in the directory for temporary files. Its path is absolute and without links, as the
    /// kernel's list of mounts has it.
    pub(crate) fn create(above: Option<&Path>, prefix: &str) -> Result<WorkDirectory, BenchError> {
        let above = above.map_or_else(std::env::temp_dir, Path::to_owned);
        let made = above.canonicalize().and_then(|above| tempfile::Builder::new().prefix(prefix).tempdir_in(above));
        made.map(|made| WorkDirectory(Some(made))).map_err(BenchError::file(&above))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().expect("there until it is dropped").path()
    }
}

impl Drop for WorkDirectory {
    fn drop(&mut self) {
        let Some(directory) = self.0.take() else { return };
        let path = directory.path().to_owned();
        let still_mounted = mount_table::below(&path).into_iter().filter(|mount| !mount_table::detach(mount)).count();
        if still_mounted > 0 {
            eprintln!("something is still mounted below {}: it is left there", directory.keep().display());
        } else if let Err(error) = directory.close() {
            eprintln!("{} could not be removed and is left there: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_all_that_is_in_it_and_links_do_not_show() {
        let above = tempfile::tempdir().unwrap();
        let link = above.path().join("link");
        rustix::fs::symlink(above.path(), &link).unwrap();
        let made = WorkDirectory::create(Some(&link), "work.").unwrap();
        let path = made.path().to_owned();
        assert_eq!(path.parent(), Some(above.path().canonicalize().unwrap().as_path()));
        let _ = tempfile::tempdir_in(&path).unwrap().keep();
        drop(made);
        assert!(!path.exists());
        let nowhere = above.path().join("nowhere");
        assert!(matches!(WorkDirectory::create(Some(&nowhere), "work."), Err(BenchError::File { .. })));
    }
}
