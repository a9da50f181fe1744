//! `margay bench dirops`: making, looking at, listing and removing many files of one directory.
//!
//! Why:      this is the curve that ext2's directory index bent in 2001; a mount is judged by it beside an empty
//!           file system of the same kind, in the same run.
//! Not here: the calls themselves (work), turns and reports (side_by_side).

mod work;

use crate::error::BenchError;
use crate::side_by_side::{self, SideBySideArgs, Suite};
use work::Work;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench dirops --dir /mnt/margay
  margay bench dirops --dir /mnt/margay --dir /mnt/empty --dir /var/tmp --clients 1,4
  margay bench dirops --files 1000 --clients 1 --rival ext4,margay,tigrisfs
  margay bench dirops --dir /mnt/margay --files 1000000 --rounds 1 --json")]
pub struct DiropsArgs {
    #[command(flatten)]
    pub side_by_side: SideBySideArgs,
    /// Files of each client
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Clients at once, each in a directory of its own
    #[arg(long, value_name = "N,N,...", default_value = "1,4", value_delimiter = ',', value_parser = crate::clients)]
    pub clients: Vec<usize>,
    /// fsync the directory at the end of each phase, inside its time
    #[arg(long)]
    pub sync: bool,
}

pub fn run(args: &DiropsArgs) -> Result<(), BenchError> {
    let sync = if args.sync { ", with fsync" } else { "" };
    side_by_side::run(
        &args.side_by_side,
        &Suite {
            name: "dirops",
            title: format!("{} files a client{sync}", args.files),
            clients: &args.clients,
            round: &|round, clients| {
                Work { root: round.root.to_owned(), files: args.files, clients, sync: args.sync }.run(round)
            },
        },
    )
}
