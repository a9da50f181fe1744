//! The tree of mdtest and its calls.
//!
//! Layout:     directory 0 is `mdtest_tree.0`; below directory N are N*branch+1 to N*branch+branch. Directory N holds the
//!             items N*items up to the next directory's.
//! Invariants: every phase but those of the tree ends with an fsync of the tree's root, inside its time.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use crate::error::BenchError;
use crate::side_by_side::Round;

/// The most items of one task: more would not fit into the memory of most kernels' caches anyway.
const ITEMS_MAX: u64 = 1 << 32;

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) branch: u64,
    pub(super) items: u64,
    pub(super) depth: u32,
}

/// What an item is, and how mdtest calls it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Directory,
    File,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Directory => "dir",
            Kind::File => "file",
        }
    }
}

/// What one task does with its items in one tree.
struct Task<'a> {
    shape: Shape,
    root: &'a str,
    kind: Kind,
    rank: usize,
}

impl Shape {
    /// Directories of the tree.
    fn directories(&self) -> Option<u64> {
        (0..=self.depth).try_fold(0u64, |sum, level| sum.checked_add(self.branch.checked_pow(level)?))
    }

    /// Items of one task.
    pub(super) fn count(&self) -> Result<u64, BenchError> {
        let count = self.directories().and_then(|directories| directories.checked_mul(self.items));
        count
            .filter(|count| *count <= ITEMS_MAX)
            .ok_or_else(|| BenchError::Usage("that tree is too large: choose a smaller --depth or --branch".to_owned()))
    }

    pub(super) fn run(&self, round: &mut Round<'_>, tasks: usize) -> Result<(), BenchError> {
        let items = self.count()?;
        let directories = items / self.items;
        let root = round.root.join("mdtest_tree.0");
        let Some(root) = root.to_str() else {
            return Err(BenchError::Usage("the path of --dir is not UTF-8".to_owned()));
        };
        let root = &root.to_owned();
        let shape = *self;
        round
            .rate("tree creation", 1, directories, &|_| shape.walk(root, 0, 0, &mut |path, _| fs::create_dir(path)))?;
        for (kind, [create, stat, middle, remove]) in [
            (Kind::Directory, ["directory creation", "directory stat", "directory rename", "directory removal"]),
            (Kind::File, ["file creation", "file stat", "file read", "file removal"]),
        ] {
            let task = |rank| Task { shape, root, kind, rank };
            let synced = |outcome: io::Result<()>| outcome.and_then(|()| File::open(root)?.sync_all());
            round.rate(create, tasks, items, &|rank| synced(task(rank).create()))?;
            round.rate(stat, tasks, items, &|rank| synced(task(rank).stat()))?;
            round.rate(middle, tasks, items, &|rank| match kind {
                Kind::Directory => synced(task(rank).rename()),
                Kind::File => synced(task(rank).open()),
            })?;
            round.rate(remove, tasks, items, &|rank| synced(task(rank).remove()))?;
        }
        round.rate("tree removal", 1, directories, &|_| shape.remove(root, 0, 0))
    }

    /// Visits every directory of the tree, each before those below it.
    fn walk(
        &self,
        path: &str,
        number: u64,
        level: u32,
        visit: &mut dyn FnMut(&str, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        visit(path, number)?;
        if level == self.depth {
            return Ok(());
        }
        for below in number * self.branch + 1..=(number + 1) * self.branch {
            self.walk(&format!("{path}/mdtest_tree.{below}"), below, level + 1, visit)?;
        }
        Ok(())
    }

    /// Removes every directory, each after those below it.
    fn remove(&self, path: &str, number: u64, level: u32) -> io::Result<()> {
        if level < self.depth {
            for below in number * self.branch + 1..=(number + 1) * self.branch {
                self.remove(&format!("{path}/mdtest_tree.{below}"), below, level + 1)?;
            }
        }
        fs::remove_dir(path)
    }
}

impl Task<'_> {
    fn name(&self, number: u64) -> String {
        format!("{}.mdtest.{}.{number}", self.kind.name(), self.rank)
    }

    /// The path of an item by its number alone.
    fn path(&self, number: u64) -> String {
        let mut path = self.name(number);
        let mut directory = number / self.shape.items;
        while directory > 0 {
            path = format!("mdtest_tree.{directory}/{path}");
            directory = (directory - 1) / self.shape.branch;
        }
        format!("{}/{path}", self.root)
    }

    /// Visits the path of every item, directory by directory.
    fn each(&self, mut visit: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
        let items = self.shape.items;
        self.shape.walk(self.root, 0, 0, &mut |folder, number| {
            (number * items..(number + 1) * items)
                .try_for_each(|item| visit(Path::new(&format!("{folder}/{}", self.name(item)))))
        })
    }

    /// Visits the path of every item by number.
    fn all(&self, mut visit: impl FnMut(String) -> io::Result<()>) -> io::Result<()> {
        let count = self.shape.directories().unwrap_or(0) * self.shape.items;
        (0..count).try_for_each(|number| visit(self.path(number)))
    }

    fn create(&self) -> io::Result<()> {
        self.each(|path| match self.kind {
            Kind::Directory => fs::create_dir(path),
            Kind::File => OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map(drop),
        })
    }

    fn stat(&self) -> io::Result<()> {
        // As mdtest asks: the standard library would also ask for the time of birth.
        self.all(|path| Ok(rustix::fs::stat(&path).map(drop)?))
    }

    /// For reading and writing, as mdtest opens also what it only reads.
    fn open(&self) -> io::Result<()> {
        self.all(|path| OpenOptions::new().read(true).write(true).open(path).map(drop))
    }

    /// Each item gets the place of the one before; the first steps aside and comes last.
    fn rename(&self) -> io::Result<()> {
        let aside = format!("{}-XX", self.path(0));
        let last = self.shape.directories().unwrap_or(0) * self.shape.items - 1;
        let (mut to, mut number) = (aside.clone(), 0);
        self.all(|path| {
            let from = if number == last { aside.clone() } else { path };
            number += 1;
            fs::rename(&from, &to)?;
            to = from;
            Ok(())
        })
    }

    fn remove(&self) -> io::Result<()> {
        self.each(|path| match self.kind {
            Kind::Directory => fs::remove_dir(path),
            Kind::File => fs::remove_file(path),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::{Suite, try_round};

    #[test]
    fn the_usual_tree_has_its_known_size() {
        let shape = Shape { branch: 6, items: 8, depth: 4 };
        assert_eq!((shape.directories(), shape.count().unwrap()), (Some(1555), 12_440));
        assert!(Shape { branch: 1000, items: 2, depth: 12 }.count().is_err());
    }

    #[test]
    fn a_path_by_number_is_the_path_by_walking() {
        let task = Task { shape: Shape { branch: 3, items: 2, depth: 2 }, root: "/r", kind: Kind::File, rank: 7 };
        let (mut walked, mut numbered) = (Vec::new(), Vec::new());
        let walk = |path: &Path| {
            walked.push(path.to_str().unwrap().to_owned());
            Ok(())
        };
        task.each(walk).unwrap();
        let number = |path| {
            numbered.push(path);
            Ok(())
        };
        task.all(number).unwrap();
        assert!(numbered.contains(&"/r/mdtest_tree.1/mdtest_tree.4/file.mdtest.7.9".to_owned()), "{numbered:?}");
        walked.sort();
        numbered.sort();
        assert_eq!(walked, numbered);
    }

    #[test]
    fn a_round_has_the_ten_rows_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("x");
        let shape = Shape { branch: 2, items: 3, depth: 2 };
        let run = |round: &mut Round<'_>, tasks| shape.run(round, tasks);
        let suite = Suite { name: "mdtest", title: String::new(), clients: &[3], round: &run };
        let figures = try_round(&root, &suite, 3).unwrap();
        let phases: Vec<&str> = figures.iter().map(|(phase, _)| phase.as_str()).collect();
        assert_eq!((phases.len(), phases[0], phases[9]), (10, "tree creation", "tree removal"));
        assert!(figures.iter().all(|(_, rounds)| *rounds == 1), "{figures:?}");
        assert!(!root.exists());
    }
}
