//! Commits per second with many waiting writers, beside `pgbench` on the same server:
//! `cargo run --release -p margay-postgres --example shared_commits -- URL [SECONDS [WRITERS [ROUNDS]]]`.
//!
//! Why:      a commit checks what its rows were, writes them, notes itself for the feed and proves its outcome; the goal is that
//!           many that wait share enough of the server's work to be faster than single inserts (G2, 1.5 times).
//!           Margay: one new row of 24 + 120 bytes per commit, which must be absent, and one addition to a counter.
//!           pgbench: one prepared insert of such a row by each of 16 clients. In turns, since the machine is shared.
//! Not here: reads; what else a PUT does.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark measures with the machine's clock")]
#![allow(clippy::unwrap_used, reason = "a benchmark stops at the first thing that it does not expect")]

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use margay_meta::{Batch, Engine, Precondition, Write};
use margay_postgres::{PostgresEngine, PostgresOptions};

/// Clients of pgbench, as cluster.md's G2 says.
const CLIENTS: &str = "16";
const SCHEMA: &str = "bench_commits";
const INSERT: &str = "\\set low random(0, 9223372036854775806)\n\\set high random(0, 9223372036854775806)\n\
    insert into bench_rows values (int8send(:low) || int8send(:high) || int8send(1::bigint), 1, repeat('v', 120)::bytea);\n";

fn main() {
    let mut words = std::env::args().skip(1);
    let url = words.next().expect("URL of an empty database");
    let mut number = |default: u64| words.next().map_or(default, |word| word.parse().expect("a number"));
    let (seconds, writers, rounds) = (number(5), number(64), number(5));
    sql(
        &url,
        "drop table if exists bench_rows; create table bench_rows(key bytea primary key, version bigint, value bytea)",
    );
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let floor = pgbench(&url, seconds);
        let (own, each) = margay(&url, round, writers, Duration::from_secs(seconds));
        ratios.push(own / floor);
        println!(
            "round {round}: margay {own:.0}/s ({each:.1} commits a call), pgbench {floor:.0}/s, {:.2}",
            own / floor
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "{writers} writers: {:.2} of pgbench with {CLIENTS} clients (median of {rounds})",
        ratios[ratios.len() / 2]
    );
    sql(&url, &format!("drop table bench_rows; drop schema {SCHEMA} cascade"));
}

fn sql(url: &str, statements: &str) {
    let done = Command::new("psql").args([url, "-q", "-c", statements]).status().expect("psql");
    assert!(done.success());
}

fn pgbench(url: &str, seconds: u64) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("insert.sql");
    std::fs::write(&script, INSERT).unwrap();
    let program = std::env::var("PGBENCH").unwrap_or_else(|_| "pgbench".to_owned());
    let mut command = Command::new(program);
    command.args(["-n", "-M", "prepared", "-c", CLIENTS, "-j", "2", "-T", &seconds.to_string(), "-f"]);
    let done = command.arg(&script).arg(url).output().expect("pgbench; PGBENCH names it");
    let said = String::from_utf8_lossy(&done.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&done.stderr)))
}

/// Commits per second, and how many one call of the server had.
fn margay(url: &str, round: u64, writers: u64, time: Duration) -> (f64, f64) {
    let options = PostgresOptions {
        config: url.to_owned(),
        password: None,
        schema: SCHEMA.to_owned(),
        lanes: PostgresOptions::LANES,
        readers: 1,
    };
    let engine = PostgresEngine::open(&options).unwrap();
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    // As the doors wait: without a thread each.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (engine, done) = (Arc::new(engine), Arc::new(done));
    let tasks = (0..writers).map(|writer| {
        let (engine, done) = (Arc::clone(&engine), Arc::clone(&done));
        runtime.spawn(async move {
            for number in (0..).take_while(|_| begun.elapsed() < time) {
                engine.begin_commit(batch(round, writer, number), Box::new(|_| ())).await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    let [_, (_, commits), ..] = engine.calls();
    (rate, done.load(Ordering::Relaxed) as f64 / commits.max(1) as f64)
}

fn batch(round: u64, writer: u64, number: u64) -> Batch {
    // As names come: scattered.
    let scattered = (writer << 40 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let key: Vec<u8> = [b"ebnchrow".as_slice(), &scattered.to_be_bytes(), &round.to_be_bytes()].concat();
    Batch {
        preconditions: vec![Precondition::Absent { key: key.clone() }],
        writes: vec![Write::Put { key, value: vec![b'v'; 120] }],
        payload: None,
    }
}
