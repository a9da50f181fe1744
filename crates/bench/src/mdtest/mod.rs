//! `margay bench mdtest`: the ten rows of mdtest, with a directory fsync after each.
//!
//! Why:      mounts of object stores are compared by it, with `-b 6 -I 8 -z 4`; everybody can run it without MPI.
//! Source:   the order of calls is that of mdtest 3.4 (hpc/ior) with the directory fsync of vitalif/mdtest.
//! Not here: the tree and the calls (work), turns and reports (side_by_side).

mod work;

use crate::error::BenchError;
use crate::side_by_side::{self, SideBySideArgs, Suite};
use work::Shape;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench mdtest --dir /mnt/margay
  margay bench mdtest --dir /var/tmp --dir /mnt/margay --tasks 1,16,64
  margay bench mdtest --depth 2 --rival ext4,margay,juicefs-redis
  margay bench mdtest --dir /mnt/margay --depth 2 --rounds 5 --json")]
pub struct MdtestArgs {
    #[command(flatten)]
    pub side_by_side: SideBySideArgs,
    /// Directories below each directory of the tree (mdtest -b)
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub branch: u64,
    /// Files, and directories, of each task in each directory of the tree (mdtest -I)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..))]
    pub items: u64,
    /// Levels of the tree below its root (mdtest -z)
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=12))]
    pub depth: u32,
    /// Tasks at once, all in one tree (threads, where mdtest has processes)
    #[arg(long, value_name = "N,N,...", default_value = "1", value_delimiter = ',', value_parser = crate::clients)]
    pub tasks: Vec<usize>,
}

pub fn run(args: &MdtestArgs) -> Result<(), BenchError> {
    let shape = Shape { branch: args.branch, items: args.items, depth: args.depth };
    let items = shape.count()?;
    side_by_side::run(
        &args.side_by_side,
        &Suite {
            name: "mdtest",
            title: format!("-b {} -I {} -z {}, {items} items a task", args.branch, args.items, args.depth),
            clients: &args.tasks,
            round: &|round, tasks| shape.run(round, tasks),
        },
    )
}
