//! All that a server does beside requests, at its most aggressive and at random moments, beside a test of the real binary.
//!
//! Why:        reclaim met a write at the wrong moment once, and live files were lost: what is tested alone shows nothing of
//!             what it does to others.
//! Layout:     `control` asks the server, `short_lived` makes what expires.
//! Invariants: U1 checkpoints, passes of reclaim without a quarantine's time, scrubs and checks come at random moments, never
//!                more than `PAUSE_MS_MAX` apart, while objects, versions and uploads that share bytes with others expire.
//!             U2 what the server finds wrong is a failure: findings of a check, damage, a segment that was called dead
//!                wrongly, a pass or a round of expiry that failed.
//!             U3 an order that fails is a failure too, unless it was said before that the server ends.
//! Not here:   the simulated worlds, which call reclaim themselves (volume, server).

mod control;
mod short_lived;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use margay_env::Env;
use margay_env::sim::SimRandom;

use crate::{Failure, fail};
pub(crate) use short_lived::ExpiryArea;

/// What a server waits an hour or a day for comes within seconds, and tables that hold much hold little.
pub(crate) const SETTINGS: [&str; 6] = [
    "limits.quarantine_time=1",
    "limits.check_interval=1",
    "lifecycle.day_seconds=1",
    "limits.overlay_bytes_max=4MiB",
    "limits.paths_max=16",
    "limits.known_files_max=16",
];

/// Longest pause between two orders, in milliseconds.
const PAUSE_MS_MAX: u64 = 80;
/// Until a check of all rows has come, and until all that is due has expired.
const SETTLED_TIME_MAX: Duration = Duration::from_secs(60);
const SETTLED_STEP: Duration = Duration::from_millis(100);
/// What a server counts and must never count.
const NEVER: [&str; 5] = [
    "margay_check_findings",
    "margay_quarantine_disputed_total",
    "margay_reclaim_damaged_runs_total",
    "margay_reclaim_failed_total",
    "margay_expiry_failed_total",
];

/// What was done, of all lives of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Checkpoints and passes that were asked for, and scrubs.
    pub orders: u64,
    pub moved_bytes: u64,
    pub removed_segments: u64,
    /// Objects, versions and uploads.
    pub expired: u64,
}

impl Done {
    pub(crate) fn add(&mut self, more: Done) {
        self.orders += more.orders;
        self.moved_bytes += more.moved_bytes;
        self.removed_segments += more.removed_segments;
        self.expired += more.expired;
    }

    /// A test beside which nothing was moved, removed or expired shows nothing.
    pub(crate) fn shows_something(&self) -> Result<(), Failure> {
        if self.moved_bytes > 0 && self.removed_segments > 0 && self.expired > 0 {
            return Ok(());
        }
        fail!("this shows nothing: {self}")
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "{} orders, reclaim moved {} KiB and removed {} segments, {} expired",
            self.orders,
            self.moved_bytes >> 10,
            self.removed_segments,
            self.expired
        )
    }
}

/// Counters of a server, by name.
type Counters = BTreeMap<String, u64>;

/// What the threads know of each other.
#[derive(Debug)]
struct Shared {
    data: PathBuf,
    stop: AtomicBool,
    /// The server ends: what fails now does not count.
    excused: AtomicBool,
}

impl Shared {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn excused(&self) -> bool {
        self.excused.load(Ordering::Acquire)
    }

    fn pause(&self, random: &SimRandom) {
        if !self.stopped() {
            std::thread::sleep(Duration::from_millis(random.below(PAUSE_MS_MAX)));
        }
    }
}

/// The work beside one life of a server; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Upkeep {
    shared: Arc<Shared>,
    place: ExpiryArea,
    port: u16,
    threads: Vec<JoinHandle<Result<Done, Failure>>>,
}

impl Upkeep {
    /// Begins beside the server of `data`, whose S3 door is at `port`.
    pub(crate) fn beside(data: &Path, port: u16, place: ExpiryArea, seed: u64) -> Upkeep {
        let (stop, excused) = (AtomicBool::new(false), AtomicBool::new(false));
        let shared = Arc::new(Shared { data: data.to_owned(), stop, excused });
        let [orders, short_lived] = [Arc::clone(&shared), Arc::clone(&shared)];
        let threads = vec![
            std::thread::spawn(move || give_orders(&orders, &SimRandom::new(seed))),
            std::thread::spawn(move || short_lived::make(&short_lived, port, place, &SimRandom::new(!seed))),
        ];
        Upkeep { shared, place, port, threads }
    }

    /// The server is about to be killed.
    pub(crate) fn excuse(&self) {
        self.shared.excused.store(true, Ordering::Release);
    }

    /// Whether it has broken off: then `end` says why.
    pub(crate) fn broke_off(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Ends, and says what was done.
    pub(crate) fn end(mut self) -> Result<Done, Failure> {
        self.stop()
    }

    fn stop(&mut self) -> Result<Done, Failure> {
        self.shared.stop.store(true, Ordering::Release);
        let (mut done, mut failed) = (Done::default(), Vec::new());
        for thread in self.threads.drain(..) {
            match thread.join() {
                Ok(Ok(more)) => done.add(more),
                Ok(Err(failure)) => failed.push(failure.0),
                Err(_) => failed.push("a thread of the upkeep panicked".to_owned()),
            }
        }
        if failed.is_empty() { Ok(done) } else { Err(Failure(failed.join("; "))) }
    }

    /// Ends beside a server that goes on: all that may expire has to, and the next check finds nothing wrong.
    pub(crate) fn settle(mut self) -> Result<Done, Failure> {
        let mut done = self.stop()?;
        let before = counters(&self.shared.data)?;
        short_lived::all_expires(self.port, self.place)?;
        let clock = Env::real().clock;
        let (now, began) = (clock.now().seconds().unsigned_abs(), clock.monotonic());
        while value(&counters(&self.shared.data)?, "margay_check_timestamp_seconds") <= now {
            if clock.monotonic() - began > SETTLED_TIME_MAX {
                fail!("no check of all rows within {SETTLED_TIME_MAX:?}");
            }
            clock.sleep(SETTLED_STEP);
        }
        let after = counters(&self.shared.data)?;
        never(&after)?;
        let (before, after) = (by_itself(&before), by_itself(&after));
        done.moved_bytes += after.moved_bytes - before.moved_bytes;
        done.removed_segments += after.removed_segments - before.removed_segments;
        done.expired += after.expired - before.expired;
        Ok(done)
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.excuse();
        // Whoever drops it has a failure of its own.
        let _ = self.stop();
    }
}

fn value(counters: &Counters, name: &str) -> u64 {
    counters.get(name).copied().unwrap_or_default()
}

fn counters(data: &Path) -> Result<Counters, Failure> {
    let text = control::ask(data, "GET", "/metrics").map_err(|error| Failure(format!("metrics: {error}")))?;
    let line = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse::<f64>().ok()? as u64))
    };
    Ok(text.lines().filter_map(line).collect())
}

fn never(counters: &Counters) -> Result<(), Failure> {
    match NEVER.iter().find(|name| value(counters, name) > 0) {
        Some(name) => fail!("the server counts {} of {name}", value(counters, name)),
        None => Ok(()),
    }
}

/// What the server did without being asked.
fn by_itself(counters: &Counters) -> Done {
    let expired =
        ["objects", "versions", "uploads"].map(|what| value(counters, &format!("margay_expiry_{what}_total")));
    Done {
        orders: 0,
        moved_bytes: value(counters, "margay_reclaim_moved_bytes_total"),
        removed_segments: value(counters, "margay_reclaim_removed_segments_total"),
        expired: expired.iter().sum(),
    }
}

fn give_orders(shared: &Shared, random: &SimRandom) -> Result<Done, Failure> {
    let (mut asked, mut by_itself) = (Done::default(), Done::default());
    while !shared.stopped() {
        match order(shared, random, &mut asked) {
            Ok(done) => by_itself = done,
            Err(_) if shared.excused() => break,
            Err(failure) => return Err(failure),
        }
        shared.pause(random);
    }
    asked.add(by_itself);
    Ok(asked)
}

/// One order; then what the server has done by itself so far.
fn order(shared: &Shared, random: &SimRandom, asked: &mut Done) -> Result<Done, Failure> {
    let work = if random.chance(85) { "compact" } else { "scrub" };
    let answer = control::ask(&shared.data, "POST", &format!("/{work}"));
    let answer = answer.map_err(|error| Failure(format!("{work}: {error}")))?;
    for name in ["damaged", "damaged_runs", "disputed_segments"] {
        match control::number(&answer, name) {
            Some(0) | None => {}
            Some(count) => fail!("{work} says {name} {count}: {answer}"),
        }
    }
    asked.orders += 1;
    asked.moved_bytes += control::number(&answer, "moved_bytes").unwrap_or_default();
    asked.removed_segments += control::number(&answer, "removed_segments").unwrap_or_default();
    let counters = counters(&shared.data)?;
    never(&counters)?;
    Ok(by_itself(&counters))
}
