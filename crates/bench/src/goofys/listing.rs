//! `ls` of one directory and `find` in a tree, checked by their number of lines.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::error::BenchError;
use crate::listing::{expect, list};
use crate::side_by_side::Round;
use crate::stop::Stop;

/// A directory of so many files, with the attributes of each.
pub(super) fn ls(round: &mut Round<'_>, files: u64, cold: bool) -> Result<(), BenchError> {
    let (folder, stop) = (&round.root.join(format!("ls-{files}")), round.stop);
    round.timed(|| make_files(folder, files, stop))?;
    super::chill(round, cold)?;
    super::timed(round, format!("ls of {files}"), || list(folder, files, true))
}

/// A tree of three levels below its root: directories, directories and files.
pub(super) fn find(round: &mut Round<'_>, fan_out: u64, cold: bool) -> Result<(), BenchError> {
    let (root, stop) = (&round.root.join("find"), round.stop);
    let lines = 1 + fan_out + fan_out.pow(2) + fan_out.pow(3);
    round.timed(|| {
        fs::create_dir(root)?;
        for first in 0..fan_out {
            let first = root.join(format!("dir_{first}"));
            fs::create_dir(&first)?;
            (0..fan_out).try_for_each(|second| make_files(&first.join(format!("dir_{second}")), fan_out, stop))?;
        }
        Ok(())
    })?;
    super::chill(round, cold)?;
    super::timed(round, format!("find of {lines}"), || expect(lines, walk(root)?))
}

/// Makes a directory of empty files, and has it written, since only what is written can be dropped from caches.
fn make_files(folder: &Path, files: u64, stop: &Stop) -> io::Result<()> {
    fs::create_dir(folder)?;
    for number in 0..files {
        stop.go_on()?;
        File::create(folder.join(format!("file_{number}")))?;
    }
    File::open(folder)?.sync_all()
}

/// Lines that `find` would print: the directory and everything below it.
fn walk(folder: &Path) -> io::Result<u64> {
    let mut lines = 1;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        lines += if entry.file_type()?.is_dir() { walk(&entry.path())? } else { 1 };
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_counts_its_root_and_all_below() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("x");
        make_files(&root, 3, &Stop::default()).unwrap();
        fs::create_dir(root.join("below")).unwrap();
        assert_eq!(walk(&root).unwrap(), 5);
    }
}
