//! Benchmarks of directories: the same work on several file systems, side by side.
//!
//! Why:        a figure of one file system says little on a shared machine; one beside another's of the same minute does.
//! Invariants: only a directory that the benchmark made is touched, and it is removed, also after Ctrl-C.
//!             Directories are measured in turns, so that a noisy minute hits all of them.
//! Not here:   the work itself (dirops, goofys, mdtest, small, stream), turns (`turns`), ratios (`comparison`).

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use margay_env::Env;

use crate::comparison::Entrant;
use crate::error::BenchError;
use crate::remove_tree;
use crate::report::OutputArgs;
use crate::rivals::{self, Gives, RivalArgs, Rivals};
use crate::stop::Stop;
use crate::turns::Turns;

#[derive(Debug, clap::Args)]
pub struct SideBySideArgs {
    /// Where to work; several are compared with the first
    #[arg(long = "dir", value_name = "DIR", required_unless_present = "rivals")]
    pub directories: Vec<PathBuf>,
    #[command(flatten)]
    pub rivals: RivalArgs,
    /// How often each is measured, in turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    pub rounds: u16,
    #[command(flatten)]
    pub output: OutputArgs,
}

pub(crate) use crate::comparison::{MB_PER_SECOND, MILLISECONDS, PER_SECOND, SECONDS};

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

    /// Runs the work of all clients at once and adds its rate: `count` things by each, from the start of the first to the
    /// end of the last.
    pub(crate) fn rate(
        &mut self,
        phase: impl Into<Cow<'static, str>>,
        clients: usize,
        count: u64,
        work: &(dyn Fn(usize) -> io::Result<()> + Sync),
    ) -> Result<(), BenchError> {
        self.rate_of(phase, clients, &|client| work(client).map(|()| count))
    }

    /// As [`Round::rate`], where each client says how many it has done.
    pub(crate) fn rate_of(
        &mut self,
        phase: impl Into<Cow<'static, str>>,
        clients: usize,
        work: &(dyn Fn(usize) -> io::Result<u64> + Sync),
    ) -> Result<(), BenchError> {
        let (count, took) = self.together(clients, work)?;
        self.add(phase, PER_SECOND, count as f64 / took.as_secs_f64().max(1e-9));
        Ok(())
    }

    /// How long a step of one client takes.
    pub(crate) fn timed(&self, work: impl FnOnce() -> io::Result<()>) -> Result<Duration, BenchError> {
        self.stop.check()?;
        let began = self.env.clock.monotonic();
        work().map_err(|source| self.failed(source))?;
        Ok(self.env.clock.monotonic() - began)
    }

    /// What fails after Ctrl-C was stopped by it: steps look for it, and the programs that they start hear that key, too.
    fn failed(&self, source: io::Error) -> BenchError {
        self.stop.check().err().unwrap_or_else(|| BenchError::file(self.root)(source))
    }

    /// What all have done, and how long it took by their own clocks: this thread may wake late.
    fn together(
        &self,
        clients: usize,
        work: &(dyn Fn(usize) -> io::Result<u64> + Sync),
    ) -> Result<(u64, Duration), BenchError> {
        self.stop.check()?;
        let (begin, clock) = (&Barrier::new(clients), &self.env.clock);
        let client = |client| {
            begin.wait();
            let started = clock.monotonic();
            work(client).map(|count| (count, started, clock.monotonic()))
        };
        let ended: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..clients).map(|number| scope.spawn(move || client(number))).collect();
            let panicked = |_| Err(io::Error::other("a client panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        });
        let (mut count, mut first, mut last) = (0, Duration::MAX, Duration::ZERO);
        for client in ended {
            let (done, started, ended) = client.map_err(|source| self.failed(source))?;
            (count, first, last) = (count + done, first.min(started), last.max(ended));
        }
        Ok((count, last.saturating_sub(first)))
    }
}

/// Measures, and shows the report; builds a runtime for the signals only.
pub(crate) fn run(args: &SideBySideArgs, suite: &Suite<'_>) -> Result<(), BenchError> {
    let env = Env::real();
    let given = args.directories.iter().map(|directory| (directory.display().to_string(), directory.clone())).collect();
    let comparison =
        with_rivals(&args.rivals, &args.output, !args.directories.is_empty(), &env, |rivals, name, stop| {
            let mut turns = Turns::new(given, rivals, |rival| Ok(rival.directory().to_owned()), args.rounds, stop)?;
            turns.show_progress(&env, suite.name, suite.clients.len());
            for clients in suite.clients {
                turns.measure(*clients, &mut |directory: &PathBuf, entrant| {
                    let (root, env) = (&directory.join(name), &env);
                    round(&mut Round { root, env, stop, entrant }, suite, *clients)
                })?;
            }
            Ok(turns.compare(suite.name, suite.title.clone()))
        })?;
    args.output.show(&env, &comparison)
}

/// Starts the rivals, and measures with them and the name of a directory to make in each; `given`: others than they
/// take part.
pub(crate) fn with_rivals<T>(
    args: &RivalArgs,
    output: &OutputArgs,
    given: bool,
    env: &Env,
    measure: impl FnOnce(Rivals, &str, &Stop) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    if args.latency.is_some() && args.rivals.is_empty() {
        let told = "--latency is put before the store of rivals; name some with --rival";
        return Err(BenchError::Usage(told.to_owned()));
    }
    output.prepare(env)?;
    let name = crate::scratch::bucket_name(env);
    let work = rivals::work_directory(args)?;
    let left_behind = rivals::left_behind(&format!("{name} in the directories measured"), work.as_ref());
    Stop::heard(left_behind, |stop| {
        let rivals = Rivals::start(args, &[Gives::Directory], work, env, stop)?;
        if !given && rivals.running.is_empty() {
            return Err(BenchError::Usage("none of the rivals can run here".to_owned()));
        }
        measure(rivals, &name, stop)
    })
}

/// One round in a directory of its own.
fn round(round: &mut Round<'_>, suite: &Suite<'_>, clients: usize) -> Result<(), BenchError> {
    fs::create_dir(round.root).map_err(BenchError::file(round.root))?;
    let outcome = (suite.round)(round, clients);
    let removed = remove_tree::in_passes(round.env, || fs::remove_dir_all(round.root));
    outcome.and(removed.map_err(remove_tree::left(round.root)))
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
