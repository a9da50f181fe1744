//! Measures the embedded engine alone, in the phases named or all of them, in the order below:
//! `cargo run --release -p margay-meta --example engine -- DIR [ENTRIES [PHASE...]]`.
//!
//! Why: the goals of docs/benchmarks.md for the engine: 24-byte keys, 120-byte values, one thread, checkpoints
//!      included; space, bytes written and memory of each phase.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark measures with the machine's clock")]

mod entries;

use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use entries::{key, mixed, open, value};
use margay_meta::embedded::EmbeddedEngine;
use margay_meta::{Batch, Engine, Write};

const PHASES: [&str; 8] = ["burst", "random", "gets", "scans", "sequential", "deletions", "durable", "reopen"];
const BURST_ENTRIES: u64 = 300_000;
const GETS_MAX: u64 = 1_000_000;

// Groups of keys, one for each kind of work; `EMPTY` is never used.
const RANDOM: u64 = 1;
const SEQUENTIAL: u64 = 2;
const BURST: u64 = 3;
const DURABLE: u64 = 7;
const DELETED: u64 = 9;
const EMPTY: u64 = 11;

/// What the process and its folder have used, by the kernel's count.
struct Usage {
    folder: PathBuf,
    disk_bytes: u64,
    written_bytes: u64,
}

impl Usage {
    /// Takes the counters, and begins a new peak of resident memory.
    fn begin(folder: &Path) -> Usage {
        std::fs::write("/proc/self/clear_refs", "5").expect("the peak of resident memory can be set back");
        Usage {
            folder: folder.into(),
            disk_bytes: disk_bytes(folder),
            written_bytes: proc_number("io", "write_bytes:"),
        }
    }

    fn show(&self, name: &str, entries: u64) {
        let per_entry = |bytes: u64| bytes as f64 / entries as f64;
        let disk = disk_bytes(&self.folder);
        let written = proc_number("io", "write_bytes:") - self.written_bytes;
        println!(
            "{name}: per entry {:.0} bytes more on disk, {:.0} bytes written; {} MB on disk; \
             resident {} MB, at most {} MB",
            disk as f64 / entries as f64 - per_entry(self.disk_bytes),
            per_entry(written),
            disk / 1_000_000,
            proc_number("status", "VmRSS:") / 1000,
            proc_number("status", "VmHWM:") / 1000,
        );
    }
}

/// A number of a file of this process in /proc, in the unit of that file.
fn proc_number(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc/self").join(file)).expect("/proc");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("a line of /proc");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number in /proc")
}

/// Bytes that the files below a folder occupy.
fn disk_bytes(folder: &Path) -> u64 {
    let Ok(listing) = std::fs::read_dir(folder) else { return 0 };
    let bytes = listing.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        // A log file that was let go of meanwhile.
        Err(_) => 0,
    });
    bytes.sum()
}

fn put(engine: &EmbeddedEngine, key: Vec<u8>, number: u64) {
    let writes = vec![Write::Put { key, value: value(number) }];
    engine.commit(Batch { writes, ..Batch::default() }).expect("commit");
}

/// The first value: puts that nobody waits for, into an engine that has nothing to fold.
fn burst(engine: &EmbeddedEngine) {
    engine.checkpoint().expect("checkpoint");
    let begun = Instant::now();
    for number in 0..BURST_ENTRIES {
        put(engine, key(BURST, mixed(number)), number);
    }
    println!("burst: {BURST_ENTRIES} puts, {:.0}/s", BURST_ENTRIES as f64 / begun.elapsed().as_secs_f64());
}

fn fill(engine: &EmbeddedEngine, name: &str, count: u64, key_of: impl Fn(u64) -> Vec<u8>) {
    engine.checkpoint().expect("checkpoint");
    let begun = Instant::now();
    let (mut second, mut in_second, mut seconds) = (begun, 0u64, Vec::new());
    let (mut last, mut slowest) = (begun, Duration::ZERO);
    for number in 0..count {
        put(engine, key_of(number), number);
        let now = Instant::now();
        slowest = slowest.max(now - last);
        last = now;
        in_second += 1;
        if now - second >= Duration::from_secs(1) {
            seconds.push(in_second);
            (second, in_second) = (now, 0);
        }
    }
    let put_in = begun.elapsed();
    engine.checkpoint().expect("checkpoint");
    let rate = |time: Duration| count as f64 / time.as_secs_f64();
    seconds.sort_unstable();
    let (least, median) = (seconds.first().copied().unwrap_or(0), seconds.get(seconds.len() / 2).copied().unwrap_or(0));
    println!(
        "{name}: {count} puts, {:.0}/s ({:.0}/s with the last checkpoint), slowest second {least}, median second \
         {median} (ratio {:.2}), slowest put {slowest:.1?}",
        rate(put_in),
        rate(begun.elapsed()),
        least as f64 / median as f64,
    );
}

fn scans(engine: &EmbeddedEngine) {
    let mut page = Vec::new();
    for round in 0..200 {
        let start = key(RANDOM, round * (u64::MAX / 200));
        let begun = Instant::now();
        let mut rows = 0;
        engine
            .scan(&start, &key(RANDOM + 1, 0), &mut |_| {
                rows += 1;
                if rows == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("scan");
        page.push(begun.elapsed());
    }
    page.sort_unstable();
    println!("scans: 1000 rows in {:?} (median), {:?} (p99)", page[100], page[198]);
}

/// Of all keys, after one round that is not counted: the caches are as they stay.
fn gets(engine: &EmbeddedEngine, count: u64) {
    let rounds = GETS_MAX.min(count);
    for name in ["gets, first round", "gets"] {
        let begun = Instant::now();
        for round in 0..rounds {
            let number = mixed(round) % count;
            assert!(engine.get(&key(RANDOM, mixed(number))).expect("get").value.is_some());
        }
        println!("{name}: {rounds} of {count} entries, {:.0}/s", rounds as f64 / begun.elapsed().as_secs_f64());
    }
}

fn deletions(engine: &EmbeddedEngine) {
    const ROWS: u64 = 10_000;
    let (start, end) = (key(DELETED, 0), key(DELETED + 1, 0));
    let list = |start: &[u8], end: &[u8]| {
        let begun = Instant::now();
        engine.scan(start, end, &mut |_| ControlFlow::Break(())).expect("scan");
        begun.elapsed()
    };
    for order in ["forward", "reverse", "random"] {
        let nth = |number| match order {
            "forward" => number,
            "reverse" => ROWS - 1 - number,
            _ => number * 7_919 % ROWS,
        };
        for number in 0..ROWS {
            put(engine, key(DELETED, number), number);
        }
        engine.checkpoint().expect("checkpoint");
        let begun = Instant::now();
        let mut listing = Duration::ZERO;
        for number in (0..ROWS).map(nth) {
            let writes = vec![Write::Delete { key: key(DELETED, number) }];
            engine.commit(Batch { writes, ..Batch::default() }).expect("delete");
            listing += list(&start, &end);
        }
        let deleting = begun.elapsed() - listing;
        println!(
            "deletions, {order}: {:?} each, first row after each {:?}, list of all deleted {:?}, of never used {:?}",
            deleting / ROWS as u32,
            listing / ROWS as u32,
            list(&start, &end),
            list(&key(EMPTY, 0), &key(EMPTY + 1, 0)),
        );
    }
}

fn durable(engine: &EmbeddedEngine, writers: u64) {
    let before = engine.statistics().log_syncs;
    let begun = Instant::now();
    let each = 200_000 / writers.max(8) / 4;
    std::thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                for number in 0..each {
                    let number = writer * each + number;
                    let writes = vec![Write::Put { key: key(DURABLE, mixed(number)), value: value(number) }];
                    let seq = engine.commit(Batch { writes, ..Batch::default() }).expect("commit");
                    engine.wait_durable(seq.cursor).expect("durable");
                }
            });
        }
    });
    let commits = (writers * each) as f64;
    let syncs = (engine.statistics().log_syncs - before) as f64;
    println!(
        "durable, {writers} writers: {:.0} commits/s, {:.1} per sync",
        commits / begun.elapsed().as_secs_f64(),
        commits / syncs
    );
}

fn run(phase: &str, engine: EmbeddedEngine, folder: &Path, count: u64) -> EmbeddedEngine {
    match phase {
        "burst" => burst(&engine),
        "random" => fill(&engine, phase, count, |number| key(RANDOM, mixed(number))),
        "gets" => gets(&engine, count),
        "scans" => scans(&engine),
        "sequential" => fill(&engine, phase, count, |number| key(SEQUENTIAL, number)),
        "deletions" => deletions(&engine),
        "durable" => [1, 16, 64].into_iter().for_each(|writers| durable(&engine, writers)),
        "reopen" => {
            drop(engine);
            let begun = Instant::now();
            let engine = open(folder);
            println!("reopen: {:?}", begun.elapsed());
            return engine;
        }
        _ => panic!("the phases are {PHASES:?}"),
    }
    engine
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("usage: engine DIR [ENTRIES [PHASE...]]"));
    let count: u64 = arguments.next().map_or(10_000_000, |count| count.parse().expect("a number of entries"));
    let mut phases: Vec<String> = arguments.collect();
    if phases.is_empty() {
        phases = PHASES.map(String::from).into();
    }
    let mut engine = open(&folder);
    for phase in phases {
        let usage = Usage::begin(&folder);
        engine = run(&phase, engine, &folder, count);
        let entries = if phase == "burst" { BURST_ENTRIES } else { count };
        usage.show(&phase, entries);
    }
    println!("{:?}", engine.statistics());
}
