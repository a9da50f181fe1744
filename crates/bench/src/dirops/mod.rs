//! `margay bench dirops`: making, looking at, listing and removing many files of one directory.
//!
//! Why:      this is the curve that ext2's directory index bent in 2001; a mount is judged by it beside an empty
//!           file system of the same kind, in the same run.
//! Layout:   `work` all phases at one size, `curve` creating and deleting at growing sizes, in each `order`.
//! Not here: turns and reports of the phases (side_by_side).

pub(crate) mod cited;
mod curve;
mod curve_show;
mod order;
mod work;

use std::time::Duration;

use margay_env::Env;

use crate::comparison::RivalFacts;
use crate::error::BenchError;
use crate::rivals::{self, RivalArgs, Rivals};
use crate::side_by_side::{self, SideBySideArgs, Suite};
use crate::stop::Stop;
use curve::{Curve, MeasuredDirectory};
use curve_show::CurveReport;
use work::Work;

/// The most files of one directory: their numbers are shuffled in memory, at 8 bytes each.
const FILES_MAX: u64 = 100_000_000;
/// The most bytes that `--fsync-each` writes into a file.
const FSYNC_BYTES_MAX: i64 = 1 << 20;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench dirops --dir /mnt/margay
  margay bench dirops --dir /mnt/margay --dir /mnt/empty --dir /var/tmp --clients 1,4
  margay bench dirops --files 1000 --clients 1 --rival ext4,margay,tigrisfs
  margay bench dirops --dir /mnt/margay --files 1000000 --rounds 1 --json
  margay bench dirops --dir /mnt/far --files 100 --clients 64 --fsync-each 4096
  margay bench dirops --dir /mnt/margay --rival ext4,ext4-no-dir-index --points 1000,10000,100000 --report results/")]
pub struct DiropsArgs {
    #[command(flatten)]
    pub side_by_side: SideBySideArgs,
    /// Files of each client
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    pub files: u64,
    /// Clients at once, each in a directory of its own
    #[arg(long, value_name = "N,N,...", default_value = "1,4", value_delimiter = ',', value_parser = crate::clients)]
    pub clients: Vec<usize>,
    /// fsync the directory at the end of each phase, inside its time
    #[arg(long)]
    pub sync: bool,
    /// Instead: creating only, with so many bytes written into each file and an fsync of it, and deleting
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=FSYNC_BYTES_MAX))]
    pub fsync_each: Option<u32>,
    /// Instead: the curve, creating and deleting so many files in every order by one client (1000 to 10000000)
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=FILES_MAX))]
    pub points: Vec<u64>,
    /// An operation of the curve that takes longer is cut, and larger sizes of it are left out
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = rivals::time)]
    pub limit: Duration,
}

pub fn run(args: &DiropsArgs) -> Result<(), BenchError> {
    if !args.points.is_empty() {
        return run_curve(args);
    }
    let sync = if args.sync { ", with fsync" } else { "" };
    let each = args.fsync_each.map_or(String::new(), |bytes| format!(", fsync of each with {bytes} bytes"));
    side_by_side::run(
        &args.side_by_side,
        &Suite {
            name: "dirops",
            title: format!("{} files a client{sync}{each}", args.files),
            clients: &args.clients,
            round: &|round, clients| {
                let (root, stop) = (round.root.to_owned(), round.stop.clone());
                Work { root, files: args.files, clients, sync: args.sync, fsync_each: args.fsync_each, stop }.run(round)
            },
        },
    )
}

fn run_curve(args: &DiropsArgs) -> Result<(), BenchError> {
    let env = Env::real();
    let SideBySideArgs { directories, rivals, output, .. } = &args.side_by_side;
    let curve = side_by_side::with_rivals(rivals, output, !directories.is_empty(), &env, |rivals, name, stop| {
        measure_curve(args, rivals, &env, name, stop)
    })?;
    output.show(&env, &curve)
}

fn measure_curve(
    args: &DiropsArgs,
    mut rivals: Rivals,
    env: &Env,
    name: &str,
    stop: &Stop,
) -> Result<CurveReport, BenchError> {
    let SideBySideArgs { directories, rivals: RivalArgs { rival_limit, .. }, rounds, .. } = &args.side_by_side;
    let mut points = args.points.clone();
    points.sort_unstable();
    points.dedup();
    let mut facts = RivalFacts::of(&rivals.running);
    let given = directories.iter().map(|directory| MeasuredDirectory::given(directory));
    let started = rivals.running.iter_mut().map(|rival| MeasuredDirectory::of(rival, *rival_limit));
    let mut places: Vec<MeasuredDirectory<'_>> = given.chain(started).collect();
    let curve = Curve { env, stop, points: &points, rounds: *rounds, limit: args.limit, sync: args.sync };
    let lines = curve.measure(&mut places, name)?;
    for (facts, place) in facts.iter_mut().zip(&mut places[directories.len()..]) {
        facts.failure = place.failure.take();
    }
    Ok(CurveReport {
        benchmark: "dirops",
        rounds: *rounds,
        limit_s: args.limit.as_secs_f64(),
        sync: args.sync,
        rivals: facts,
        absent: std::mem::take(&mut rivals.absent),
        lines,
    })
}
