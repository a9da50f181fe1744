//! The objects: directories that are listed, and all others beside them.
//!
//! Invariants: its root is new and made here, and nothing outside of it is touched.

#![allow(clippy::disallowed_methods, reason = "a mount is what is measured")]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use margay_env::Env;

use crate::error::BenchError;
use crate::jobs::share;
use crate::progress::Progress;
use crate::remove_tree;
use crate::stop::Stop;

/// Jobs that make and remove objects.
const JOBS: usize = 8;
/// Objects in each directory that is not listed.
const OTHERS_EACH: u64 = 1000;

#[derive(Debug)]
pub(super) struct Tree<'a> {
    env: &'a Env,
    stop: &'a Stop,
    root: PathBuf,
    /// Objects made.
    total: u64,
    /// Directories of others made.
    others: u64,
    /// Sizes of the directories that are listed.
    pub(super) listed: Vec<u64>,
}

/// Where `objects` objects are listed.
pub(super) fn listed(root: &Path, objects: u64) -> PathBuf {
    root.join(format!("listed-{objects}"))
}

impl<'a> Tree<'a> {
    pub(super) fn create(env: &'a Env, stop: &'a Stop, root: &Path) -> Result<Tree<'a>, BenchError> {
        let tree = Tree { env, stop, root: root.to_owned(), total: 0, others: 0, listed: Vec::new() };
        fs::create_dir(root).map_err(|source| tree.failed(source))?;
        Ok(tree)
    }

    /// Makes a directory of so many objects, unless it is there.
    pub(super) fn make_listed(&mut self, objects: u64) -> Result<(), BenchError> {
        if self.listed.contains(&objects) {
            return Ok(());
        }
        let folder = listed(&self.root, objects);
        self.fill(1, objects, &|_| folder.clone())?;
        self.listed.push(objects);
        Ok(())
    }

    /// Makes others until there are `total` objects.
    pub(super) fn grow(&mut self, total: u64) -> Result<(), BenchError> {
        let missing = total.saturating_sub(self.total);
        let (root, first) = (self.root.clone(), self.others);
        let folders = missing.div_ceil(OTHERS_EACH);
        self.others += folders;
        self.fill(folders, missing, &|number| root.join(format!("others-{:06}", first + number)))
    }

    /// Makes `objects` empty files in `folders` new directories.
    fn fill(&mut self, folders: u64, objects: u64, folder: &(dyn Fn(u64) -> PathBuf + Sync)) -> Result<(), BenchError> {
        let progress = Progress::new(self.env, "make objects", objects);
        let (stop, shared) = (self.stop, folders.max(1));
        share(folders, JOBS, &|number| fs::create_dir(folder(number))).map_err(|source| self.failed(source))?;
        let made = share(objects, JOBS, &|number| {
            stop.go_on()?;
            let path = folder(number % shared).join(format!("file-{:08}", number / shared));
            File::options().write(true).create_new(true).open(path)?;
            progress.add(1);
            Ok(())
        });
        stop.check()?;
        made.map_err(|source| self.failed(source))?;
        self.total += objects;
        Ok(())
    }

    /// Removes all of it; interrupted only by the end of the process.
    pub(super) fn remove(self) -> Result<(), BenchError> {
        let pass = || {
            let found = fs::read_dir(&self.root)?.map(|entry| Ok(entry?.path()));
            let folders: Vec<PathBuf> = found.collect::<io::Result<_>>()?;
            share(folders.len() as u64, JOBS, &|number| fs::remove_dir_all(&folders[number as usize]))?;
            fs::remove_dir(&self.root)
        };
        remove_tree::in_passes(self.env, pass).map_err(remove_tree::left(&self.root))
    }

    fn failed(&self, source: io::Error) -> BenchError {
        BenchError::file(&self.root)(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(root: &Path) -> u64 {
        let folders = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
        folders.map(|folder| fs::read_dir(folder).unwrap().count() as u64).sum()
    }

    #[test]
    fn a_tree_has_its_total_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let (env, stop, root) = (Env::real(), Stop::default(), folder.path().join("x"));
        let mut tree = Tree::create(&env, &stop, &root).unwrap();
        for objects in [5, 20, 5] {
            tree.make_listed(objects).unwrap();
        }
        for total in [25, 30, 2345, 2345] {
            tree.grow(total).unwrap();
            assert_eq!(files(&root), total);
        }
        assert_eq!(fs::read_dir(listed(&root, 20)).unwrap().count(), 20);
        stop.set();
        assert!(matches!(tree.grow(3000), Err(BenchError::Interrupted)));
        tree.remove().unwrap();
        assert!(!root.exists());
    }

    #[test]
    fn a_directory_that_exists_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Tree::create(&Env::real(), &Stop::default(), folder.path()).is_err());
    }
}
