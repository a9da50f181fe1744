//! The real disk keeps the port's contract.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::io;
use std::path::Path;
use std::time::Duration;

use margay_env::real::{RealClock, RealDisk, RealRandom};
use margay_env::{Clock, Disk, OpenMode, Random};

#[test]
fn files_read_write_grow_and_shrink() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    assert_eq!(RealDisk.open(&path, OpenMode::ReadWrite).unwrap_err().kind(), io::ErrorKind::NotFound);
    let file = RealDisk.open(&path, OpenMode::CreateNew).unwrap();
    assert_eq!(RealDisk.open(&path, OpenMode::CreateNew).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    file.write_all_at(b"hello", 3).unwrap();
    file.sync_data().unwrap();
    let again = RealDisk.open(&path, OpenMode::OpenOrCreate).unwrap();
    assert_eq!(again.len().unwrap(), 8, "opening does not truncate");
    let mut buffer = [9; 10];
    assert_eq!(again.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer[..8], b"\0\0\0hello");
    assert_eq!(again.read_cached_at(&mut buffer, 6).unwrap(), 2, "just written, so in memory");
    assert_eq!(again.read_exact_at(&mut buffer, 0).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    file.set_len(4).unwrap();
    assert_eq!(again.len().unwrap(), 4);
    assert!(RealDisk.open(&path, OpenMode::Read).unwrap().write_all_at(b"x", 0).is_err());
}

#[test]
fn space_is_reserved_and_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&folder.path().join("a"), OpenMode::CreateNew).unwrap();
    file.allocate(0, 1 << 20).unwrap();
    assert_eq!(file.len().unwrap(), 1 << 20);
    file.write_all_at(&[7; 1 << 20], 0).unwrap();
    file.sync_data().unwrap();
    let before = file.allocated_bytes().unwrap();
    assert!(before >= 1 << 20);
    match file.punch_hole(4096, 512 << 10) {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
        other => other.unwrap(),
    }
    assert!(file.allocated_bytes().unwrap() <= before - (500 << 10));
    let mut byte = [1];
    file.read_exact_at(&mut byte, 5000).unwrap();
    assert_eq!((byte, file.len().unwrap()), ([0], 1 << 20));
    let space = RealDisk.space(folder.path()).unwrap();
    assert!(space.free_bytes > 0 && space.free_bytes <= space.total_bytes);
}

#[test]
fn names_are_made_listed_renamed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let deep = folder.path().join("x/y/z");
    RealDisk.create_dir_all(&deep).unwrap();
    RealDisk.create_dir_all(&deep).unwrap();
    let (one, two) = (deep.join("one"), deep.join("two"));
    RealDisk.open(&one, OpenMode::CreateNew).unwrap().write_all_at(b"1", 0).unwrap();
    RealDisk.open(&two, OpenMode::CreateNew).unwrap();
    RealDisk.rename(&one, &two).unwrap();
    RealDisk.sync_dir(&deep).unwrap();
    let entries = RealDisk.list(&deep).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((&entries[0].name[..], entries[0].len, entries[0].is_dir), ("two", 1, false));
    assert!(RealDisk.list(&folder.path().join("x")).unwrap()[0].is_dir);
    RealDisk.remove(&two).unwrap();
    assert!(!RealDisk.exists(&two).unwrap());
    assert_eq!(RealDisk.remove(&two).unwrap_err().kind(), io::ErrorKind::NotFound);
    let file = deep.join("file");
    RealDisk.open(&file, OpenMode::CreateNew).unwrap();
    assert!(RealDisk.create_dir_all(&file.join("below")).is_err());
}

#[test]
fn a_lock_has_one_holder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lock");
    let lock = RealDisk.lock(&path).unwrap();
    assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(lock);
    RealDisk.lock(&path).unwrap();
}

#[test]
fn a_missing_folder_is_an_error_everywhere() {
    let path = Path::new("/nonexistent-folder-of-a-test");
    assert!(RealDisk.list(path).is_err());
    assert!(RealDisk.sync_dir(path).is_err());
    assert!(RealDisk.space(path).is_err());
    assert!(!RealDisk.exists(path).unwrap());
}

#[test]
fn the_clock_goes_on_and_randomness_differs() {
    let clock = RealClock::new();
    let before = clock.monotonic();
    clock.sleep(Duration::from_millis(2));
    assert!(clock.monotonic() - before >= Duration::from_millis(2));
    assert!(clock.now().seconds() > 1_700_000_000);
    assert_ne!(RealRandom.next_u64(), RealRandom.next_u64());
    let mut bytes = [0; 300];
    RealRandom.fill(&mut bytes);
    assert!(bytes[250..].iter().any(|byte| *byte != 0));
}
