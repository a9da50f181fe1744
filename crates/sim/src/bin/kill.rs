//! `kill`: the real binary under load, killed again and again.

use std::process::ExitCode;

use clap::Parser;
use margay_sim::kill::{Options, Report, run};
use margay_sim::setup::{Setup, SetupArgs};

const EXAMPLES: &str = "Examples:
  kill --cycles 200
  MARGAY_BIN=/usr/local/bin/margay kill --cycles 25 --kill-ms-max 400
  kill --cycles 50 --seed 4711 --keep
  kill --cycles 1000 --long-percent 50 --long-ms-max 15000";

/// kill -9 at random moments under mixed load beside reclaim and expiry: nothing acknowledged may be lost, nothing torn, no
/// space lost.
#[derive(Debug, Parser)]
#[command(name = "kill", after_help = EXAMPLES)]
struct Cli {
    #[arg(long, default_value_t = 200)]
    cycles: u64,
    /// Clients at once, each with one connection
    #[arg(long, default_value_t = 6)]
    connections: usize,
    /// Latest moment of a kill, in milliseconds after the first request
    #[arg(long, default_value_t = 1000)]
    kill_ms_max: u64,
    /// Share of servers that live longer, in percent
    #[arg(long, default_value_t = 12)]
    long_percent: u64,
    /// Latest moment of a kill in those
    #[arg(long, default_value_t = 4500)]
    long_ms_max: u64,
    /// Run fsck after so many cycles
    #[arg(long, default_value_t = 10)]
    fsck_every: u64,
    #[command(flatten)]
    setup: SetupArgs,
    /// Keep the data, also after success
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let Setup { binary, folder, seed } = match cli.setup.prepare() {
        Ok(setup) => setup,
        Err(code) => return code,
    };
    let options = Options {
        binary,
        data: folder.path().join("data"),
        cycles: cli.cycles,
        connections: cli.connections.max(1),
        kill_ms_max: cli.kill_ms_max,
        long_percent: cli.long_percent,
        long_ms_max: cli.long_ms_max,
        fsck_every: cli.fsck_every,
        seed,
    };
    let mut told = |report: &Report| {
        if report.clean.is_multiple_of(10) {
            eprintln!("{} of {} cycles, {} acknowledged", report.clean, cli.cycles, report.acknowledged);
        }
    };
    let (report, outcome) = run(&options, &mut told);
    println!("kill cycles: {} of {} clean, {} acked operations checked", report.clean, cli.cycles, report.acknowledged);
    println!("kill cycles, beside upkeep: {}", report.upkeep);
    println!(
        "killed while starting: {}, long lives: {}, fsck runs: {}, seed {seed}",
        report.early, report.long, report.fscks
    );
    let kept = if cli.keep || outcome.is_err() { Some(folder.keep()) } else { None };
    if let Some(kept) = kept {
        println!("data and log: {}", kept.display());
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            println!(
                "FAILED {failure}\n  again: cargo run -p margay-sim --bin kill -- --cycles {} --seed {seed}",
                cli.cycles
            );
            ExitCode::FAILURE
        }
    }
}
