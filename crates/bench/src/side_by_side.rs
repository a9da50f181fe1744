//! Benchmarks of directories: the same work on several file systems, side by side.
//!
//! Why:        a figure of one file system says little on a shared machine; one beside another's of the same minute does.
//! Invariants: only a directory that the benchmark made is touched, and it is removed, also after Ctrl-C.
//!             Directories are measured in turns, so that a noisy minute hits all of them.
//! Not here:   the work itself (dirops, mdtest, small, stream).

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use margay_env::Env;
use serde::Serialize;

use crate::bars::{self, Group};
use crate::error::BenchError;
use crate::report;
use crate::stop::Stop;
use crate::summary::{Table, median};

#[derive(Debug, clap::Args)]
pub struct SideBySideArgs {
    /// Where to work; several are compared with the first
    #[arg(long = "dir", value_name = "DIR", required = true)]
    pub directories: Vec<PathBuf>,
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    #[arg(long)]
    pub json: bool,
    /// Also write JSON, CSV and SVG files into this directory
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

pub(crate) const PER_SECOND: &str = "per second";
pub(crate) const MB_PER_SECOND: &str = "MB/s";
pub(crate) const SECONDS: &str = "s";
pub(crate) const MILLISECONDS: &str = "ms";

/// A benchmark of directories.
pub(crate) struct Suite<'a> {
    pub(crate) name: &'static str,
    /// What is measured, in words.
    pub(crate) title: String,
    /// Numbers of clients; each is a series of rounds of its own.
    pub(crate) clients: &'a [usize],
    /// One round in a new directory, by so many clients.
    pub(crate) round: &'a dyn Fn(&mut Round<'_>, usize) -> Result<(), BenchError>,
}

/// One round of one directory.
pub(crate) struct Round<'a> {
    /// A directory that nothing else uses; it is removed afterwards with all that is in it.
    pub(crate) root: &'a Path,
    pub(crate) env: &'a Env,
    pub(crate) stop: &'a Stop,
    figures: &'a mut Vec<Figure>,
}

/// A phase of one directory, of all rounds.
#[derive(Debug)]
struct Figure {
    phase: Cow<'static, str>,
    unit: &'static str,
    rounds: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    directory: String,
    clients: usize,
    phase: Cow<'static, str>,
    unit: &'static str,
    rounds: Vec<f64>,
    median: f64,
    /// Of the medians, to that of the first directory.
    ratio: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    benchmark: &'static str,
    title: String,
    rounds: u16,
    rows: Vec<Row>,
}

impl Round<'_> {
    pub(crate) fn add(&mut self, phase: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) {
        let phase = phase.into();
        match self.figures.iter_mut().find(|figure| figure.phase == phase) {
            Some(figure) => figure.rounds.push(value),
            None => self.figures.push(Figure { phase, unit, rounds: vec![value] }),
        }
    }

    /// Runs the work of all clients at once and adds its rate: `count` things by each, from the start of all to the end
    /// of the last.
    pub(crate) fn rate(
        &mut self,
        phase: &'static str,
        clients: usize,
        count: u64,
        work: &(dyn Fn(usize) -> io::Result<()> + Sync),
    ) -> Result<(), BenchError> {
        let took = self.together(clients, work)?;
        self.add(phase, PER_SECOND, count as f64 * clients as f64 / took.as_secs_f64().max(1e-9));
        Ok(())
    }

    /// How long a step of one client takes.
    pub(crate) fn timed(&self, work: impl FnOnce() -> io::Result<()>) -> Result<Duration, BenchError> {
        self.stop.check()?;
        let began = self.env.clock.monotonic();
        work().map_err(|source| failed(self.root, source))?;
        Ok(self.env.clock.monotonic() - began)
    }

    fn together(
        &self,
        clients: usize,
        work: &(dyn Fn(usize) -> io::Result<()> + Sync),
    ) -> Result<Duration, BenchError> {
        self.stop.check()?;
        let (begin, mut outcome) = (Barrier::new(clients + 1), Ok(()));
        let mut took = Duration::ZERO;
        std::thread::scope(|scope| {
            let (begin, spawn) = (&begin, |client| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    work(client)
                })
            });
            let clients: Vec<_> = (0..clients).map(spawn).collect();
            begin.wait();
            let started = self.env.clock.monotonic();
            for client in clients {
                let ended = client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")));
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
            took = self.env.clock.monotonic() - started;
        });
        outcome.map_err(|source| failed(self.root, source))?;
        Ok(took)
    }
}

fn failed(path: &Path, source: io::Error) -> BenchError {
    BenchError::File { path: path.display().to_string(), source }
}

/// Measures, and shows the report; builds a runtime for the signals only.
pub(crate) fn run(args: &SideBySideArgs, suite: &Suite<'_>) -> Result<(), BenchError> {
    let env = Env::real();
    let runtime = crate::runtime()?;
    let _entered = runtime.enter();
    let name = crate::scratch::bucket_name(&env);
    let stop = Stop::listen(format!("{name} in the directories measured"));
    // Signals are heard while this thread measures.
    std::thread::scope(|scope| {
        let (ended, end) = tokio::sync::oneshot::channel::<()>();
        scope.spawn(|| runtime.block_on(end));
        let outcome = measure(args, suite, &env, &name, &stop);
        drop(ended);
        show(&env, args, &outcome?)
    })
}

fn measure(args: &SideBySideArgs, suite: &Suite<'_>, env: &Env, name: &str, stop: &Stop) -> Result<Report, BenchError> {
    let mut rows = Vec::new();
    for clients in suite.clients {
        let mut figures: Vec<Vec<Figure>> = args.directories.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.rounds {
            for (directory, figures) in args.directories.iter().zip(&mut figures) {
                let root = &directory.join(name);
                round(&mut Round { root, env, stop, figures }, suite, *clients)?;
            }
        }
        for index in 0..figures[0].len() {
            let first = median(figures[0][index].rounds.iter().copied());
            for (directory, figures) in args.directories.iter().zip(&mut figures) {
                let Figure { phase, unit, rounds } = &figures[index];
                let median = median(rounds.iter().copied());
                rows.push(Row {
                    directory: directory.display().to_string(),
                    clients: *clients,
                    phase: phase.clone(),
                    unit,
                    rounds: rounds.clone(),
                    median,
                    ratio: if first > 0.0 { median / first } else { 0.0 },
                });
            }
        }
    }
    Ok(Report { benchmark: suite.name, title: suite.title.clone(), rounds: args.rounds, rows })
}

/// One round in a directory of its own.
fn round(round: &mut Round<'_>, suite: &Suite<'_>, clients: usize) -> Result<(), BenchError> {
    fs::create_dir(round.root).map_err(|source| failed(round.root, source))?;
    let outcome = (suite.round)(round, clients);
    let removed = fs::remove_dir_all(round.root).map_err(|source| failed(round.root, source));
    outcome.and(removed)
}

fn table(report: &Report) -> Table {
    let mut table = Table::new(&["clients", "phase", "directory", "median", "unit", "of the first"]);
    for row in &report.rows {
        let decimals = if row.median < 100.0 { 2 } else { 0 };
        table.row(vec![
            row.clients.to_string(),
            row.phase.to_string(),
            row.directory.clone(),
            format!("{:.decimals$}", row.median),
            row.unit.to_owned(),
            format!("{:.2}", row.ratio),
        ]);
    }
    table
}

fn show(env: &Env, args: &SideBySideArgs, report: &Report) -> Result<(), BenchError> {
    let table = table(report);
    if args.json {
        report::print_json(report);
    } else {
        println!("margay bench {}: {}, medians of {}\n", report.benchmark, report.title, report.rounds);
        print!("{}", table.text());
    }
    let Some(directory) = &args.report else { return Ok(()) };
    let mut files = vec![
        (format!("{}.json", report.benchmark), report::json(report)),
        (format!("{}.csv", report.benchmark), table.csv()),
    ];
    let mut clients: Vec<usize> = report.rows.iter().map(|row| row.clients).collect();
    clients.dedup();
    for clients in clients {
        files.push((format!("{}-{clients}.svg", report.benchmark), picture(report, clients)));
    }
    report::write_files(env, directory, &files)
}

/// The medians of one number of clients as bars.
fn picture(report: &Report, clients: usize) -> String {
    let (mut names, mut groups) = (Vec::new(), Vec::<Group>::new());
    for row in report.rows.iter().filter(|row| row.clients == clients) {
        if !names.contains(&row.directory) {
            names.push(row.directory.clone());
        }
        let bar = (row.median, row.unit);
        match groups.last_mut() {
            Some(group) if group.name == row.phase => group.bars.push(bar),
            _ => groups.push(Group { name: row.phase.to_string(), bars: vec![bar] }),
        }
    }
    let title = match clients {
        1 => format!("{}: {}", report.benchmark, report.title),
        _ => format!("{}: {}, {clients} at once", report.benchmark, report.title),
    };
    bars::svg(&title, &names, &groups)
}

/// One round of a suite in a directory, for tests: how many figures each phase has.
#[cfg(test)]
pub(crate) fn try_round(root: &Path, suite: &Suite<'_>, clients: usize) -> Result<Vec<(String, usize)>, BenchError> {
    let mut figures = Vec::new();
    let (env, stop) = (Env::real(), Stop::default());
    round(&mut Round { root, env: &env, stop: &stop, figures: &mut figures }, suite, clients)?;
    assert!(figures.iter().all(|figure| figure.rounds.iter().all(|value| *value > 0.0)), "a phase takes some time");
    Ok(figures.iter().map(|figure| (figure.phase.to_string(), figure.rounds.len())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_exists_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let suite = Suite { name: "x", title: String::new(), clients: &[1], round: &|_, _| Ok(()) };
        assert!(try_round(folder.path(), &suite, 1).is_err());
        assert!(folder.path().exists());
    }

    #[test]
    fn a_round_that_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let fail = |round: &mut Round<'_>, clients| {
            round.rate("make", clients, 1, &|client| {
                fs::create_dir(round_root(folder.path()).join(client.to_string()))
            })?;
            Err(BenchError::Interrupted)
        };
        let suite = Suite { name: "x", title: String::new(), clients: &[2], round: &fail };
        assert!(matches!(try_round(&round_root(folder.path()), &suite, 2), Err(BenchError::Interrupted)));
        assert!(!round_root(folder.path()).exists());
    }

    fn round_root(folder: &Path) -> PathBuf {
        folder.join("root")
    }
}
