//! Damaged, torn and foreign files: what the embedded engine does with each.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and damages files behind the store's back"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use margay_env::Env;
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_meta::{Batch, Engine, EngineError, Seq, Write};
use margay_segment::Store;

fn open(folder: &Path) -> Result<EmbeddedEngine, EngineError> {
    let env = Env::real();
    let options = margay_segment::Options {
        folder: folder.join("segments"),
        pack_bytes_max: 1 << 20,
        raw_bytes_min: 16 << 20,
        reserve_bytes: 0,
    };
    let store: Arc<Store> = Store::open(env.clone(), options).unwrap();
    let mut options = Options::new(folder.join("tree"));
    options.log_file_bytes = LOG_FILE_BYTES_MIN * 4;
    EmbeddedEngine::open(env, store, options)
}

fn put(engine: &EmbeddedEngine, number: u32) -> Seq {
    let writes = vec![Write::Put { key: number.to_be_bytes().to_vec(), value: vec![number as u8; 100] }];
    engine.commit(Batch { writes, ..Batch::default() }).unwrap()
}

fn logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let mut logs: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "log")).collect();
    logs.sort();
    logs
}

/// The log that holds records, of an engine that was ended without a checkpoint.
fn written(folder: &Path, rows: u32) -> PathBuf {
    let engine = open(folder).unwrap();
    let last = (0..rows).map(|number| put(&engine, number)).last().unwrap();
    engine.wait_durable(last).unwrap();
    drop(engine);
    let begun = |path: &PathBuf| std::fs::read(path).unwrap()[..8] == *b"margylog";
    logs(folder).into_iter().rfind(begun).unwrap()
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

#[test]
fn a_torn_end_is_cut_off_and_stays_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let log = written(folder.path(), 100);
    let mut bytes = std::fs::read(&log).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end - 30] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let engine = open(folder.path()).unwrap();
    assert_eq!(count(&engine), 99);
    engine.wait_durable(put(&engine, 99)).unwrap();
    drop(engine);
    // The damaged record heals: it must not come back behind the commit that took its number.
    bytes[end - 30] ^= 1;
    std::fs::write(&log, &bytes).unwrap_or_default();
    let engine = open(folder.path()).unwrap();
    assert_eq!(count(&engine), 100);
}

#[test]
fn damage_before_synced_records_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = written(folder.path(), 100);
    // A second life adds a log file; keep the first one from being folded away.
    let spare = std::fs::read(&log).unwrap();
    let tree = std::fs::read(folder.path().join("tree/rows.redb")).unwrap();
    let engine = open(folder.path()).unwrap();
    engine.wait_durable(put(&engine, 100)).unwrap();
    drop(engine);
    std::fs::write(folder.path().join("tree/rows.redb"), tree).unwrap();
    let mut bytes = spare;
    bytes[2000] ^= 1;
    std::fs::write(&log, &bytes).unwrap();
    let error = open(folder.path()).expect_err("acknowledged commits are missing");
    assert!(matches!(error, EngineError::Corrupt(_)), "{error}");
}

#[test]
fn every_single_broken_byte_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let log = written(folder.path(), 3);
    let whole = std::fs::read(&log).unwrap();
    let tree = std::fs::read(folder.path().join("tree/rows.redb")).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
    // Header 32, body 3 + 4 + 4 + 100: one byte of padding ends each record.
    for at in (32..=end).step_by(7).filter(|at| (at - 32) % 144 != 143) {
        let copy = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(copy.path().join("segments")).unwrap();
        std::fs::create_dir_all(copy.path().join("tree")).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        std::fs::write(copy.path().join("segments").join(log.file_name().unwrap()), bytes).unwrap();
        std::fs::write(copy.path().join("tree/rows.redb"), &tree).unwrap();
        let engine = open(copy.path()).unwrap();
        assert!(count(&engine) < 3, "byte {at} is under a checksum");
    }
}

#[test]
fn a_newer_log_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let log = written(folder.path(), 3);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[8] = 2;
    bytes[12..16].fill(0);
    let crc = crc32c::crc32c(&bytes[..32]);
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&log, bytes).unwrap();
    let error = open(folder.path()).expect_err("a format from the future").to_string();
    assert!(error.contains("newer margay"), "{error}");
}
