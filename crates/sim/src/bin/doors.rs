//! `doors`: one tree changed through S3 and through its mount, and looked at through both after each change.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use margay_sim::blob::any_below;
use margay_sim::doors::{Options, run};
use margay_sim::program;

const EXAMPLES: &str = "Examples:
  doors --operations 100000
  MARGAY_BIN=/usr/local/bin/margay doors --operations 2000 --seed 4711";

/// Both doors side by side: what one changes, the other shows at once, whatever the kernel had cached.
#[derive(Debug, Parser)]
#[command(name = "doors", after_help = EXAMPLES)]
struct Cli {
    #[arg(long, default_value_t = 100_000)]
    operations: u64,
    /// Share of changes made through the mount, in percent
    #[arg(long, default_value_t = 25)]
    mount_percent: u64,
    /// Of the changes [default: another one each time]
    #[arg(long)]
    seed: Option<u64>,
    /// The program [default: $MARGAY_BIN or target/release/margay]
    #[arg(long)]
    binary: Option<PathBuf>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let binary = match program(cli.binary.clone()) {
        Ok(binary) => binary,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => {
            eprintln!("no folder for the data: {error}; set TMPDIR");
            return ExitCode::from(2);
        }
    };
    let seed = cli.seed.unwrap_or_else(|| any_below(1_000_000));
    let options = Options {
        binary,
        folder: folder.path().to_owned(),
        operations: cli.operations,
        mount_percent: cli.mount_percent,
        seed,
    };
    let (report, outcome) = run(&options, &mut |report| {
        if report.operations.is_multiple_of(10_000) {
            eprintln!("{} of {} changes, {} checks", report.operations, cli.operations, report.checks);
        }
    });
    println!(
        "doors: {} changes ({} through the mount), {} checks, {} late notices, {} stale",
        report.operations,
        report.through_mount,
        report.checks,
        report.late,
        u64::from(outcome.is_err())
    );
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("FAILED: {failure}\nagain: doors --operations {} --seed {seed}", cli.operations);
            ExitCode::FAILURE
        }
    }
}
