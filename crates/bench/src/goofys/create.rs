//! Small files created and removed, by one job or by many.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::BenchError;
use crate::jobs::share;
use crate::side_by_side::Round;

/// Measures both phases in a directory of their own; each file holds its number as a line of text.
pub(super) fn measure(
    round: &mut Round<'_>,
    create: &'static str,
    remove: &'static str,
    files: u64,
    jobs: usize,
) -> Result<(), BenchError> {
    let (folder, stop) = (&round.root.join("files"), round.stop);
    round.timed(|| fs::create_dir(folder))?;
    super::timed(round, create, || {
        share(files, jobs, &|number| {
            stop.go_on()?;
            fs::write(path(folder, number), format!("{number}\n"))
        })?;
        File::open(folder)?.sync_all()
    })?;
    super::timed(round, remove, || {
        share(files, jobs, &|number| {
            stop.go_on()?;
            fs::remove_file(path(folder, number))
        })?;
        File::open(folder)?.sync_all()
    })?;
    round.timed(|| fs::remove_dir(folder)).map(drop)
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("file_{number}"))
}
