//! Power cuts and kills at random moments: the engine opens again, with a prefix of the commits and all durable ones.
//!
//! Why: checksums of log and tree must take what a crash leaves for what it is, never for damage. `crates/sim` does the same
//!      with payloads, faults of syncs and lying disks; this is the part that runs in seconds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use margay_env::Env;
use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_meta::{Batch, CommitError, Engine, EngineError, Write};
use margay_segment::Store;

const SEEDS: u64 = 60;
const LIVES: u64 = 6;

fn open(disk: &SimDisk, random: &SimRandom) -> Result<EmbeddedEngine, EngineError> {
    let random = Arc::new(SimRandom::new(random.below(u64::MAX)));
    let env = Env { disk: Arc::new(disk.clone()), clock: Arc::new(RealClock::new()), random };
    let mut segments = margay_segment::Options::new(Path::new("/data/segments"));
    segments.reserve_bytes = 0;
    let store = Store::open(env.clone(), segments).map_err(|error| std::io::Error::other(error.to_string()))?;
    let mut options = Options::new("/data/tree".into());
    (options.log_file_bytes, options.tree_cache_bytes) = (LOG_FILE_BYTES_MIN, 256 << 10);
    options.sync_interval = Duration::from_millis(1);
    EmbeddedEngine::open(env, store, options)
}

/// States after each commit since the newest that is known to be durable.
struct Model(Vec<BTreeMap<Vec<u8>, Vec<u8>>>);

fn run(seed: u64) {
    let random = SimRandom::new(seed);
    let mut disk = SimDisk::new(seed);
    let mut model = Model(vec![BTreeMap::new()]);
    for life in 0..LIVES {
        let stop = random.below(400) + 1;
        let killed = random.chance(30);
        if killed {
            disk.kill_after(stop);
        } else {
            disk.fail_after(stop);
        }
        match open(&disk, &random) {
            Ok(engine) => {
                if let Some(found) = rows_if_running(&engine) {
                    let at = model.0.iter().rposition(|state| *state == found);
                    let at = at.unwrap_or_else(|| panic!("seed {seed}, life {life}: no prefix of the commits"));
                    model.0 = vec![model.0.swap_remove(at)];
                }
                work(&engine, &random, &mut model);
            }
            Err(EngineError::Io(_)) => {}
            Err(error) => panic!("seed {seed}, life {life}: {error}"),
        }
        disk = if killed { disk.kill(random.below(1000)) } else { disk.crash(random.below(1000)) };
    }
    let engine = open(&disk, &random).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let found = rows_if_running(&engine).expect("nothing is wrong with this disk");
    assert!(model.0.contains(&found), "seed {seed}: no prefix of the commits at the end");
    let checked = engine.check_storage(5, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(checked.damaged, 0, "seed {seed}: {checked:?}");
}

/// `None`: the machine stopped while they were read.
fn rows_if_running(engine: &EmbeddedEngine) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut rows = BTreeMap::new();
    let scanned = engine.scan(&[0], &[0xff], &mut |row| {
        rows.insert(row.key.to_vec(), row.value.to_vec());
        ControlFlow::Continue(())
    });
    scanned.ok().map(|_| rows)
}

fn work(engine: &EmbeddedEngine, random: &SimRandom, model: &mut Model) {
    for _ in 0..random.below(300) {
        let mut state = model.0.last().unwrap().clone();
        let mut writes = Vec::new();
        for key in 0..1 + random.below(4) {
            let key = format!("{key}-{:03}", random.below(200)).into_bytes();
            if random.chance(25) {
                state.remove(&key);
                writes.push(Write::Delete { key });
            } else {
                let value = vec![random.below(256) as u8; random.below(400) as usize];
                state.insert(key.clone(), value.clone());
                writes.push(Write::Put { key, value });
            }
        }
        let Ok(done) = engine.commit(Batch { writes, ..Batch::default() }) else { return };
        model.0.push(state);
        if random.chance(40) {
            if engine.wait_durable(done.cursor).is_err() {
                return;
            }
            let newest = model.0.pop().unwrap();
            model.0 = vec![newest];
        }
        if random.chance(2) && engine.checkpoint().is_err() {
            return;
        }
    }
}

#[test]
fn crashes_are_never_taken_for_damage() {
    for seed in 0..SEEDS {
        run(seed);
    }
}

/// A tree whose sync failed may be closed in order and then lose its power: it opens with the tree of before.
#[test]
fn a_failed_sync_of_the_tree_and_a_close_after_it_leave_a_tree_that_opens() {
    for seed in 0..120 {
        let random = SimRandom::new(seed);
        let disk = SimDisk::new(seed);
        let engine = open(&disk, &random).unwrap();
        for key in 0..20 {
            engine
                .commit(Batch {
                    writes: vec![Write::Put { key: vec![1, key], value: vec![key; 200] }],
                    ..Batch::default()
                })
                .unwrap();
        }
        engine.wait_durable(engine.last_cursor()).unwrap();
        if random.chance(50) {
            engine.checkpoint().unwrap();
            engine.commit(Batch { writes: vec![Write::Delete { key: vec![1, 0] }], ..Batch::default() }).unwrap();
        }
        disk.fail_sync_at(1 + random.below(12));
        let folded = engine.checkpoint();
        drop(engine);
        let disk = disk.crash(random.below(1000));
        let engine = open(&disk, &random).unwrap_or_else(|error| panic!("seed {seed}, after {folded:?}: {error}"));
        assert!(rows_if_running(&engine).unwrap().len() >= 19, "seed {seed}: rows are gone");
    }
}

fn row(number: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("row-{number:04}").into_bytes(), vec![number as u8; 3000])
}

fn put(engine: &EmbeddedEngine, number: u32) -> Result<(), CommitError> {
    let (key, value) = row(number);
    engine.commit(Batch { writes: vec![Write::Put { key, value }], ..Batch::default() }).map(drop)
}

/// M5, where the fault is the tree's: the `sync`th one of a fold. Whether one failed.
fn read_after_failed_fold(sync: u64) -> bool {
    let random = SimRandom::new(sync);
    let disk = SimDisk::new(sync);
    let engine = open(&disk, &random).unwrap();
    // More than the tree's cache holds.
    (0..200).for_each(|number| put(&engine, number).unwrap());
    engine.checkpoint().unwrap();
    (150..250).for_each(|number| put(&engine, number).unwrap());
    engine.wait_durable(engine.last_cursor()).unwrap();
    disk.fail_sync_at(sync);
    let failed = engine.checkpoint().is_err();
    let rows: BTreeMap<_, _> = (0..250).map(row).collect();
    for _ in 0..3 {
        assert!(rows_if_running(&engine).as_ref() == Some(&rows), "sync {sync}");
    }
    if failed {
        assert_eq!(engine.get(&row(3).0).unwrap().value.unwrap().value, row(3).1);
        assert!(matches!(put(&engine, 1), Err(CommitError::Failed(EngineError::Poisoned(_)))));
        let checked = engine.check_storage(5, &mut |_| ControlFlow::Continue(()));
        assert!(checked.is_err() || checked.is_ok_and(|checked| checked.damaged == 0));
        assert_eq!(engine.statistics().damaged_pages, 0, "a failed sync is no damage");
    }
    drop(engine);
    let engine = open(&disk.crash(sync), &random).unwrap();
    assert!(rows_if_running(&engine) == Some(rows), "sync {sync}, after a crash");
    failed
}

#[test]
fn rows_can_be_read_after_a_fold_failed() {
    // With syncs of the log's files between those of the tree.
    let failed = (1..10).filter(|sync| read_after_failed_fold(*sync)).count();
    assert!(failed >= 3, "{failed}");
}
