//! Damaged pages of the tree: an error that names the rows, and everything else as before.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and damages files behind the engine's back"
)]

mod folder;

use std::ops::ControlFlow;
use std::path::Path;

use folder::{copy, open};
use margay_meta::embedded::EmbeddedEngine;
use margay_meta::{Batch, Checked, Engine, EngineError, Write};

const ROWS: u32 = 3000;
/// The row on whose page a bit is wrong.
const HIT: u32 = 1500;

fn key(number: u32) -> Vec<u8> {
    format!("row-{number:06}").into_bytes()
}

fn value(number: u32) -> Vec<u8> {
    format!("value of {number:06}").repeat(6).into_bytes()
}

fn commit(engine: &EmbeddedEngine, writes: Vec<Write>) -> Result<(), margay_meta::CommitError> {
    engine.commit(Batch { writes, ..Batch::default() }).map(drop)
}

fn put(engine: &EmbeddedEngine, number: u32, value: Vec<u8>) {
    commit(engine, vec![Write::Put { key: key(number), value }]).unwrap();
}

fn delete(engine: &EmbeddedEngine, number: u32) {
    commit(engine, vec![Write::Delete { key: key(number) }]).unwrap();
}

fn fill(folder: &Path, rows: u32) {
    let engine = open(folder).unwrap();
    for number in 0..rows {
        put(&engine, number, value(number));
    }
    engine.checkpoint().unwrap();
}

/// Where these bytes stand in the tree's file.
fn find(folder: &Path, wanted: &[u8]) -> usize {
    let bytes = std::fs::read(folder.join("tree/rows.redb")).unwrap();
    bytes.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap()
}

/// Changes that byte alone: an engine may be running.
fn flip(folder: &Path, name: &str, at: usize) {
    let path = folder.join("tree").join(name);
    let byte = std::fs::read(&path).unwrap()[at] ^ 1;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[byte], at as u64).unwrap();
}

/// A filled directory with a wrong bit in one row.
fn damaged() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), ROWS);
    flip(folder.path(), "rows.redb", find(folder.path(), &value(HIT)) + 3);
    folder
}

fn get(engine: &EmbeddedEngine, number: u32) -> Result<Option<Vec<u8>>, EngineError> {
    Ok(engine.get(&key(number))?.value.map(|row| row.value.to_vec()))
}

fn count(engine: &EmbeddedEngine, from: u32, to: u32) -> Result<u32, EngineError> {
    let mut rows = 0;
    engine.scan(&key(from), &key(to), &mut |_| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    Ok(rows)
}

fn check(engine: &EmbeddedEngine) -> Checked {
    engine.check_storage(10, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn damage_is_named_and_other_pages_stay_readable() {
    let folder = damaged();
    let engine = open(folder.path()).unwrap();
    for _ in 0..3 {
        let error = get(&engine, HIT).expect_err("the row lies on a damaged page").to_string();
        assert!(error.contains("row-001500") && error.contains("checksum"), "{error}");
        let error = count(&engine, 0, ROWS).expect_err("a shorter listing").to_string();
        assert!(error.contains("rows after \"row-0014") && error.contains("before \"row-001"), "{error}");
        // Another page, and a row that never was.
        assert_eq!(get(&engine, 10).unwrap(), Some(value(10)));
        assert_eq!(get(&engine, ROWS).unwrap(), None);
        assert_eq!(count(&engine, 0, 1000).unwrap(), 1000);
        assert_eq!(count(&engine, 2000, ROWS).unwrap(), ROWS - 2000);
    }
    assert_eq!(engine.statistics().damaged_pages, 1);
    let checked = check(&engine);
    assert_eq!(checked.damaged, 1, "{checked:?}");
    assert!(checked.shown[0].contains("rows after \"row-0014"), "{checked:?}");
    // What is written to it meanwhile is an answer again, from the log.
    put(&engine, HIT, b"new".to_vec());
    assert_eq!(get(&engine, HIT).unwrap(), Some(b"new".to_vec()));
}

#[test]
fn a_check_finds_what_only_the_cache_has_right() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), ROWS);
    let engine = open(folder.path()).unwrap();
    // The fold of an opening writes pages and entries.
    engine.checkpoint().unwrap();
    assert_eq!(count(&engine, 0, ROWS).unwrap(), ROWS);
    let whole = check(&engine);
    assert!(whole.damaged == 0 && whole.complete && whole.pages > 50, "{whole:?}");
    flip(folder.path(), "rows.redb", find(folder.path(), &value(HIT)) + 3);
    assert_eq!(check(&engine).damaged, 1);
    let sums = std::fs::metadata(folder.path().join("tree/rows.sums")).unwrap().len() as usize;
    flip(folder.path(), "rows.sums", sums - 5000);
    assert_eq!(check(&engine).damaged, 2);
}

/// Folds that need the damaged page fail; nothing is lost by it, and reads go on.
fn fold_fails(change: impl Fn(&EmbeddedEngine), after: impl Fn(&EmbeddedEngine)) {
    let folder = damaged();
    for life in 0..2 {
        let engine = open(folder.path()).unwrap();
        if life == 0 {
            change(&engine);
        }
        let error = engine.checkpoint().expect_err("the fold needs the damaged page").to_string();
        assert!(error.contains("checkpoint") && error.contains("tree/rows.redb"), "{error}");
        assert!(engine.fault().is_some());
        after(&engine);
        assert_eq!(get(&engine, 10).unwrap(), Some(value(10)));
        assert!(commit(&engine, vec![Write::Delete { key: key(1) }]).is_err(), "read-only until it is repaired");
        assert_eq!(check(&engine).damaged, 1);
    }
}

#[test]
fn a_fold_into_a_damaged_page_fails_and_loses_nothing() {
    fold_fails(
        |engine| {
            put(engine, HIT + 1, b"new".to_vec());
            put(engine, 5, b"five".to_vec());
        },
        |engine| {
            assert_eq!(get(engine, HIT + 1).unwrap(), Some(b"new".to_vec()));
            assert_eq!(get(engine, 5).unwrap(), Some(b"five".to_vec()));
        },
    );
}

#[test]
fn a_fold_that_would_join_a_page_with_a_damaged_one_fails() {
    // redb joins an emptied page with the one before it: the page behind the damaged one.
    {
        let range = HIT + 1..HIT + 60;
        let readable =
            |engine: &EmbeddedEngine, number: u32| !matches!(get(engine, number), Err(EngineError::Corrupt(_)));
        fold_fails(
            |engine| {
                let some = range.clone().filter(|number| number % 8 != 0 && readable(engine, *number));
                some.for_each(|number| delete(engine, number));
            },
            |engine| {
                for number in range.clone().filter(|number| readable(engine, *number)) {
                    let kept = (number % 8 == 0).then(|| value(number));
                    assert_eq!(get(engine, number).unwrap(), kept, "row {number}");
                }
            },
        );
    }
}

#[test]
fn a_stale_page_is_told_from_the_one_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), ROWS);
    let old = std::fs::read(folder.path().join("tree/rows.redb")).unwrap();
    let engine = open(folder.path()).unwrap();
    for number in (0..ROWS).step_by(3) {
        put(&engine, number, value(number + 1));
    }
    engine.checkpoint().unwrap();
    // Pages that the first fold had and let go are written over now.
    for number in (1..ROWS).step_by(3) {
        put(&engine, number, value(number + 1));
    }
    engine.checkpoint().unwrap();
    drop(engine);
    let new = std::fs::read(folder.path().join("tree/rows.redb")).unwrap();
    let block = |bytes: &[u8], index: usize| bytes.get(index * 4096..(index + 1) * 4096).map(<[u8]>::to_vec);
    let changed: Vec<usize> = (1..new.len() / 4096)
        .filter(|index| block(&old, *index).is_some_and(|was| was[0] != 0 && was != block(&new, *index).unwrap()))
        .collect();
    assert!(changed.len() > 20);
    let mut told = 0;
    for index in changed.iter().step_by(changed.len() / 15) {
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        let mut bytes = new.clone();
        bytes[index * 4096..(index + 1) * 4096].copy_from_slice(&block(&old, *index).unwrap());
        std::fs::write(copied.path().join("tree/rows.redb"), bytes).unwrap();
        let Ok(engine) = open(copied.path()) else {
            told += 1;
            continue;
        };
        let mut wrong = 0;
        for number in 0..ROWS {
            match get(&engine, number) {
                Ok(row) => assert_eq!(row, Some(value(number + u32::from(number % 3 != 2))), "row {number}"),
                Err(_) => wrong += 1,
            }
        }
        assert!(wrong == 0 || check(&engine).damaged > 0);
        told += u32::from(wrong > 0);
    }
    assert!(told > 5, "{told} of the stale pages are in use");
}

#[test]
fn a_directory_without_checksums_gets_them_by_a_check() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), ROWS);
    std::fs::remove_file(folder.path().join("tree/rows.sums")).unwrap();
    let engine = open(folder.path()).unwrap();
    assert!(!engine.statistics().tree_checksums);
    assert_eq!(count(&engine, 0, ROWS).unwrap(), ROWS);
    put(&engine, 7, b"seven".to_vec());
    engine.checkpoint().unwrap();
    assert!(!engine.statistics().tree_checksums, "a fold gives checksums only to what it writes");
    let checked = check(&engine);
    assert!(checked.complete && checked.damaged == 0, "{checked:?}");
    drop(engine);
    flip(folder.path(), "rows.redb", find(folder.path(), &value(HIT)) + 3);
    let engine = open(folder.path()).unwrap();
    assert!(engine.statistics().tree_checksums);
    assert!(get(&engine, HIT).is_err());
    drop(engine);
    // Damage that was there before the checksums is not taken for right: redb's own tell it.
    std::fs::remove_file(folder.path().join("tree/rows.sums")).unwrap();
    let engine = open(folder.path()).unwrap();
    let checked = check(&engine);
    assert!(!checked.complete && checked.damaged == 1, "{checked:?}");
}

#[test]
fn every_bit_of_the_head_is_noticed_or_means_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fill(folder.path(), 50);
    for at in 0..320 {
        let copied = tempfile::tempdir().unwrap();
        copy(folder.path(), copied.path());
        flip(copied.path(), "rows.redb", at);
        let error = open(copied.path()).expect_err("the head has a checksum").to_string();
        assert!(error.contains("the head of tree/rows.redb is damaged"), "byte {at}: {error}");
    }
}
