//! `sim`: many seeds of simulated crashes, or one of them again.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use margay_sim::machine::Lies;
use margay_sim::soak::{Layer, Report, replay_command, soak};

const EXAMPLES: &str = "Examples:
  sim soak --seeds 1000
  sim soak --layer engine --seeds 100 --first 4000 --jobs 4
  sim replay 4711 --layer volume --times 20";

/// The real code over a disk that loses its power: nothing acknowledged may be lost, nothing torn, no space lost.
#[derive(Debug, Parser)]
#[command(name = "sim", after_help = EXAMPLES, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run seeds until one fails
    Soak {
        /// Number of seeds for each layer
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// The first seed
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Seeds at once
        #[arg(long, default_value_t = 2)]
        jobs: u64,
        /// Only this layer [default: all]
        #[arg(long)]
        layer: Option<Layer>,
        /// Go on until so many seeds have failed
        #[arg(long, default_value_t = 1)]
        failures: usize,
    },
    /// Run one seed again
    Replay {
        seed: u64,
        #[arg(long)]
        layer: Option<Layer>,
        /// How often: threads do not run alike twice
        #[arg(long, default_value_t = 1)]
        times: u64,
    },
}

fn layers(one: Option<Layer>) -> Vec<Layer> {
    one.map_or(Layer::ALL.to_vec(), |one| vec![one])
}

fn tell(layer: Layer, report: &Report) -> bool {
    for (seed, failure) in &report.failed {
        println!("FAILED {} seed {seed}: {failure}\n  replay: {}", layer.name(), replay_command(layer, *seed));
    }
    let tally = &report.tally;
    println!(
        "sim {}: {} of {} seeds clean, {} crashes, {} acknowledged, {} openings broken off",
        layer.name(),
        report.clean,
        report.clean + report.failed.len() as u64,
        tally.lives,
        tally.acknowledged,
        tally.broken_openings
    );
    report.failed.is_empty()
}

fn main() -> ExitCode {
    let mut clean = true;
    match Cli::parse().command {
        Command::Soak { seeds, first, jobs, layer, failures } => {
            for layer in layers(layer) {
                let mut told = |_, report: &Report| {
                    let ended = report.clean + report.failed.len() as u64;
                    if ended.is_multiple_of(100) {
                        eprintln!("{}: {ended} of {seeds}", layer.name());
                    }
                };
                clean &= tell(layer, &soak(layer, (first, seeds), (jobs, failures), Lies::default(), &mut told));
            }
        }
        Command::Replay { seed, layer, times } => {
            for layer in layers(layer) {
                for _ in 0..times.max(1) {
                    let report = soak(layer, (seed, 1), (1, 1), Lies::default(), &mut |_, _| {});
                    if !tell(layer, &report) {
                        return ExitCode::FAILURE;
                    }
                }
            }
        }
    }
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
