//! Benchmarks of directories: the same work on several file systems, side by side.
//!
//! Why:        a figure of one file system says little on a shared machine; one beside another's of the same minute does.
//! Invariants: only a directory that the benchmark made is touched, and it is removed, also after Ctrl-C.
//!             Directories are measured in turns, so that a noisy minute hits all of them.
//!             A rival that fails is told of in the report, and the others go on; a directory that fails ends the run.
//! Not here:   the work itself (dirops, mdtest, small, stream).

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use margay_env::Env;

use crate::comparison::{self, Comparison, Entrant, RivalFacts};
use crate::error::BenchError;
use crate::report;
use crate::rivals::{self, Gives, RivalArgs, Rivals};
use crate::stop::Stop;

#[derive(Debug, clap::Args)]
pub struct SideBySideArgs {
    /// Where to work; several are compared with the first
    #[arg(long = "dir", value_name = "DIR", required_unless_present = "rivals")]
    pub directories: Vec<PathBuf>,
    #[command(flatten)]
    pub rivals: RivalArgs,
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
    entrant: &'a mut Entrant,
}

impl Round<'_> {
    pub(crate) fn add(&mut self, phase: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) {
        self.entrant.add(phase.into(), unit, value);
    }

    /// Runs the work of all clients at once and adds its rate: `count` things by each, from the start of all to the end
    /// of the last.
    pub(crate) fn rate(
        &mut self,
        phase: impl Into<Cow<'static, str>>,
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
    let comparison = with_rivals(args, &env, |rivals, name, stop| measure(args, suite, rivals, &env, name, stop))?;
    show(&env, args, &comparison)
}

/// Starts the rivals, and measures with them and the name of a directory to make in each.
pub(crate) fn with_rivals<T>(
    args: &SideBySideArgs,
    env: &Env,
    measure: impl FnOnce(Rivals, &str, &Stop) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let name = crate::scratch::bucket_name(env);
    let work = rivals::work_directory(&args.rivals)?;
    let mut left_behind = format!("{name} in the directories measured");
    if let Some(work) = &work {
        left_behind += &format!(", and the rivals of {}", work.path().display());
    }
    Stop::heard(left_behind, |stop| {
        let rivals = Rivals::start(&args.rivals, Gives::Directory, work, env, stop)?;
        if args.directories.is_empty() && rivals.running.is_empty() {
            return Err(BenchError::Usage("none of the rivals can run here".to_owned()));
        }
        measure(rivals, &name, stop)
    })
}

fn measure(
    args: &SideBySideArgs,
    suite: &Suite<'_>,
    mut rivals: Rivals,
    env: &Env,
    name: &str,
    stop: &Stop,
) -> Result<Comparison, BenchError> {
    let given = args.directories.iter().map(|directory| directory.display().to_string());
    let names: Vec<String> = given.chain(rivals.running.iter().map(|rival| rival.name.clone())).collect();
    let mut failures: Vec<Option<String>> = vec![None; names.len()];
    let mut rows = Vec::new();
    for clients in suite.clients {
        let mut entrants: Vec<Entrant> = names.iter().map(|name| Entrant::new(name)).collect();
        for _ in 0..args.rounds {
            let (directories, started) = entrants.split_at_mut(args.directories.len());
            for (directory, entrant) in args.directories.iter().zip(directories) {
                let root = &directory.join(name);
                round(&mut Round { root, env, stop, entrant }, suite, *clients)?;
            }
            for ((rival, entrant), failure) in
                rivals.running.iter_mut().zip(started).zip(&mut failures[args.directories.len()..])
            {
                if failure.is_some() {
                    continue;
                }
                let root = &rival.directory().join(name);
                let measured = rival.watched(args.rivals.rival_limit, stop, || {
                    round(&mut Round { root, env, stop, entrant }, suite, *clients)
                });
                *failure = match measured {
                    Ok(()) => None,
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    Err(error) => Some(error.to_string()),
                };
            }
        }
        for (entrant, failure) in entrants.iter_mut().zip(&failures) {
            entrant.failure.clone_from(failure);
        }
        rows.extend(comparison::rows(*clients, &entrants));
    }
    let mut facts = RivalFacts::of(&rivals.running);
    for (facts, failure) in facts.iter_mut().zip(&failures[args.directories.len()..]) {
        facts.failure.clone_from(failure);
    }
    Ok(Comparison {
        benchmark: suite.name,
        title: suite.title.clone(),
        rounds: args.rounds,
        rivals: facts,
        absent: std::mem::take(&mut rivals.absent),
        rows,
    })
}

/// One round in a directory of its own.
fn round(round: &mut Round<'_>, suite: &Suite<'_>, clients: usize) -> Result<(), BenchError> {
    fs::create_dir(round.root).map_err(|source| failed(round.root, source))?;
    let outcome = (suite.round)(round, clients);
    let removed = fs::remove_dir_all(round.root).map_err(|source| failed(round.root, source));
    outcome.and(removed)
}

fn show(env: &Env, args: &SideBySideArgs, comparison: &Comparison) -> Result<(), BenchError> {
    match args.json {
        true => report::print_json(comparison),
        false => print!("{}", comparison.text()),
    }
    match &args.report {
        Some(directory) => comparison.write_files(env, directory),
        None => Ok(()),
    }
}

/// One round of a suite in a directory, for tests: how many figures each phase has.
#[cfg(test)]
pub(crate) fn try_round(root: &Path, suite: &Suite<'_>, clients: usize) -> Result<Vec<(String, usize)>, BenchError> {
    let mut entrant = Entrant::default();
    let (env, stop) = (Env::real(), Stop::default());
    round(&mut Round { root, env: &env, stop: &stop, entrant: &mut entrant }, suite, clients)?;
    let figures = &entrant.figures;
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
