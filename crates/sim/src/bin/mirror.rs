//! `mirror`: the mount and a directory of this machine, the same random calls on both.

use std::process::ExitCode;

use clap::Parser;
use margay_sim::mirror::{Options, run};
use margay_sim::setup::{Setup, SetupArgs};

const EXAMPLES: &str = "Examples:
  mirror --operations 100000
  mirror --operations 20000 --kill-every 300
  MARGAY_BIN=/usr/local/bin/margay mirror --seed 4711";

/// POSIX by comparison: every call gives the same result or error on the mount as on the machine's own file system;
/// after kill -9 the tree is as it was after some call, not before the last synced one.
#[derive(Debug, Parser)]
#[command(name = "mirror", after_help = EXAMPLES)]
struct Cli {
    #[arg(long, default_value_t = 20_000)]
    operations: u64,
    /// kill -9 after so many calls on average; 0: never
    #[arg(long, default_value_t = 0)]
    kill_every: u64,
    #[command(flatten)]
    setup: SetupArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Setup { binary, folder, seed } = match cli.setup.prepare() {
        Ok(setup) => setup,
        Err(code) => return code,
    };
    let folder = folder.path().to_owned();
    let options = Options { binary, folder, operations: cli.operations, kill_every: cli.kill_every, seed };
    let (report, outcome) = run(&options, &mut |report| {
        if report.operations.is_multiple_of(10_000) {
            eprintln!("{} of {} calls, {} kills", report.operations, cli.operations, report.kills);
        }
    });
    println!(
        "mirror: {} of {} calls alike ({} refused, {} through S3), {} kills, {} differences",
        report.operations,
        cli.operations,
        report.refused,
        report.through_s3,
        report.kills,
        u64::from(outcome.is_err())
    );
    println!("mirror, beside upkeep: {}", report.upkeep);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (operations, kill_every) = (cli.operations, cli.kill_every);
            eprintln!(
                "FAILED: {failure}\nagain: mirror --operations {operations} --kill-every {kill_every} --seed {seed}"
            );
            ExitCode::FAILURE
        }
    }
}
