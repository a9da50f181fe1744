//! Measures the embedded engine alone: `cargo run --release -p margay-meta --example engine -- DIR [ENTRIES]`.
//!
//! Why: the goals of docs/benchmarks.md for the engine: 24-byte keys, 120-byte values, checkpoints included.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark measures with the machine's clock")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_env::Env;
use margay_meta::embedded::{EmbeddedEngine, Options};
use margay_meta::{Batch, Engine, Write};
use margay_segment::Store;

fn open(folder: &Path) -> EmbeddedEngine {
    let env = Env::real();
    let segments = margay_segment::Options {
        folder: folder.join("segments"),
        pack_bytes_max: 128 << 20,
        raw_bytes_min: 16 << 20,
        reserve_bytes: 0,
    };
    let store: Arc<Store> = Store::open(env.clone(), segments).expect("store");
    EmbeddedEngine::open(env, store, Options::new(folder.join("tree"))).expect("engine")
}

fn key(number: u64, random: bool) -> Vec<u8> {
    // A bijection, so that random keys are distinct and can be asked for again.
    let mixed = if random { number.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { number };
    let mut key = vec![0, 0, 0, 0, 0, 0, 0, if random { 1 } else { 2 }];
    key.extend_from_slice(format!("{mixed:016x}").as_bytes());
    key
}

fn put(engine: &EmbeddedEngine, key: Vec<u8>, number: u64) {
    let mut value = vec![0x5a; 120];
    for (index, byte) in value[..60].iter_mut().enumerate() {
        *byte = (number >> (index % 8)) as u8 ^ index as u8;
    }
    engine.commit(Batch { writes: vec![Write::Put { key, value }], ..Batch::default() }).expect("commit");
}

fn fill(engine: &EmbeddedEngine, name: &str, count: u64, random: bool) {
    let begun = Instant::now();
    let (mut second, mut in_second, mut seconds, mut slowest) = (Instant::now(), 0u64, Vec::new(), Duration::ZERO);
    for number in 0..count {
        let before = Instant::now();
        put(engine, key(number, random), number);
        slowest = slowest.max(before.elapsed());
        in_second += 1;
        if second.elapsed() >= Duration::from_secs(1) {
            seconds.push(in_second);
            (second, in_second) = (Instant::now(), 0);
        }
        if number + 1 == 300_000 {
            println!("{name}: burst of 300,000: {:.0} puts/s", 300_000.0 / begun.elapsed().as_secs_f64());
        }
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    seconds.sort_unstable();
    let (least, median) = (seconds.first().copied().unwrap_or(0), seconds.get(seconds.len() / 2).copied().unwrap_or(0));
    println!(
        "{name}: {count} puts, {rate:.0}/s, slowest second {least}, median second {median}, slowest put {slowest:?}"
    );
}

fn status(field: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with(field)).unwrap_or_default().replace('\t', " ")
}

fn scans(engine: &EmbeddedEngine, count: u64) {
    let mut page = Vec::new();
    for round in 0..200u64 {
        let start = key(round * (count / 200), true);
        let begun = Instant::now();
        let mut rows = 0;
        engine
            .scan(&start, &[0, 0, 0, 0, 0, 0, 0, 2], &mut |_| {
                rows += 1;
                if rows == 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .expect("scan");
        page.push(begun.elapsed());
    }
    page.sort_unstable();
    println!("scan of 1000 rows: median {:?}, p99 {:?}", page[100], page[198]);
}

fn gets(engine: &EmbeddedEngine, count: u64) {
    let begun = Instant::now();
    let rounds = 1_000_000.min(count);
    for round in 0..rounds {
        let number = round.wrapping_mul(7_919) % count;
        assert!(engine.get(&key(number, true)).expect("get").value.is_some());
    }
    println!("gets: {:.0}/s", rounds as f64 / begun.elapsed().as_secs_f64());
}

fn deletions(engine: &EmbeddedEngine) {
    for order in ["forward", "reverse", "random"] {
        for number in 0..10_000 {
            put(engine, [&[9][..], &key(number, false)].concat(), number);
        }
        engine.checkpoint().expect("checkpoint");
        let begun = Instant::now();
        let mut steps = Duration::ZERO;
        for number in 0..10_000u64 {
            let number = match order {
                "forward" => number,
                "reverse" => 9_999 - number,
                _ => number.wrapping_mul(7_919) % 10_000,
            };
            let writes = vec![Write::Delete { key: [&[9][..], &key(number, false)].concat() }];
            engine.commit(Batch { writes, ..Batch::default() }).expect("delete");
            let before = Instant::now();
            engine.scan(&[9], &[10], &mut |_| ControlFlow::Break(())).expect("first");
            steps += before.elapsed();
        }
        let whole = begun.elapsed();
        let before = Instant::now();
        engine.scan(&[9], &[10], &mut |_| ControlFlow::Continue(())).expect("empty");
        let deleted = before.elapsed();
        let before = Instant::now();
        engine.scan(&[11], &[12], &mut |_| ControlFlow::Continue(())).expect("never used");
        let never = before.elapsed();
        println!(
            "delete {order}: {:?} each, first row after each {:?}, list of all deleted {deleted:?}, of never used {never:?}",
            (whole - steps) / 10_000,
            steps / 10_000
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
                    let key = [&[7][..], &key(writer * each + number, true)].concat();
                    let writes = vec![Write::Put { key, value: vec![1; 120] }];
                    let seq = engine.commit(Batch { writes, ..Batch::default() }).expect("commit");
                    engine.wait_durable(seq).expect("durable");
                }
            });
        }
    });
    let commits = writers * each;
    let syncs = engine.statistics().log_syncs - before;
    println!(
        "{writers} waiting writers: {:.0} commits/s, {:.1} per sync",
        commits as f64 / begun.elapsed().as_secs_f64(),
        commits as f64 / syncs as f64
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("usage: engine DIR [ENTRIES]");
    let count: u64 = arguments.next().map_or(10_000_000, |count| count.parse().expect("a number of entries"));
    let engine = open(Path::new(&folder));
    for writers in [1, 16, 64] {
        durable(&engine, writers);
    }
    deletions(&engine);
    fill(&engine, "random", count, true);
    println!("{}", status("VmHWM"));
    gets(&engine, count);
    scans(&engine, count);
    fill(&engine, "sequential", count / 4, false);
    engine.checkpoint().expect("checkpoint");
    let statistics = engine.statistics();
    println!("{statistics:?}");
    println!(
        "{} {}",
        status("VmHWM"),
        std::fs::read_to_string("/proc/self/io")
            .unwrap_or_default()
            .lines()
            .find(|line| line.starts_with("write_bytes"))
            .unwrap_or_default()
    );
    drop(engine);
    let begun = Instant::now();
    let engine = open(Path::new(&folder));
    println!("reopened in {:?}", begun.elapsed());
    scans(&engine, count);
}
