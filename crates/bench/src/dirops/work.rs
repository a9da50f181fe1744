//! The calls of the directory benchmark.

#![allow(clippy::disallowed_methods, reason = "the calls are what is measured")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use margay_env::Clock;

use super::order::Order;
use crate::error::BenchError;
use crate::listing;
use crate::side_by_side::Round;
use crate::stop::Stop;

/// Renames of a full directory in one round.
const RENAMES: u64 = 2000;
/// After so long it is enough of them: mounts of buckets copy each file for one.
const RENAME_TIME: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Work {
    pub(super) root: PathBuf,
    pub(super) files: u64,
    pub(super) clients: usize,
    pub(super) sync: bool,
    /// Bytes that each new file gets before its fsync.
    pub(super) fsync_each: Option<u32>,
    /// Looked at before each file: a phase of millions takes minutes.
    pub(super) stop: Stop,
}

impl Work {
    /// Runs all phases once.
    pub(super) fn run(&self, round: &mut Round<'_>) -> Result<(), BenchError> {
        let clients = self.clients;
        round.timed(|| (0..clients).try_for_each(|client| fs::create_dir(self.folder(client))))?;
        if self.fsync_each.is_some() {
            round.rate("create with fsync", clients, self.files, &|client| self.create(client))?;
            let numbers = Order::Forward.numbers(self.files);
            return round.rate("delete", clients, self.files, &|client| self.delete(client, &numbers));
        }
        let orders = [
            ("delete", Order::Forward),
            ("delete in reverse", Order::Reverse),
            ("delete at random", Order::Random { seed: self.files }),
        ];
        for (delete, order) in orders {
            round.rate("create", clients, self.files, &|client| self.create(client))?;
            if order == Order::Forward {
                round.rate("stat", clients, self.files, &|client| self.stat(client))?;
                round.rate("list", clients, self.files, &|client| self.list(client, false))?;
                round.rate("list with stat", clients, self.files, &|client| self.list(client, true))?;
                let clock = Arc::clone(&round.env.clock);
                round.rate_of("rename directory", clients, &|client| self.rename(client, &*clock))?;
            }
            let numbers = order.numbers(self.files);
            round.rate(delete, clients, self.files, &|client| self.delete(client, &numbers))?;
        }
        Ok(())
    }

    fn folder(&self, client: usize) -> PathBuf {
        self.root.join(format!("client-{client}"))
    }

    fn end(&self, folder: &Path) -> io::Result<()> {
        if self.sync { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    fn create(&self, client: usize) -> io::Result<()> {
        let folder = self.folder(client);
        let bytes = vec![b'x'; self.fsync_each.unwrap_or_default() as usize];
        for number in 0..self.files {
            self.stop.go_on()?;
            let mut file = OpenOptions::new().write(true).create_new(true).open(folder.join(name(number)))?;
            if self.fsync_each.is_some() {
                file.write_all(&bytes)?;
                file.sync_all()?;
            }
        }
        self.end(&folder)
    }

    fn stat(&self, client: usize) -> io::Result<()> {
        let folder = self.folder(client);
        (0..self.files).try_for_each(|number| {
            self.stop.go_on()?;
            fs::symlink_metadata(folder.join(name(number))).map(drop)
        })
    }

    fn list(&self, client: usize, long: bool) -> io::Result<()> {
        listing::list(&self.folder(client), self.files, long)
    }

    /// How many there were.
    fn rename(&self, client: usize, clock: &dyn Clock) -> io::Result<u64> {
        let (one, other) = (self.folder(client), self.root.join(format!("moved-{client}")));
        let (began, mut renames) = (clock.monotonic(), 0);
        while renames < RENAMES && clock.monotonic() - began < RENAME_TIME {
            self.stop.go_on()?;
            fs::rename(&one, &other)?;
            fs::rename(&other, &one)?;
            renames += 2;
        }
        self.end(&self.root)?;
        Ok(renames)
    }

    fn delete(&self, client: usize, numbers: &[u64]) -> io::Result<()> {
        let folder = self.folder(client);
        numbers.iter().try_for_each(|number| {
            self.stop.go_on()?;
            fs::remove_file(folder.join(name(*number)))
        })?;
        self.end(&folder)
    }
}

/// The name of a file by its number.
pub(super) fn name(number: u64) -> String {
    format!("file-{number:010}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side_by_side::{Suite, try_round};

    #[test]
    fn a_round_measures_each_phase_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("x");
        let run = |round: &mut Round<'_>, clients| {
            let (root, stop) = (round.root.to_owned(), round.stop.clone());
            Work { root, files: 20, clients, sync: true, fsync_each: None, stop }.run(round)
        };
        let suite = Suite { name: "dirops", title: String::new(), clients: &[2], round: &run };
        let figures = try_round(&root, &suite, 2).unwrap();
        assert_eq!(figures.iter().map(|(_, rounds)| *rounds).collect::<Vec<_>>(), [3, 1, 1, 1, 1, 1, 1, 1]);
        assert!(!root.exists());
    }

    #[test]
    fn with_bytes_files_are_only_created_and_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("x");
        let run = |round: &mut Round<'_>, clients| {
            let (root, stop) = (round.root.to_owned(), round.stop.clone());
            Work { root, files: 20, clients, sync: false, fsync_each: Some(3), stop }.run(round)
        };
        let suite = Suite { name: "dirops", title: String::new(), clients: &[2], round: &run };
        let figures = try_round(&root, &suite, 1).unwrap();
        assert_eq!(
            figures.iter().map(|(phase, _)| phase.as_str()).collect::<Vec<_>>(),
            ["create with fsync", "delete"]
        );
        assert!(!root.exists());
    }
}
