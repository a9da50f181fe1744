//! `margay bench dirops`: making, looking at, listing and removing many files of one directory.
//!
//! Why:        this is the curve that ext2's directory index bent in 2001; a mount is judged by it beside an empty
//!             file system of the same kind, in the same run.
//! Invariants: only a directory that the benchmark made is touched, and it is removed, also after Ctrl-C.
//!             Directories are measured in turns, so that a noisy minute hits all of them.
//! Not here:   the calls themselves (work).

mod work;

use std::path::{Path, PathBuf};

use margay_env::Env;
use serde::Serialize;

use crate::error::BenchError;
use crate::report;
use crate::stop::Stop;
use crate::summary::{Table, median};
use work::{Phase, Work};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  margay bench dirops --dir /mnt/margay
  margay bench dirops --dir /mnt/margay --dir /mnt/empty --dir /var/tmp --clients 1,4
  margay bench dirops --dir /mnt/margay --files 1000000 --rounds 1 --json")]
pub struct DiropsArgs {
    /// Where to work; several are compared with the first
    #[arg(long = "dir", value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,
    /// Files of each client
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Clients at once, each in a directory of its own
    #[arg(long, value_name = "N,N,...", default_value = "1,4", value_delimiter = ',')]
    pub clients: Vec<usize>,
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    /// fsync the directory at the end of each phase, inside its time
    #[arg(long)]
    pub sync: bool,
    #[arg(long)]
    pub json: bool,
    /// Also write JSON and CSV files into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// One phase of one directory: operations per second, of each round.
#[derive(Debug, Serialize)]
struct Row {
    directory: String,
    clients: usize,
    phase: &'static str,
    per_second: Vec<f64>,
    median: f64,
    /// Of the medians, to that of the first directory.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct DiropsReport {
    files: u64,
    sync: bool,
    rows: Vec<Row>,
}

/// Runs it; builds a runtime for the signals only.
pub fn run(args: &DiropsArgs) -> Result<(), BenchError> {
    let env = Env::real();
    let runtime = crate::runtime()?;
    let _entered = runtime.enter();
    let name = crate::scratch::bucket_name(&env);
    let stop = Stop::listen(format!("{name} in the directories measured"));
    // Signals are heard while this thread measures.
    std::thread::scope(|scope| {
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        scope.spawn(|| runtime.block_on(end));
        let outcome = measure(args, &env, &name, &stop);
        drop(ended);
        let report = outcome?;
        show(&env, args, &report)
    })
}

fn measure(args: &DiropsArgs, env: &Env, name: &str, stop: &Stop) -> Result<DiropsReport, BenchError> {
    let mut rows = Vec::new();
    for clients in &args.clients {
        let works = args.directories.iter().map(|directory| Work {
            root: directory.join(name),
            files: args.files,
            clients: (*clients).max(1),
            sync: args.sync,
        });
        let works: Vec<Work> = works.collect();
        let mut rates = vec![vec![Vec::new(); Phase::ALL.len()]; works.len()];
        for _ in 0..args.rounds {
            for (work, rates) in works.iter().zip(&mut rates) {
                work.round(env, stop, rates)?;
            }
        }
        for (phase_index, phase) in Phase::ALL.iter().enumerate() {
            let first = median(rates[0][phase_index].iter().copied());
            for (directory, rates) in args.directories.iter().zip(&rates) {
                let median = median(rates[phase_index].iter().copied());
                rows.push(Row {
                    directory: directory.display().to_string(),
                    clients: *clients,
                    phase: phase.name(),
                    per_second: rates[phase_index].clone(),
                    median,
                    ratio: if first > 0.0 { median / first } else { 0.0 },
                });
            }
        }
    }
    Ok(DiropsReport { files: args.files, sync: args.sync, rows })
}

fn table(report: &DiropsReport) -> Table {
    let mut table = Table::new(&["clients", "phase", "directory", "per second", "of the first"]);
    for row in &report.rows {
        table.row(vec![
            row.clients.to_string(),
            row.phase.to_owned(),
            row.directory.clone(),
            format!("{:.0}", row.median),
            format!("{:.2}", row.ratio),
        ]);
    }
    table
}

fn show(env: &Env, args: &DiropsArgs, report: &DiropsReport) -> Result<(), BenchError> {
    let table = table(report);
    if args.json {
        report::print_json(report);
    } else {
        let sync = if report.sync { ", with fsync" } else { "" };
        println!("margay bench dirops, {} files a client{sync}, medians of {}\n", report.files, args.rounds);
        print!("{}", table.text());
    }
    match &args.report {
        None => Ok(()),
        Some(directory) => report::write_files(
            env,
            Path::new(directory),
            &[("dirops.json", report::json(report)), ("dirops.csv", table.csv())],
        ),
    }
}
