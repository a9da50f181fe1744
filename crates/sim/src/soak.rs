//! Runs many seeds, one after the other on each of several threads, and says how to replay a failure.
//!
//! Invariants: a seed that does not end within [`SEED_TIME_MAX`] is a failure too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use margay_env::Env;
use parking_lot::Mutex;

use crate::engine::{self, Tally};
use crate::machine::Lies;
use crate::{Failure, server, volume};

/// Longest time for one seed.
pub const SEED_TIME_MAX: Duration = Duration::from_secs(120);

/// What runs on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layer {
    /// Metadata engine and segment store
    Engine,
    /// The file system above them
    Volume,
    /// The whole server, spoken to over sockets
    Server,
}

impl Layer {
    pub const ALL: [Layer; 3] = [Layer::Engine, Layer::Volume, Layer::Server];

    pub fn name(self) -> &'static str {
        match self {
            Layer::Engine => "engine",
            Layer::Volume => "volume",
            Layer::Server => "server",
        }
    }

    /// Runs one seed on this thread.
    pub fn run(self, seed: u64, lies: Lies) -> Result<Tally, Failure> {
        match self {
            Layer::Engine => engine::run(seed, lies),
            Layer::Volume => volume::run(seed, lies),
            Layer::Server => server::run(seed, lies),
        }
    }
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Report {
    pub clean: u64,
    pub tally: Tally,
    /// Seed and what went wrong.
    pub failed: BTreeMap<u64, Failure>,
}

impl Report {
    fn add(&mut self, seed: u64, result: Result<Tally, Failure>) {
        match result {
            Ok(tally) => {
                self.clean += 1;
                self.tally.lives += tally.lives;
                self.tally.acknowledged += tally.acknowledged;
                self.tally.broken_openings += tally.broken_openings;
            }
            Err(failure) => drop(self.failed.insert(seed, failure)),
        }
    }
}

/// The command that runs one seed again.
pub fn replay_command(layer: Layer, seed: u64) -> String {
    format!("cargo run -p margay-sim --bin sim -- replay {seed} --layer {}", layer.name())
}

/// Runs `seeds` seeds from `first` on with `jobs` threads; ends early after `failures_max` failures. `told` hears of
/// each seed as it ends.
pub fn soak(
    layer: Layer,
    (first, seeds): (u64, u64),
    (jobs, failures_max): (u64, usize),
    lies: Lies,
    told: &mut dyn FnMut(u64, &Report),
) -> Report {
    let clock = Env::real().clock;
    let next = Arc::new(AtomicU64::new(first));
    let running: Arc<Mutex<BTreeMap<u64, Duration>>> = Arc::default();
    let (sender, results) = mpsc::channel();
    for _ in 0..jobs.max(1) {
        let (next, running, sender, clock) = (next.clone(), running.clone(), sender.clone(), clock.clone());
        std::thread::spawn(move || {
            loop {
                let seed = next.fetch_add(1, Ordering::AcqRel);
                if seed >= first + seeds {
                    return;
                }
                running.lock().insert(seed, clock.monotonic());
                let result = std::panic::catch_unwind(|| layer.run(seed, lies));
                running.lock().remove(&seed);
                let result = result.unwrap_or_else(|_| Err(Failure::new("something panicked")));
                if sender.send((seed, result)).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let mut report = Report::default();
    loop {
        match results.recv_timeout(Duration::from_secs(1)) {
            Ok((seed, result)) => {
                report.add(seed, result);
                told(seed, &report);
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return report,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        let late: Vec<u64> = running
            .lock()
            .iter()
            .filter(|(seed, since)| clock.monotonic() - **since > SEED_TIME_MAX && !report.failed.contains_key(seed))
            .map(|(seed, _)| *seed)
            .collect();
        for seed in &late {
            report.add(*seed, Err(Failure(format!("does not end within {} s", SEED_TIME_MAX.as_secs()))));
            told(*seed, &report);
        }
        if report.failed.len() >= failures_max.max(1) || !late.is_empty() {
            return report;
        }
    }
}
