//! `margay bench small`: a small site's files, copied in and removed with the machine's own `cp -r` and `rm -r`.
//!
//! Why:        6400 files of 0.5 to 300 KB over 1024 directories is what TigrisFS compares mounts by; what waits for a
//!             server with every file takes minutes.
//! Invariants: the files that are copied are made once, in a directory of their own, and removed.
//! Not here:   turns and reports (side_by_side).

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::cell::OnceCell;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::BenchError;
use crate::random::Rng;
use crate::side_by_side::{self, Round, SECONDS, SideBySideArgs, Suite};
use crate::stop::Stop;
use crate::work_directory::WorkDirectory;

/// Directories of the first level, and below each of them.
const FAN_OUT: u64 = 32;
const FILE_BYTES_MIN: f64 = 512.0;
const FILE_BYTES_MAX: f64 = 300_000.0;
const FILE_BYTES_MEAN: f64 = 30_000.0;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench small --dir /mnt/margay
  margay bench small --dir /var/tmp --dir /mnt/margay --rounds 5
  margay bench small --rival ext4,margay,s3fs,rclone,goofys --store minio
  margay bench small --dir /mnt/margay --files 640 --json")]
pub struct SmallArgs {
    #[command(flatten)]
    pub side_by_side: SideBySideArgs,
    /// Files of 0.5 to 300 KB, 30 KB on average, over 1024 directories
    #[arg(long, value_name = "N", default_value_t = 6400, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// The same seed gives the same sizes and bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// The files that are copied.
struct Source {
    root: WorkDirectory,
    /// Below the root.
    paths: Vec<PathBuf>,
}

pub fn run(args: &SmallArgs) -> Result<(), BenchError> {
    // Made by the first round, when Ctrl-C is heard already.
    let made = OnceCell::new();
    let source = |stop: &Stop| match made.get() {
        Some(source) => Ok(source),
        None => Source::make(args, stop).map(|source| made.get_or_init(|| source)),
    };
    side_by_side::run(
        &args.side_by_side,
        &Suite {
            name: "small",
            title: format!("{} files of 0.5 to 300 KB over {} directories", args.files, FAN_OUT * FAN_OUT),
            clients: &[1],
            round: &|round, _| source(round.stop).and_then(|source| copy_and_remove(round, source)),
        },
    )
}

impl Source {
    fn make(args: &SmallArgs, stop: &Stop) -> Result<Source, BenchError> {
        let root = WorkDirectory::create(args.side_by_side.rivals.work.as_deref(), "margay-bench-small.")?;
        let paths = make(root.path(), args.files, args.seed, stop);
        let paths = paths.map_err(|source| match stop.check() {
            Ok(()) => BenchError::file(root.path())(source),
            Err(interrupted) => interrupted,
        })?;
        Ok(Source { root, paths })
    }
}

/// Makes the files; their paths below `root`.
fn make(root: &Path, count: u64, seed: u64, stop: &Stop) -> io::Result<Vec<PathBuf>> {
    let mut random = Rng::new(seed);
    let bytes: Vec<u8> = (0..FILE_BYTES_MAX as usize / 8 + 1).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut files = Vec::new();
    for number in 0..count {
        stop.go_on()?;
        let folder = format!("{:02}/{:02}", number / FAN_OUT % FAN_OUT, number % FAN_OUT);
        fs::create_dir_all(root.join(&folder))?;
        let path = PathBuf::from(format!("{folder}/file-{number:06}"));
        fs::write(root.join(&path), &bytes[..size(&mut random)])?;
        files.push(path);
    }
    Ok(files)
}

/// Many are small and few are large: falling by e every mean.
fn size(random: &mut Rng) -> usize {
    let bytes = FILE_BYTES_MIN - (1.0 - random.unit()).ln() * (FILE_BYTES_MEAN - FILE_BYTES_MIN);
    bytes.min(FILE_BYTES_MAX) as usize
}

fn copy_and_remove(round: &mut Round<'_>, source: &Source) -> Result<(), BenchError> {
    let copy = round.root.join("copy");
    let copied = round.timed(|| command("cp", &[source.root.path(), &copy]))?;
    let synced = round.timed(|| source.paths.iter().try_for_each(|file| File::open(copy.join(file))?.sync_all()))?;
    let removed = round.timed(|| command("rm", &[&copy]))?;
    round.add("cp -r", SECONDS, copied.as_secs_f64());
    round.add("cp -r and fsync", SECONDS, (copied + synced).as_secs_f64());
    round.add("rm -r", SECONDS, removed.as_secs_f64());
    Ok(())
}

fn command(name: &str, paths: &[&Path]) -> io::Result<()> {
    let status = Command::new(name).arg("-r").args(paths).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{name} -r ended with {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::try_round;

    #[test]
    fn sizes_are_those_of_a_small_site() {
        let mut random = Rng::new(1);
        let sizes: Vec<usize> = (0..100_000).map(|_| size(&mut random)).collect();
        assert!(sizes.iter().all(|size| (FILE_BYTES_MIN as usize..=FILE_BYTES_MAX as usize).contains(size)));
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((29_000..31_000).contains(&mean), "{mean}");
    }

    #[test]
    fn a_round_copies_all_and_leaves_nothing() {
        let target = tempfile::tempdir().unwrap();
        let above = WorkDirectory::create(None, "test-small.").unwrap();
        let paths = make(above.path(), 70, 1, &Stop::default()).unwrap();
        assert_eq!(paths.len(), 70);
        let source = Source { root: above, paths };
        let root = target.path().join("x");
        let run = |round: &mut Round<'_>, _| copy_and_remove(round, &source);
        let suite = Suite { name: "small", title: String::new(), clients: &[1], round: &run };
        let figures = try_round(&root, &suite, 1).unwrap();
        assert_eq!(figures, ["cp -r", "cp -r and fsync", "rm -r"].map(|phase| (phase.to_owned(), 1)));
        assert!(!root.exists() && source.root.path().join(&source.paths[69]).exists());
    }
}
