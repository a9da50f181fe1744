//! The calls of the directory benchmark, and their times.
//!
//! Invariants: a round begins and ends without the benchmark's directory.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Duration;

use margay_env::Env;
use margay_env::sim::SimRandom;

use crate::error::BenchError;
use crate::stop::Stop;

/// Renames of a full directory in one round.
const RENAMES: u64 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Create,
    Stat,
    List,
    ListLong,
    Rename,
    Delete,
    DeleteReverse,
    DeleteRandom,
}

impl Phase {
    pub(super) const ALL: [Phase; 8] = [
        Phase::Create,
        Phase::Stat,
        Phase::List,
        Phase::ListLong,
        Phase::Rename,
        Phase::Delete,
        Phase::DeleteReverse,
        Phase::DeleteRandom,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::List => "list",
            Phase::ListLong => "list with stat",
            Phase::Rename => "rename directory",
            Phase::Delete => "delete",
            Phase::DeleteReverse => "delete in reverse",
            Phase::DeleteRandom => "delete at random",
        }
    }
}

#[derive(Debug)]
pub(super) struct Work {
    pub(super) root: PathBuf,
    pub(super) files: u64,
    pub(super) clients: usize,
    pub(super) sync: bool,
}

impl Work {
    /// Runs all phases once and adds the rate of each.
    pub(super) fn round(&self, env: &Env, stop: &Stop, rates: &mut [Vec<f64>]) -> Result<(), BenchError> {
        let failed = |source| BenchError::File { path: self.root.display().to_string(), source };
        fs::create_dir(&self.root).map_err(failed)?;
        let outcome = self.phases(env, stop, rates);
        let removed = fs::remove_dir_all(&self.root).map_err(failed);
        outcome?;
        removed
    }

    fn phases(&self, env: &Env, stop: &Stop, rates: &mut [Vec<f64>]) -> Result<(), BenchError> {
        let orders = [(Phase::Delete, Order::Forward), (Phase::DeleteReverse, Order::Reverse)];
        let orders = orders.into_iter().chain([(Phase::DeleteRandom, Order::Random)]);
        for client in 0..self.clients {
            let folder = self.folder(client);
            fs::create_dir(&folder)
                .map_err(|source| BenchError::File { path: folder.display().to_string(), source })?;
        }
        for (delete, order) in orders {
            let mut time = |phase: Phase, count: u64, work: &(dyn Fn(usize) -> io::Result<()> + Sync)| {
                stop.check()?;
                let took = self.together(env, work)?;
                rates[Phase::ALL.iter().position(|one| *one == phase).unwrap_or(0)]
                    .push(count as f64 * self.clients as f64 / took.as_secs_f64().max(1e-9));
                Ok::<(), BenchError>(())
            };
            time(Phase::Create, self.files, &|client| self.create(client))?;
            if order == Order::Forward {
                time(Phase::Stat, self.files, &|client| self.stat(client))?;
                time(Phase::List, self.files, &|client| self.list(client, false))?;
                time(Phase::ListLong, self.files, &|client| self.list(client, true))?;
                time(Phase::Rename, RENAMES, &|client| self.rename(client))?;
            }
            let numbers = order.numbers(self.files);
            time(delete, self.files, &|client| self.delete(client, &numbers))?;
        }
        Ok(())
    }

    /// Runs the work of all clients at once; from the start of all to the end of the last.
    fn together(&self, env: &Env, work: &(dyn Fn(usize) -> io::Result<()> + Sync)) -> Result<Duration, BenchError> {
        let (begin, mut outcome) = (Barrier::new(self.clients + 1), Ok(()));
        let mut took = Duration::ZERO;
        std::thread::scope(|scope| {
            let (begin, spawn) = (&begin, |client| {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    work(client)
                })
            });
            let clients: Vec<_> = (0..self.clients).map(spawn).collect();
            begin.wait();
            let started = env.clock.monotonic();
            for client in clients {
                let ended = client.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")));
                outcome = std::mem::replace(&mut outcome, Ok(())).and(ended);
            }
            took = env.clock.monotonic() - started;
        });
        outcome.map_err(|source| BenchError::File { path: self.root.display().to_string(), source })?;
        Ok(took)
    }

    fn folder(&self, client: usize) -> PathBuf {
        self.root.join(format!("client-{client}"))
    }

    fn end(&self, folder: &Path) -> io::Result<()> {
        if self.sync { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    fn create(&self, client: usize) -> io::Result<()> {
        let folder = self.folder(client);
        for number in 0..self.files {
            OpenOptions::new().write(true).create_new(true).open(folder.join(name(number)))?;
        }
        self.end(&folder)
    }

    fn stat(&self, client: usize) -> io::Result<()> {
        let folder = self.folder(client);
        (0..self.files).try_for_each(|number| fs::symlink_metadata(folder.join(name(number))).map(drop))
    }

    fn list(&self, client: usize, long: bool) -> io::Result<()> {
        let mut lines = 0;
        for line in fs::read_dir(self.folder(client))? {
            let line = line?;
            if long {
                line.metadata()?;
            }
            lines += 1;
        }
        if lines == self.files { Ok(()) } else { Err(io::Error::other(format!("{lines} files are listed"))) }
    }

    fn rename(&self, client: usize) -> io::Result<()> {
        let (one, other) = (self.folder(client), self.root.join(format!("moved-{client}")));
        for _ in 0..RENAMES / 2 {
            fs::rename(&one, &other)?;
            fs::rename(&other, &one)?;
        }
        self.end(&self.root)
    }

    fn delete(&self, client: usize, numbers: &[u64]) -> io::Result<()> {
        let folder = self.folder(client);
        numbers.iter().try_for_each(|number| fs::remove_file(folder.join(name(*number))))?;
        self.end(&folder)
    }
}

fn name(number: u64) -> String {
    format!("file-{number:010}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Forward,
    Reverse,
    Random,
}

impl Order {
    fn numbers(self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (0..count).collect();
        match self {
            Order::Forward => {}
            Order::Reverse => numbers.reverse(),
            Order::Random => {
                let random = SimRandom::new(count);
                for last in (1..numbers.len()).rev() {
                    numbers.swap(last, random.below(last as u64 + 1) as usize);
                }
            }
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_measures_each_phase_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work { root: folder.path().join("x"), files: 20, clients: 2, sync: true };
        let mut rates = vec![Vec::new(); Phase::ALL.len()];
        work.round(&Env::real(), &Stop::default(), &mut rates).unwrap();
        assert_eq!(rates.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 1, 1, 1, 1, 1, 1]);
        assert!(!work.root.exists());
    }

    #[test]
    fn a_directory_that_exists_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let work = Work { root: folder.path().to_owned(), files: 1, clients: 1, sync: false };
        assert!(work.round(&Env::real(), &Stop::default(), &mut vec![Vec::new(); Phase::ALL.len()]).is_err());
        assert!(folder.path().exists());
    }

    #[test]
    fn every_order_names_each_file_once() {
        for order in [Order::Forward, Order::Reverse, Order::Random] {
            let mut numbers = order.numbers(100);
            assert_eq!(order == Order::Forward, numbers.is_sorted());
            numbers.sort_unstable();
            assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        }
    }
}
