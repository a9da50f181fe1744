//! kill -9 of the real binary at random moments under mixed load, again and again.
//!
//! Why:        the simulated disk knows what a power cut keeps; this shows that the program, its sockets, its
//!             start and its commands hold on a real kernel.
//! Invariants: as in `server`: what was answered before the kill is there after the next start, nothing is torn, fsck
//!             finds nothing, and when all is removed no space stays behind. All of it beside `upkeep`.
//! Not here:   lost power: what a killed process wrote stays in the kernel (see the simulated layers).

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use margay_env::sim::SimRandom;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, LocalSet};

use crate::client::{Client, Excuse, Habits};
use crate::http::Http;
use crate::ledger::Ledger;
use crate::process::{Process, at_rest};
use crate::target::{Target, Trouble};
use crate::upkeep::{Done, ExpiryArea, Upkeep};
use crate::verify::{Verdict, verify};
use crate::{Failure, fail};

/// Share of cycles that are killed while they start, in percent.
const EARLY_PERCENT: u64 = 15;
/// Latest moment of such a kill, in milliseconds after the start.
const EARLY_MS_MAX: u64 = 60;
/// Earliest moment of the other kills, in milliseconds after the first request.
const LATE_MS_MIN: u64 = 50;
/// Earliest moment of the kill of a long life, in milliseconds: passes that nobody asked for, and checks, begin after 2 s.
const LONG_MS_MIN: u64 = 2500;
/// So many cycles have to show that reclaim and expiry did something.
const PROOF_CYCLES: u64 = 10;

#[derive(Clone, Debug)]
pub struct Options {
    pub binary: PathBuf,
    /// The data directory; its log is beside it.
    pub data: PathBuf,
    pub cycles: u64,
    pub connections: usize,
    /// Latest moment of a kill, in milliseconds after the first request.
    pub kill_ms_max: u64,
    /// Share of lives that are long, in percent.
    pub long_percent: u64,
    /// Latest moment of a kill in those.
    pub long_ms_max: u64,
    /// fsck runs after so many cycles, and at the end.
    pub fsck_every: u64,
    pub seed: u64,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Cycles after which everything was right.
    pub clean: u64,
    pub acknowledged: u64,
    /// Cycles that were killed while they started.
    pub early: u64,
    /// Cycles with a long life.
    pub long: u64,
    pub fscks: u64,
    pub upkeep: Done,
}

struct Loop<'a> {
    options: &'a Options,
    random: SimRandom,
    runtime: Runtime,
    report: Report,
}

/// Runs all cycles; `told` hears of each.
pub fn run(options: &Options, told: &mut dyn FnMut(&Report)) -> (Report, Result<(), Failure>) {
    let built = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = built.expect("the test machine has threads left");
    let random = SimRandom::new(options.seed);
    let mut all = Loop { options, random, runtime, report: Report::default() };
    let outcome = all.run(told);
    (all.report, outcome)
}

impl Loop<'_> {
    fn run(&mut self, told: &mut dyn FnMut(&Report)) -> Result<(), Failure> {
        let mut ledger = Ledger::new(self.options.connections);
        for cycle in 1..=self.options.cycles {
            ledger = self.cycle(ledger).map_err(|failure| Failure(format!("cycle {cycle}: {failure}")))?;
            if cycle.is_multiple_of(self.options.fsck_every.max(1)) {
                self.fsck()?;
            }
            self.report.clean = cycle;
            self.report.acknowledged = ledger.acknowledged;
            told(&self.report);
        }
        self.empty(ledger).map_err(|failure| Failure(format!("at the end: {failure}")))?;
        if self.options.cycles < PROOF_CYCLES { Ok(()) } else { self.report.upkeep.shows_something() }
    }

    fn start(&self) -> Result<Process, Failure> {
        Process::start(&self.options.binary, &self.options.data, &[])
    }

    fn fsck(&mut self) -> Result<(), Failure> {
        self.report.fscks += 1;
        at_rest(&self.options.binary, "fsck", &self.options.data).map(drop)
    }

    /// Start, check, load, kill.
    fn cycle(&mut self, ledger: Ledger) -> Result<Ledger, Failure> {
        let mut process = self.start()?;
        if self.random.chance(EARLY_PERCENT) {
            std::thread::sleep(Duration::from_millis(self.random.below(EARLY_MS_MAX)));
            process.kill();
            self.report.early += 1;
            process = self.start()?;
        }
        let port = process.port()?;
        let upkeep = self.upkeep(port);
        let ledger = self.check(port, ledger)?;
        let ledger = Rc::new(RefCell::new(ledger));
        let local = LocalSet::new();
        let life = self.life();
        let loaded = local.block_on(&self.runtime, self.load(port, &ledger, life));
        // Frozen since the end of the load: what is answered now does not count.
        let alive = process.check();
        upkeep.excuse();
        process.kill();
        drop(local);
        let done = upkeep.end();
        alive?;
        loaded?;
        self.report.upkeep.add(done?);
        let mut ledger = Rc::into_inner(ledger).expect("the clients are gone").into_inner();
        ledger.thaw();
        Ok(ledger)
    }

    fn upkeep(&self, port: u16) -> Upkeep {
        Upkeep::beside(&self.options.data, port, ExpiryArea::APART, self.random.below(u64::MAX))
    }

    fn life(&mut self) -> Duration {
        let long = self.random.chance(self.options.long_percent);
        self.report.long += u64::from(long);
        let (least, most) =
            if long { (LONG_MS_MIN, self.options.long_ms_max) } else { (LATE_MS_MIN, self.options.kill_ms_max) };
        Duration::from_millis(least + self.random.below(most.saturating_sub(least).max(1)))
    }

    fn check(&self, port: u16, mut ledger: Ledger) -> Result<Ledger, Failure> {
        let http = Http::new(port);
        LocalSet::new().block_on(&self.runtime, async {
            match verify(&http, &mut ledger, &|_| false).await? {
                Verdict::Right => Ok(ledger),
                Verdict::BrokenOff => fail!("the check broke off"),
            }
        })
    }

    async fn load(&self, port: u16, ledger: &Rc<RefCell<Ledger>>, life: Duration) -> Result<(), Failure> {
        let habits = Habits { object_bytes_max: 3 << 20, long_uploads_percent: 4, operations: u64::MAX };
        let excuse: Excuse = Rc::new(|_| false);
        let mut tasks = JoinSet::new();
        for number in 0..self.options.connections {
            let (target, ledger, excuse) = (Rc::new(Http::new(port)), Rc::clone(ledger), Rc::clone(&excuse));
            let random = SimRandom::new(self.random.below(u64::MAX));
            tasks.spawn_local(Client { target, ledger, number, random, habits, excuse }.run());
        }
        let ended = tokio::time::timeout(life, async {
            while let Some(ended) = tasks.join_next().await {
                ended.unwrap_or_else(|error| Err(Failure(format!("a client broke off: {error}"))))?;
            }
            Ok(())
        });
        let ended = ended.await.unwrap_or(Ok(()));
        ledger.borrow_mut().freeze();
        tasks.detach_all();
        ended
    }

    /// Removes everything: nothing may stay behind.
    fn empty(&mut self, ledger: Ledger) -> Result<(), Failure> {
        let mut process = self.start()?;
        let port = process.port()?;
        let upkeep = self.upkeep(port);
        self.check(port, ledger)?;
        let http = Http::new(port);
        let removed: Result<(), Trouble> = LocalSet::new().block_on(&self.runtime, async {
            for (key, id) in http.uploads().await? {
                http.abort(&key, &id).await?;
            }
            for (key, _) in http.list("").await? {
                http.delete(&key).await?;
            }
            Ok(())
        });
        removed.map_err(|trouble| Failure(format!("cannot remove everything: {trouble}")))?;
        self.report.upkeep.add(upkeep.settle()?);
        process.kill();
        // The first pass folds the log and lets its files go, the second one gives back what that made free.
        for _ in 0..2 {
            at_rest(&self.options.binary, "compact", &self.options.data)?;
        }
        at_rest(&self.options.binary, "scrub", &self.options.data)?;
        self.fsck()?;
        let left = data_files(&self.options.data)?;
        if left.is_empty() { Ok(()) } else { fail!("everything was removed, and these files stay: {left:?}") }
    }
}

/// Files of packs and raw segments. Logs are left out: a stopped server keeps the one that it would go on with.
fn data_files(data: &Path) -> Result<Vec<String>, Failure> {
    let segments = std::fs::read_dir(data.join("segments")).map_err(|error| Failure(error.to_string()))?;
    let names = segments.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    Ok(names.filter(|name| name.ends_with(".pack") || name.ends_with(".raw")).collect())
}
