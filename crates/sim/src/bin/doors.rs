//! `doors`: one tree changed through S3 and through its mount, and looked at through both after each change.

use std::process::ExitCode;

use clap::Parser;
use margay_sim::doors::{Options, run};
use margay_sim::setup::{Setup, SetupArgs};

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
    #[command(flatten)]
    setup: SetupArgs,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Setup { binary, folder, seed } = match cli.setup.prepare() {
        Ok(setup) => setup,
        Err(code) => return code,
    };
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
    println!("doors, beside upkeep: {}, {} looks at what expires", report.upkeep, report.watched);
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("FAILED: {failure}\nagain: doors --operations {} --seed {seed}", cli.operations);
            ExitCode::FAILURE
        }
    }
}
