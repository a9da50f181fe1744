//! Durable commits per second with many waiting writers, of the embedded engine and of the stores it could have been:
//! `cargo run --release -p margay-meta --example commits -- DIR [SECONDS [WRITERS [ROUNDS]]]`.
//!
//! Why:      one sync shared by all who wait is what the log is for; the goal is 5 times redb's and fjall's own rate.
//!           Each store is used as it comes, one put of 24 + 120 bytes per commit, durable before the next one begins:
//!           redb by one write transaction (`Durability::Immediate`), fjall by `insert` and `persist(SyncAll)`.
//! Not here: batching above redb or fjall, which would be the work that the log does.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark measures with the machine's clock")]

mod entries;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use entries::{key, mixed, open, value};
use margay_meta::{Batch, Engine, Write};

const ROWS: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("rows");

/// Measures one store in an empty folder: commits per second of so many writers in that time.
type Run = fn(&Path, u64, Duration) -> f64;

/// Commits per second of `writers` threads, each of which does one commit after the other.
fn rate(writers: u64, time: Duration, commit: impl Fn(Vec<u8>, Vec<u8>) + Sync) -> f64 {
    let (done, begun) = (AtomicU64::new(0), Instant::now());
    std::thread::scope(|scope| {
        for writer in 0..writers {
            let (done, commit) = (&done, &commit);
            scope.spawn(move || {
                for number in 0.. {
                    if begun.elapsed() >= time {
                        return;
                    }
                    let number = (writer << 32) | number;
                    commit(key(0, mixed(number)), value(number));
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    // To the end of the last commit, which is counted.
    done.into_inner() as f64 / begun.elapsed().as_secs_f64()
}

fn margay(folder: &Path, writers: u64, time: Duration) -> f64 {
    let engine = open(folder);
    let rate = rate(writers, time, |key, value| {
        let writes = vec![Write::Put { key, value }];
        let seq = engine.commit(Batch { writes, ..Batch::default() }).expect("commit");
        engine.wait_durable(seq.cursor).expect("durable");
    });
    let statistics = engine.statistics();
    println!("  margay: {:.1} commits per sync", statistics.commits as f64 / statistics.log_syncs as f64);
    rate
}

fn native_redb(folder: &Path, writers: u64, time: Duration) -> f64 {
    let database = redb::Database::create(folder.join("rows.redb")).expect("redb");
    rate(writers, time, |key, value| {
        let mut transaction = database.begin_write().expect("begin");
        transaction.set_durability(redb::Durability::Immediate).expect("durability");
        transaction.open_table(ROWS).expect("table").insert(&*key, &*value).expect("insert");
        transaction.commit().expect("commit");
    })
}

fn native_fjall(folder: &Path, writers: u64, time: Duration) -> f64 {
    let database = fjall::Database::builder(folder).open().expect("fjall");
    let rows = database.keyspace("rows", fjall::KeyspaceCreateOptions::default).expect("keyspace");
    rate(writers, time, |key, value| {
        rows.insert(key, value).expect("insert");
        database.persist(fjall::PersistMode::SyncAll).expect("persist");
    })
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().expect("usage: commits DIR [SECONDS [WRITERS [ROUNDS]]]");
    let mut number = |default: u64| arguments.next().map_or(default, |word| word.parse().expect("a number"));
    let (time, writers, rounds) = (Duration::from_secs(number(5)), number(64), number(3));
    let stores: [(&str, Run); 3] = [("margay", margay), ("redb", native_redb), ("fjall", native_fjall)];
    let mut rates = [const { Vec::new() }; 3];
    for round in 1..=rounds {
        // In turn, so that a slow spell of the disk meets all of them.
        for (index, (name, run)) in stores.iter().enumerate() {
            let folder = Path::new(&folder).join(format!("{name}-{round}"));
            std::fs::create_dir_all(&folder).expect("folder");
            let rate = run(&folder, writers, time);
            std::fs::remove_dir_all(&folder).expect("the folder of a round can be removed");
            println!("round {round}, {name}: {rate:.0} commits/s");
            rates[index].push(rate);
        }
    }
    let [margay, redb, fjall] = rates.each_mut().map(|rates| median(rates));
    println!("{writers} writers, median of {rounds}: margay {margay:.0}, redb {redb:.0}, fjall {fjall:.0} commits/s");
    println!("margay is {:.1} times redb, {:.1} times fjall", margay / redb, margay / fjall);
}
