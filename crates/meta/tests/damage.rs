//! Damaged, torn and foreign log files: what the embedded engine does with each.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and damages files behind the store's back"
)]

mod folder;

use std::path::{Path, PathBuf};

use folder::{copy, open};
use margay_meta::embedded::EmbeddedEngine;
use margay_meta::{Batch, Cursor, Engine, EngineError, Write};

/// Bytes of a log file's header, and of each record here: header 32, body 3 + 4 + 4 + 100, one byte of padding.
const HEADER: usize = 64;
const RECORD: usize = 144;

fn put(engine: &EmbeddedEngine, number: u32) -> Cursor {
    let writes = vec![Write::Put { key: number.to_be_bytes().to_vec(), value: vec![number as u8; 100] }];
    engine.commit(Batch { writes, ..Batch::default() }).unwrap().cursor
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "log")).collect();
    logs.sort();
    logs
}

/// The log of `folder` that holds records.
fn begun(folder: &Path) -> PathBuf {
    let begun = |path: &PathBuf| std::fs::read(path).unwrap()[..8] == *b"margylog";
    logs(folder).into_iter().rfind(begun).unwrap()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Stopped,
    /// After syncs of single commits, or of all at once.
    KilledInSteps,
    KilledAtOnce,
}

/// A directory whose commits are in the log only, as its engine left it.
fn written(rows: u32, end: End) -> tempfile::TempDir {
    let (live, dead) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(live.path()).unwrap();
    // Nothing is folded any more when the files are copied.
    engine.checkpoint().unwrap();
    for number in 0..rows {
        let seq = put(&engine, number);
        if end != End::KilledAtOnce || number + 1 == rows {
            engine.wait_durable(seq).unwrap();
        }
    }
    if end == End::Stopped {
        drop(engine);
        copy(live.path(), dead.path());
    } else {
        copy(live.path(), dead.path());
        drop(engine);
    }
    dead
}

fn count(engine: &EmbeddedEngine) -> u32 {
    let mut rows = 0;
    let mut next = 0u32;
    engine
        .scan(&[], &[255; 8], &mut |row| {
            assert_eq!(row.key, next.to_be_bytes(), "a prefix of what was put");
            next += 1;
            rows += 1;
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    rows
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, &bytes).unwrap();
}

#[test]
fn a_torn_end_is_cut_off_and_stays_cut_off() {
    let folder = written(100, End::KilledInSteps);
    let log = begun(folder.path());
    let last = HEADER + 99 * RECORD + 50;
    flip(&log, last);
    let engine = open(folder.path()).unwrap();
    assert_eq!(count(&engine), 99);
    engine.wait_durable(put(&engine, 99)).unwrap();
    drop(engine);
    // The damaged record heals: it must not come back behind the commit that took its number.
    if log.exists() {
        flip(&log, last);
    }
    let engine = open(folder.path()).unwrap();
    assert_eq!(count(&engine), 100);
}

#[test]
fn damage_before_a_later_group_is_refused_and_named() {
    for record in [0, 1, 50, 98] {
        let folder = written(100, End::KilledInSteps);
        let log = begun(folder.path());
        flip(&log, HEADER + record * RECORD + 60);
        let error = open(folder.path()).expect_err("acknowledged commits are missing");
        assert!(matches!(error, EngineError::Corrupt(_)), "{error}");
        let error = error.to_string();
        let at = format!("byte {}", HEADER + record * RECORD);
        let name = log.file_name().unwrap().to_str().unwrap();
        assert!(error.contains(name) && error.contains(&at) && error.contains("backup"), "{error}");
        assert!(log.exists(), "the file stays");
    }
}

#[test]
fn after_a_clean_stop_damage_of_the_last_record_is_told_too() {
    let folder = written(3, End::Stopped);
    let log = begun(folder.path());
    flip(&log, HEADER + 2 * RECORD + 60);
    assert!(open(folder.path()).unwrap_err().to_string().contains("damaged"), "the end mark proves it");
    flip(&log, HEADER + 2 * RECORD + 60);
    // Damage of the mark itself hides nothing.
    flip(&log, HEADER + 3 * RECORD + 33);
    assert_eq!(count(&open(folder.path()).unwrap()), 3);
}

#[test]
fn a_check_finds_damage_of_the_log_while_the_engine_runs() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    engine.checkpoint().unwrap();
    for number in 0..10 {
        engine.wait_durable(put(&engine, number)).unwrap();
    }
    let check = || engine.check_storage(5, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(check().damaged, 0, "{:?}", check());
    let log = begun(folder.path());
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"X", (HEADER + 4 * RECORD + 60) as u64).unwrap();
    let found = check();
    assert_eq!(found.damaged, 1);
    let at = format!("byte {}", HEADER + 4 * RECORD);
    assert!(found.shown[0].contains(&at), "{found:?}");
}

#[test]
fn a_check_tells_a_log_that_is_gone_from_one_that_cannot_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    engine.checkpoint().unwrap();
    engine.wait_durable(put(&engine, 1)).unwrap();
    let check = || engine.check_storage(5, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
    let log = begun(folder.path());
    std::fs::remove_file(&log).unwrap();
    assert_eq!(check().shown, ["a log file is missing"]);
    // A link to itself: opening it fails with ELOOP.
    std::os::unix::fs::symlink(&log, &log).unwrap();
    let found = check();
    assert_eq!(found.damaged, 1);
    assert!(found.shown[0].contains("cannot be opened"), "{found:?}");
}

/// A log that goes on, and ends, while it is read is no damage.
#[test]
fn a_check_beside_commits_finds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    // Of all four about twenty files.
    let write = |writer: u32| {
        for number in 0..18_000 {
            put(&engine, (writer << 24) + number % 1000);
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            let checked = engine.check_storage(5, &mut |_| std::ops::ControlFlow::Continue(())).unwrap();
            assert_eq!(checked.damaged, 0, "{checked:?}");
        }
    });
}

#[test]
fn a_damaged_header_is_refused_and_its_file_stays() {
    for at in [1, 9, 13, 17, 25, 41] {
        let folder = written(3, End::KilledInSteps);
        let log = begun(folder.path());
        flip(&log, at);
        let error = open(folder.path()).expect_err("the header of a file with records").to_string();
        assert!(error.contains("damaged"), "{error}");
        assert!(log.exists());
    }
}

#[test]
fn damage_before_synced_records_is_refused() {
    let folder = written(100, End::KilledAtOnce);
    let log = begun(folder.path());
    // A second life adds a log file; keep the first one from being folded away.
    let spare = std::fs::read(&log).unwrap();
    let first = tempfile::tempdir().unwrap();
    copy(folder.path(), first.path());
    let engine = open(folder.path()).unwrap();
    engine.wait_durable(put(&engine, 100)).unwrap();
    drop(engine);
    for name in ["rows.redb", "rows.sums"] {
        std::fs::copy(first.path().join("tree").join(name), folder.path().join("tree").join(name)).unwrap();
    }
    std::fs::write(&log, &spare).unwrap();
    assert!(matches!(open(folder.path()), Ok(_) | Err(EngineError::Corrupt(_))));
    let mut bytes = spare;
    bytes[2000] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let error = open(folder.path()).expect_err("acknowledged commits are missing");
    assert!(matches!(error, EngineError::Corrupt(_)), "{error}");
}

#[test]
fn every_single_broken_byte_is_noticed() {
    let whole = written(3, End::KilledAtOnce);
    let log = begun(whole.path());
    for at in (HEADER..HEADER + 3 * RECORD).step_by(7).chain([HEADER + RECORD - 1]) {
        let folder = tempfile::tempdir().unwrap();
        copy(whole.path(), folder.path());
        flip(&folder.path().join("segments").join(log.file_name().unwrap()), at);
        let engine = open(folder.path()).unwrap();
        assert!(count(&engine) < 3, "byte {at} is under a checksum");
    }
}

#[test]
fn a_newer_log_is_refused() {
    let folder = written(3, End::KilledInSteps);
    let log = begun(folder.path());
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[8] = 3;
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(&bytes[..HEADER]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&log, bytes).unwrap();
    let error = open(folder.path()).expect_err("a format from the future").to_string();
    assert!(error.contains("newer margay"), "{error}");
}

#[test]
fn a_tree_of_an_earlier_time_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open(folder.path()).unwrap();
    engine.checkpoint().unwrap();
    let early = tempfile::tempdir().unwrap();
    copy(folder.path(), early.path());
    put(&engine, 0);
    engine.checkpoint().unwrap();
    put(&engine, 1);
    engine.checkpoint().unwrap();
    drop(engine);
    for name in ["rows.redb", "rows.sums"] {
        std::fs::copy(early.path().join("tree").join(name), folder.path().join("tree").join(name)).unwrap();
    }
    let error = open(folder.path()).expect_err("the log of those commits is gone").to_string();
    assert!(error.contains("commit"), "{error}");
}
