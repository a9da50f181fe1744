//! The simulated disk keeps what it promises, and loses enough of the rest to be useful.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{SimClock, SimDisk, SimRandom};
use crate::fault::{self, FaultNote};
use crate::{Clock, Disk, Env, File, OpenMode, Random, Timestamp};

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir_all(Path::new("/d")).unwrap();
    disk
}

fn make(disk: &SimDisk, name: &str) -> Arc<dyn File> {
    disk.open(Path::new(name), OpenMode::CreateNew).unwrap()
}

fn content(disk: &SimDisk, name: &str) -> Option<Vec<u8>> {
    let file = disk.open(Path::new(name), OpenMode::Read).ok()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_file_behaves_like_a_file() {
    let disk = disk();
    let file = make(&disk, "/d/a");
    file.write_all_at(b"hello", 10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_005);
    assert_eq!(file.allocated_bytes().unwrap(), 4096, "the hole before takes no space");
    let mut buffer = [9; 8];
    assert_eq!(file.read_at(&mut buffer, 9_998).unwrap(), 7);
    assert_eq!(&buffer, b"\0\0hello\x09");
    file.set_len(10_002).unwrap();
    file.set_len(10_010).unwrap();
    assert_eq!(&content(&disk, "/d/a").unwrap()[10_000..], b"he\0\0\0\0\0\0\0\0");
    file.allocate(0, 20_000).unwrap();
    assert_eq!((file.len().unwrap(), file.allocated_bytes().unwrap()), (20_000, 5 * 4096));
    file.punch_hole(4000, 6_001).unwrap();
    assert_eq!(file.allocated_bytes().unwrap(), 4 * 4096);
    assert_eq!(&content(&disk, "/d/a").unwrap()[9_999..10_003], b"\0\0e\0");
    assert!(file.write_all_at(b"x", u64::MAX).is_err());
}

#[test]
fn names_behave_like_names() {
    let disk = disk();
    let file = make(&disk, "/d/a");
    file.write_all_at(b"one", 0).unwrap();
    assert_eq!(kind(disk.open(Path::new("/d/a"), OpenMode::CreateNew)), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.open(Path::new("/d/b"), OpenMode::ReadWrite)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.open(Path::new("/none/b"), OpenMode::CreateNew)), io::ErrorKind::NotFound);
    make(&disk, "/d/b").write_all_at(b"two", 0).unwrap();
    disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
    assert_eq!(content(&disk, "/d/b").unwrap(), b"one");
    assert!(!disk.exists(Path::new("/d/a")).unwrap());
    assert_eq!(disk.list(Path::new("/d")).unwrap().len(), 1);
    disk.remove(Path::new("d/../d/./b")).unwrap();
    assert_eq!(kind(disk.remove(Path::new("/d/b"))), io::ErrorKind::NotFound);
    let mut buffer = [0; 3];
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"one", "an open file outlives its name");
    drop(file);
    let space = disk.space(Path::new("/")).unwrap();
    assert_eq!(space.free_bytes, space.total_bytes);
}

#[test]
fn a_lock_has_one_holder_until_a_drop_or_a_crash() {
    let disk = disk();
    let lock = disk.lock(Path::new("/d/lock")).unwrap();
    assert_eq!(kind(disk.lock(Path::new("/d/lock"))), io::ErrorKind::WouldBlock);
    disk.sync_dir(Path::new("/d")).unwrap();
    disk.crash(1).lock(Path::new("/d/lock")).unwrap();
    drop(lock);
    disk.lock(Path::new("/d/lock")).unwrap();
}

#[test]
fn a_full_disk_says_so_and_takes_deletes() {
    let disk = disk();
    disk.set_capacity(10 * 4096);
    let file = make(&disk, "/d/a");
    file.write_all_at(&[1; 9 * 4096], 0).unwrap();
    assert_eq!(kind(file.write_all_at(&[1; 4097], 9 * 4096)), io::ErrorKind::StorageFull);
    assert_eq!(kind(file.allocate(0, 1 << 39)), io::ErrorKind::StorageFull);
    assert_eq!(file.len().unwrap(), 9 * 4096);
    assert_eq!(disk.space(Path::new("/d")).unwrap().free_bytes, 4096);
    drop(file);
    disk.remove(Path::new("/d/a")).unwrap();
    make(&disk, "/d/b").write_all_at(&[1; 10 * 4096], 0).unwrap();
    assert_eq!(disk.crash(3).space(Path::new("/d")).unwrap().total_bytes, 10 * 4096);
}

#[test]
fn synced_bytes_under_an_unsynced_name_may_vanish() {
    let outcomes: Vec<bool> = (0..40)
        .map(|seed| {
            let disk = disk();
            let file = make(&disk, "/d/a");
            file.write_all_at(b"bytes", 0).unwrap();
            file.sync_data().unwrap();
            match content(&disk.crash(seed), "/d/a") {
                Some(bytes) => {
                    assert_eq!(bytes, b"bytes");
                    true
                }
                None => false,
            }
        })
        .collect();
    assert!(outcomes.contains(&true) && outcomes.contains(&false));
}

#[test]
fn an_unsynced_rename_leaves_the_file_under_one_of_its_names() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..60 {
        let disk = disk();
        make(&disk, "/d/a").write_all_at(b"1", 0).unwrap();
        disk.open(Path::new("/d/a"), OpenMode::Read).unwrap().sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.rename(Path::new("/d/a"), Path::new("/d/b")).unwrap();
        let after = disk.crash(seed);
        let names: Vec<String> = after.list(Path::new("/d")).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names.len(), 1, "{names:?}");
        if names[0] == "a" {
            old += 1
        } else {
            new += 1
        }
        assert_eq!(content(&after, &format!("/d/{}", names[0])).unwrap(), b"1");
    }
    assert!(old > 0 && new > 0);
}

#[test]
fn an_unsynced_removal_may_come_back() {
    let back = (0..60).filter(|seed| {
        let disk = disk();
        drop(make(&disk, "/d/a"));
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.remove(Path::new("/d/a")).unwrap();
        disk.crash(*seed).exists(Path::new("/d/a")).unwrap()
    });
    assert!((1..60).contains(&back.count()));
}

#[test]
fn an_unsynced_write_is_kept_lost_or_torn_by_sectors() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = disk();
        let file = make(&disk, "/d/a");
        file.write_all_at(&[1; 4096], 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        file.write_all_at(&[2; 2048], 100).unwrap();
        let bytes = content(&disk.crash(seed), "/d/a").unwrap();
        let changed = bytes.iter().filter(|byte| **byte == 2).count();
        match changed {
            0 => lost += 1,
            2048 => kept += 1,
            _ => torn += 1,
        }
        let edges = bytes.windows(2).zip(1..).filter(|(pair, _)| pair[0] != pair[1]).map(|(_, at)| at);
        assert!(edges.into_iter().all(|at: usize| at.is_multiple_of(512) || at == 100 || at == 2148));
        assert_eq!(file.len().unwrap(), 4096, "the old disk goes on");
    }
    assert!(kept > 0 && lost > 0 && torn > 0, "{kept} {lost} {torn}");
}

#[test]
fn the_machine_stops_where_it_was_told() {
    let disk = disk();
    let file = make(&disk, "/d/a");
    disk.fail_after(2);
    file.write_all_at(b"1", 0).unwrap();
    file.sync_data().unwrap();
    assert!(file.write_all_at(b"2", 0).is_err());
    assert!(file.len().is_err() && file.sync_data().is_err() && disk.list(Path::new("/d")).is_err());
    let seen: std::collections::BTreeSet<_> =
        (0..60).filter_map(|seed| content(&disk.crash(seed), "/d/a")).map(|bytes| bytes[0]).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), b"12", "the write under way may have got through");
}

#[test]
fn a_failed_sync_leaves_the_outcome_open_for_good() {
    let mut lost = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let file = make(&disk, "/a");
        disk.sync_dir(Path::new("/")).unwrap();
        file.write_all_at(&[1; 512], 0).unwrap();
        disk.fail_sync_at(2);
        file.sync_data().unwrap();
        file.write_all_at(&[2; 512], 0).unwrap();
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!(content(&disk, "/a").unwrap(), [2; 512]);
        lost += usize::from(content(&disk.crash(seed), "/a").unwrap() == [1; 512]);
    }
    assert!(lost > 0, "a later successful sync must not repair it");
    let names = (0..40).map(|seed| {
        let disk = SimDisk::new(seed);
        make(&disk, "/a").sync_data().unwrap();
        disk.fail_sync_dir_at(1);
        assert!(disk.sync_dir(Path::new("/")).is_err());
        disk.sync_dir(Path::new("/")).unwrap();
        assert!(disk.kill(seed).exists(Path::new("/a")).unwrap());
        disk.crash(seed).exists(Path::new("/a")).unwrap()
    });
    let kept = names.filter(|kept| *kept).count();
    assert!((1..40).contains(&kept), "nor does it write the names: {kept}");
}

#[test]
fn what_is_written_again_after_a_failed_sync_lasts() {
    let mut bytes = vec![0; 300_000];
    bytes[100_000..160_000].fill(7);
    bytes[140_000] = 0;
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (env, note) = watch(&disk);
        let file = env.disk.open(Path::new("/a"), OpenMode::CreateNew).unwrap();
        env.disk.sync_dir(Path::new("/")).unwrap();
        file.write_all_at(&[1; 400_000], 0).unwrap();
        file.sync_data().unwrap();
        assert!(note.found().unwrap().is_none());
        file.set_len(0).unwrap();
        file.set_len(300_000).unwrap();
        file.write_all_at(&bytes[100_000..160_000], 100_000).unwrap();
        disk.fail_sync_at(1);
        assert!(file.sync_data().is_err());
        note.clear().unwrap();
        assert!(note.found().unwrap().unwrap().contains("/a: injected"), "a life with a fault leaves the note");

        let disk = disk.kill(seed);
        let (env, note) = watch(&disk);
        assert!(note.found().unwrap().is_some());
        let file = env.disk.open(Path::new("/a"), OpenMode::ReadWrite).unwrap();
        fault::rewrite(&*file).unwrap();
        assert!(file.allocated_bytes().unwrap() < 200_000, "holes stay holes");
        note.clear().unwrap();
        assert!(note.found().unwrap().is_none());
        assert_eq!(content(&disk.crash(seed), "/a").unwrap(), bytes);
    }
}

fn watch(disk: &SimDisk) -> (Env, Arc<FaultNote>) {
    let random = Arc::new(SimRandom::new(1));
    let env = Env { disk: Arc::new(disk.clone()), clock: Arc::new(SimClock::new(Timestamp(0))), random };
    FaultNote::watch(&env, Path::new("/sync-failed"))
}

#[test]
fn bits_flip_and_cold_reads_block() {
    let disk = disk();
    let file = make(&disk, "/d/a");
    assert_eq!(disk.flip_some_bit(Path::new("/d/a")).unwrap(), None);
    file.write_all_at(&[0; 9000], 0).unwrap();
    let at = disk.flip_some_bit(Path::new("/d/a")).unwrap().unwrap();
    let bytes = content(&disk, "/d/a").unwrap();
    assert_eq!(bytes.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert_ne!(bytes[at as usize], 0);
    disk.set_cold(true);
    assert_eq!(kind(file.read_cached_at(&mut [0; 4], 0)), io::ErrorKind::WouldBlock);
    file.read_at(&mut [0; 4], 0).unwrap();
}

#[test]
fn unreachable_files_are_forgotten() {
    let disk = disk();
    for round in 0..1000 {
        let name = format!("/d/{round}");
        make(&disk, &name).write_all_at(&[1; 5000], 0).unwrap();
        disk.remove(Path::new(&name)).unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
    }
    let state = disk.state.lock();
    assert!(state.tree.files.len() < 200 && state.tree.used_pages == 0);
}

#[test]
fn the_clock_moves_by_hand_and_by_sleeping() {
    let clock = SimClock::new(Timestamp(1_000));
    clock.sleep(Duration::from_secs(2));
    assert_eq!((clock.now(), clock.monotonic()), (Timestamp(2_000_001_000), Duration::from_secs(2)));
    clock.set_wall(Timestamp(-5));
    assert_eq!((clock.now(), clock.monotonic()), (Timestamp(-5), Duration::from_secs(2)));
}

#[test]
fn randomness_repeats_and_matches_the_published_generator() {
    // First outputs of SplitMix64 for the seed 1234567, as its authors' reference code gives them.
    let random = SimRandom::new(1_234_567);
    assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
    assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    let (mut left, mut right) = ([0; 13], [0; 13]);
    SimRandom::new(5).fill(&mut left);
    SimRandom::new(5).fill(&mut right);
    assert_eq!(left, right);
    assert_ne!(left, [0; 13]);
}

/// A step of a random history over three files.
#[derive(Clone, Debug)]
enum Step {
    Write { file: usize, offset: u64, len: u64 },
    SetLen { file: usize, len: u64 },
    Sync { file: usize },
    SyncNames,
    Remove { file: usize },
    Rename { from: usize, to: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..3usize;
    prop_oneof![
        4 => (file.clone(), 0..6000u64, 1..3000u64).prop_map(|(file, offset, len)| Step::Write { file, offset, len }),
        1 => (file.clone(), 0..9000u64).prop_map(|(file, len)| Step::SetLen { file, len }),
        3 => file.clone().prop_map(|file| Step::Sync { file }),
        2 => Just(Step::SyncNames),
        1 => file.clone().prop_map(|file| Step::Remove { file }),
        1 => (file.clone(), file).prop_map(|(from, to)| Step::Rename { from, to }),
    ]
}

/// Runs a history, then syncs everything (unless the program forgets to), and says what a crash changed.
fn survives(steps: &[Step], seed: u64, sync: bool) -> Result<(), String> {
    let disk = disk();
    let name = |file: usize| format!("/d/{file}");
    for (step, value) in steps.iter().zip(1..) {
        match step {
            Step::Write { file, offset, len } => {
                let file = disk.open(Path::new(&name(*file)), OpenMode::OpenOrCreate).unwrap();
                file.write_all_at(&vec![value; *len as usize], *offset).unwrap();
            }
            Step::SetLen { file, len } => {
                disk.open(Path::new(&name(*file)), OpenMode::OpenOrCreate).unwrap().set_len(*len).unwrap();
            }
            Step::Sync { file } => {
                let _ = disk.open(Path::new(&name(*file)), OpenMode::Read).map(|file| file.sync_data().unwrap());
            }
            Step::SyncNames => disk.sync_dir(Path::new("/d")).unwrap(),
            Step::Remove { file } => {
                let _ = disk.remove(Path::new(&name(*file)));
            }
            Step::Rename { from, to } => {
                let _ = disk.rename(Path::new(&name(*from)), Path::new(&name(*to)));
            }
        }
    }
    let expected: Vec<Option<Vec<u8>>> = (0..3).map(|file| content(&disk, &name(file))).collect();
    if sync {
        for file in 0..3 {
            let _ = disk.open(Path::new(&name(file)), OpenMode::Read).map(|file| file.sync_data().unwrap());
        }
        disk.sync_dir(Path::new("/d")).unwrap();
    }
    let after = disk.crash(seed);
    let twin = disk.crash(seed);
    for (file, expected) in expected.iter().enumerate() {
        let found = content(&after, &name(file));
        assert_eq!(found, content(&twin, &name(file)), "one seed, one outcome");
        if found != *expected {
            return Err(format!("file {file} changed"));
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn synced_state_survives_every_crash(steps in proptest::collection::vec(step(), 0..25), seed: u64) {
        prop_assert_eq!(survives(&steps, seed, true), Ok(()));
    }
}

/// The property above is able to fail: a program that forgets to sync is caught.
#[test]
fn a_program_that_does_not_sync_is_caught() {
    let steps = [Step::Write { file: 0, offset: 0, len: 2000 }, Step::Write { file: 1, offset: 0, len: 10 }];
    let caught = (0..50).filter(|seed| survives(&steps, *seed, false).is_err()).count();
    assert!((20..50).contains(&caught), "{caught}");
    let half = [Step::Write { file: 0, offset: 0, len: 9 }, Step::Sync { file: 0 }];
    assert!((0..50).any(|seed| survives(&half, seed, false).is_err()), "a name without its directory's sync");
}

#[test]
fn a_killed_process_leaves_everything_to_the_next_one_but_safe_is_only_what_was_synced() {
    let disk = disk();
    let file = make(&disk, "/d/a");
    file.write_all_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    file.write_all_at(b"two", 0).unwrap();
    let next = disk.kill(1);
    assert_eq!(content(&next, "/d/a").unwrap(), b"two");
    let kept: Vec<_> = (0..40).map(|seed| content(&next.crash(seed), "/d/a").unwrap()).collect();
    assert!(kept.contains(&b"one".to_vec()) && kept.contains(&b"two".to_vec()));
    disk.fail_after(0);
    assert!(file.sync_data().is_err());
    assert_eq!(content(&disk.kill(1), "/d/a").unwrap().len(), 3, "a machine without power crashes");
}
