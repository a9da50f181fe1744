//! A disk that others fill to its last byte: a fold waits for room, commits are refused, and nothing is lost.
//!
//! Why: the reserve for folds lies on a disk that other programs use too. The store must go on by itself when there is room
//!      again, and must end and open again when there is none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test waits in real time")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use margay_env::real::RealClock;
use margay_env::sim::{SimDisk, SimRandom};
use margay_env::{Disk, Env};
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_meta::{Batch, CommitError, Engine, EngineError, Write};
use margay_segment::Store;

const DISK_BYTES: u64 = 1 << 40;
const PATIENCE: Duration = Duration::from_secs(120);
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(disk: &SimDisk) -> EmbeddedEngine {
    let random = Arc::new(SimRandom::new(1));
    let env = Env { disk: Arc::new(disk.clone()), clock: Arc::new(RealClock::new()), random };
    let mut segments = margay_segment::Options::new(Path::new("/data/segments"));
    segments.reserve_bytes = 0;
    let store = Store::open(env.clone(), segments).unwrap();
    let mut options = Options::new("/data/tree".into());
    (options.log_file_bytes, options.tree_cache_bytes) = (LOG_FILE_BYTES_MIN, 256 << 10);
    EmbeddedEngine::open(env, store, options).unwrap()
}

fn put(engine: &EmbeddedEngine, rows: &mut Rows, number: usize) -> Result<(), CommitError> {
    let (key, value) = (format!("a-{number:06}").into_bytes(), vec![number as u8; 3000]);
    engine.commit(Batch { writes: vec![Write::Put { key: key.clone(), value: value.clone() }], ..Batch::default() })?;
    rows.insert(key, value);
    Ok(())
}

fn rows_of(engine: &EmbeddedEngine) -> Rows {
    let mut rows = Rows::new();
    let each = &mut |row: margay_meta::RowRef<'_>| {
        rows.insert(row.key.to_vec(), row.value.to_vec());
        ControlFlow::Continue(())
    };
    engine.scan(&[0], &[0xff], each).unwrap();
    rows
}

fn logs(disk: &SimDisk) -> usize {
    let files = disk.list(Path::new("/data/segments")).unwrap();
    files.iter().filter(|file| file.name.ends_with(".log")).count()
}

/// Commits until there is no room for another one; the engine then waits for the disk.
fn fill(engine: &EmbeddedEngine, disk: &SimDisk, rows: &mut Rows) {
    put(engine, rows, 0).unwrap();
    engine.checkpoint().unwrap();
    // With the next log file made, it is the fold that finds no room: the tree has no pages yet that it could use again.
    let begun = Instant::now();
    while logs(disk) < 2 {
        assert!(begun.elapsed() < PATIENCE, "no second log file is made");
        std::thread::sleep(Duration::from_millis(10));
    }
    disk.set_capacity(0);
    for number in 1.. {
        match put(engine, rows, number) {
            Ok(()) => assert!(begun.elapsed() < PATIENCE, "a full disk takes {number} rows"),
            Err(CommitError::Full) => break,
            Err(error) => panic!("row {number}: {error}"),
        }
    }
    // Long enough for the fold to come to its first refused write.
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(engine.fault(), None);
    assert_eq!(rows_of(engine), *rows, "what is there can be read meanwhile");
}

#[test]
fn a_fold_waits_for_room_and_the_store_goes_on() {
    let (disk, mut rows) = (SimDisk::new(1), Rows::new());
    let engine = open(&disk);
    fill(&engine, &disk, &mut rows);
    let refused = engine.checkpoint();
    assert!(refused.as_ref().is_err_and(EngineError::is_full), "{refused:?}");
    disk.set_capacity(DISK_BYTES);
    let begun = Instant::now();
    while let Err(error) = put(&engine, &mut rows, 0) {
        assert!(matches!(error, CommitError::Full) && begun.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(10));
    }
    engine.checkpoint().unwrap();
    assert_eq!(engine.fault(), None);
    assert_eq!(rows_of(&engine), rows);
    let checked = engine.check_storage(5, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(checked.damaged, 0, "{checked:?}");
    drop(engine);
    assert_eq!(rows_of(&open(&disk.crash(1))), rows);
}

#[test]
fn a_store_that_waits_for_room_ends_and_opens_again_with_everything() {
    let (disk, mut rows) = (SimDisk::new(1), Rows::new());
    let engine = open(&disk);
    fill(&engine, &disk, &mut rows);
    drop(engine);
    let disk = disk.crash(1);
    disk.set_capacity(DISK_BYTES);
    assert_eq!(rows_of(&open(&disk)), rows);
}
