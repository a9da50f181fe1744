//! `margay bench goofys`: the small everyday tests by which goofys and its successors are compared.
//!
//! Why:        a hundred files, one large file, `ls` and `find` are what people try first on a mount of an object store.
//! Source:     the phases of goofys' bench.sh, in one process: no time goes to starting `rm` or `dd`. Each phase that
//!             changes something ends with the fsync of its directory that TigrisFS' version has, inside its time.
//! Invariants: listings and the first byte are cold where this process may empty the kernel's caches, and the title says so.
//! Not here:   the phases (create, large_file, listing), turns and reports (side_by_side).

mod create;
mod large_file;
mod listing;

use std::borrow::Cow;
use std::io;

use crate::error::BenchError;
use crate::kernel_caches;
use crate::load::byte_count;
use crate::side_by_side::{self, MILLISECONDS, Round, SideBySideArgs, Suite};
use crate::summary::ms;

/// The most files of one listing, and of the tree: both are made one by one before they are measured.
const LISTED_MAX: u64 = 10_000_000;
const FAN_OUT_MAX: u64 = 100;
const FILE_BYTES_MAX: u64 = 1 << 40;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench goofys --dir /mnt/margay
  margay bench goofys --dir /var/tmp --dir /mnt/margay --size 100m --rounds 5
  sudo margay bench goofys --dir /mnt/margay               (as root: listings and the first byte without the kernel's caches)")]
pub struct GoofysArgs {
    #[command(flatten)]
    pub side_by_side: SideBySideArgs,
    /// Files created and removed one after another, and in parallel
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=LISTED_MAX))]
    pub files: u64,
    /// Jobs that create and remove them in parallel
    #[arg(long, value_name = "N", default_value = "100", value_parser = crate::clients)]
    pub jobs: usize,
    /// Bytes of the large file, written and read with their MD5
    #[arg(long, value_name = "SIZE", default_value = "1000m", value_parser = large_file_bytes)]
    pub size: u64,
    /// Files of the directories that are listed with the attributes of each, as `ls --color` does
    #[arg(long, value_name = "N,N,...", default_value = "1000,2000", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=LISTED_MAX))]
    pub ls: Vec<u64>,
    /// Entries of each of the three levels of the tree that `find` walks: 9 makes it 1 + 9 + 81 + 729 = 820
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=FAN_OUT_MAX))]
    pub fan_out: u64,
}

fn large_file_bytes(text: &str) -> Result<u64, String> {
    let bytes = byte_count(text).filter(|bytes| (1..=FILE_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("{text:?} is no size from 1 to 1024g, such as 100m or 1000m"))
}

pub fn run(args: &GoofysArgs) -> Result<(), BenchError> {
    let cold = kernel_caches::may_drop();
    let caches =
        if cold { "listings and first byte cold" } else { "not cold: only root may empty the kernel's caches" };
    side_by_side::run(
        &args.side_by_side,
        &Suite {
            name: "goofys",
            title: format!("{} files, {} MiB, {caches}", args.files, args.size >> 20),
            clients: &[1],
            round: &|round, _| all_phases(args, cold, round),
        },
    )
}

fn all_phases(args: &GoofysArgs, cold: bool, round: &mut Round<'_>) -> Result<(), BenchError> {
    create::measure(round, "create", "remove", args.files, 1)?;
    create::measure(round, "create in parallel", "remove in parallel", args.files, args.jobs)?;
    large_file::measure(round, args.size, cold)?;
    // What is listed stays until the end of the round: mounts of buckets need time to remove it.
    for files in &args.ls {
        listing::ls(round, *files, cold)?;
    }
    listing::find(round, args.fan_out, cold)
}

/// Adds how long a step takes.
fn timed(
    round: &mut Round<'_>,
    phase: impl Into<Cow<'static, str>>,
    step: impl FnOnce() -> io::Result<()>,
) -> Result<(), BenchError> {
    let took = round.timed(step)?;
    round.add(phase, MILLISECONDS, ms(took));
    Ok(())
}

/// Empties the kernel's caches before a phase that is to be cold, outside its time.
fn chill(round: &Round<'_>, cold: bool) -> Result<(), BenchError> {
    if cold {
        round.timed(kernel_caches::drop_all)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::side_by_side::try_round;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        goofys: GoofysArgs,
    }

    #[test]
    fn a_round_has_every_phase_once_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("x");
        let words = "margay --dir / --files 7 --jobs 3 --size 3m --ls 5,11 --fan-out 2";
        let args = Line::try_parse_from(words.split(' ')).unwrap().goofys;
        let run = |round: &mut Round<'_>, _| all_phases(&args, false, round);
        let suite = Suite { name: "goofys", title: String::new(), clients: &[1], round: &run };
        let figures = try_round(&root, &suite, 1).unwrap();
        let phases = [
            "create",
            "remove",
            "create in parallel",
            "remove in parallel",
            "write",
            "read",
            "first byte",
            "ls of 5",
            "ls of 11",
            "find of 15",
        ];
        assert_eq!(figures, phases.map(|phase| (phase.to_owned(), 1)));
        assert!(!root.exists());
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        for wrong in ["--size 0", "--size 9999999g", "--ls 0", "--jobs 0", "--fan-out 101", "--files x"] {
            let words = format!("margay --dir / {wrong}");
            assert!(Line::try_parse_from(words.split(' ')).is_err(), "{wrong}");
        }
    }
}
