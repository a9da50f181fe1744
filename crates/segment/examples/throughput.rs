//! Prints what the store writes per second here: `cargo run --release --example throughput -- FOLDER`.

#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use margay_env::Env;
use margay_segment::{Extent, Options, Run, RunWriter, Store};

const WRITERS: u64 = 64;
const LENGTH: Duration = Duration::from_secs(3);

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: throughput FOLDER (an empty one, its segments are removed)")?;
    let store = Store::open(Env::real(), Options::new(folder))?;
    stream(&store, 1 << 20, 1 << 30)?;
    stream(&store, 64 << 20, 1 << 30)?;
    small(&store, 16 << 10)?;
    for info in store.segments() {
        store.seal(info.id)?;
        store.set_aside(info.id)?;
    }
    let mut walk = store.begin_walk();
    walk.complete();
    for held in store.quarantined() {
        store.release(held.id, &walk)?;
    }
    Ok(())
}

fn write(store: &Store, bytes: &[u8]) -> Result<Run, Box<dyn Error + Send + Sync>> {
    let mut writer = store.begin_run(bytes.len() as u64, b"owner")?;
    writer.write(bytes)?;
    Ok(writer.finish()?)
}

/// One writer, one sync at the end; then the same read back from memory.
fn stream(store: &Store, run_bytes: usize, total_bytes: usize) -> Result<(), Box<dyn Error>> {
    let bytes: Vec<u8> = (0..run_bytes).map(|at| (at * 7 % 251) as u8).collect();
    let started = Instant::now();
    let mut runs = Vec::new();
    for _ in 0..total_bytes / run_bytes {
        runs.push(write(store, &bytes).map_err(|error| error.to_string())?);
    }
    let written = started.elapsed();
    for run in &runs {
        store.sync_blocking(run.segment)?;
    }
    let synced = started.elapsed();
    let started = Instant::now();
    for run in &runs {
        for skip in (0..run.len).step_by(1 << 20) {
            store.read(&Extent::whole(*run), skip, 1 << 20)?;
        }
    }
    let read = started.elapsed();
    let rate = |time: Duration| total_bytes as f64 / 1e6 / time.as_secs_f64();
    let kib = run_bytes >> 10;
    println!(
        "runs of {kib} KiB: write {:.0} MB/s, write + sync {:.0} MB/s, verified read {:.0} MB/s",
        rate(written),
        rate(synced),
        rate(read)
    );
    Ok(())
}

/// Many writers, each waiting for its own sync.
fn small(store: &Store, run_bytes: usize) -> Result<(), Box<dyn Error>> {
    let bytes = vec![5; run_bytes];
    let done = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| -> Result<(), Box<dyn Error + Send + Sync>> {
                while started.elapsed() < LENGTH {
                    let run = write(store, &bytes)?;
                    store.sync_blocking(run.segment)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            });
        }
    });
    let per_second = done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64();
    println!("runs of {} KiB, {WRITERS} writers, each synced: {per_second:.0} runs/s", run_bytes >> 10);
    Ok(())
}
