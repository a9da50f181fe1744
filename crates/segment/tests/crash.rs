//! The store over a disk that loses its power: what was synced reads back, and wrong bytes never do.

#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use margay_env::sim::{SimClock, SimDisk, SimRandom};
use margay_env::{Disk, Env, Random, Timestamp};
use margay_segment::{Extent, Kind, Options, Run, RunWriter, SegmentError, SegmentId, Store};
use proptest::prelude::*;

/// Takes a segment that nothing names all the way out.
fn remove(store: &Store, id: SegmentId) -> Result<(), SegmentError> {
    assert!(store.set_aside(id)?, "it was never taken back");
    let mut walk = store.begin_walk();
    walk.complete();
    store.release(id, &walk).map(drop)
}

const FOLDER: &str = "/data/segments";

fn env(disk: &SimDisk, seed: u64) -> Env {
    Env {
        disk: Arc::new(disk.clone()),
        clock: Arc::new(SimClock::new(Timestamp(0))),
        random: Arc::new(SimRandom::new(seed)),
    }
}

fn options() -> Options {
    Options {
        folder: FOLDER.into(),
        pack_bytes_max: 300 << 10,
        raw_bytes_min: 200 << 10,
        reserve_bytes: 0,
        files_may_be_missing: false,
    }
}

fn open(disk: &SimDisk, seed: u64) -> Result<Arc<Store>, SegmentError> {
    Store::open(env(disk, seed), options())
}

fn pattern(len: u64, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    SimRandom::new(seed).fill(&mut bytes);
    bytes
}

#[derive(Clone, Copy, Debug)]
struct Written {
    run: Run,
    pattern: u64,
    synced: bool,
}

/// What a program knows about its runs, over any number of crashes.
#[derive(Default)]
struct Known {
    runs: Vec<Written>,
    removed: BTreeSet<SegmentId>,
}

fn write(store: &Store, len: u64, pattern_seed: u64) -> Result<Run, SegmentError> {
    let mut writer = store.begin_run(len, &pattern_seed.to_le_bytes())?;
    for piece in pattern(len, pattern_seed).chunks(70_001) {
        writer.write(piece)?;
    }
    writer.finish()
}

/// Random work until the machine stops or the steps are over.
fn work(store: &Store, known: &mut Known, random: &SimRandom, steps: u64, sync: bool) -> Result<(), SegmentError> {
    for _ in 0..steps {
        match random.below(10) {
            0..6 => {
                let len = [10, 4000, 65_536, 65_537, 150_000, 300_000][random.below(6) as usize] + random.below(100);
                let pattern = random.next_u64();
                known.runs.push(Written { run: write(store, len, pattern)?, pattern, synced: false });
            }
            6..8 => {
                let Some(last) = known.runs.last() else { continue };
                let segment = last.run.segment;
                if sync {
                    store.sync_blocking(segment)?;
                }
                known.runs.iter_mut().filter(|known| known.run.segment == segment).for_each(|run| run.synced = true);
            }
            8 => {
                let mut writer = store.begin_run(1 + random.below(400_000), b"never finished")?;
                writer.write(&[random.below(256) as u8])?;
            }
            _ => {
                let closed: Vec<_> = store.segments().into_iter().filter(|info| !info.open).collect();
                if closed.len() > 3 {
                    let victim = closed[random.below(closed.len() as u64) as usize].id;
                    known.removed.insert(victim);
                    remove(store, victim)?;
                }
            }
        }
    }
    Ok(())
}

/// Checks the store found after a crash; says what was lost.
fn check(store: &Store, known: &Known) -> Result<(), String> {
    for Written { run, pattern: seed, synced } in &known.runs {
        match store.read(&Extent::whole(*run), 0, run.len) {
            Ok(bytes) if bytes == pattern(run.len, *seed) => {}
            Ok(_) => return Err(format!("wrong bytes of {run:?}")),
            Err(SegmentError::Corrupt { .. } | SegmentError::Missing(_))
                if !synced || known.removed.contains(&run.segment) => {}
            Err(error) => return Err(format!("{run:?}, synced {synced}: {error}")),
        }
    }
    for info in store.segments() {
        let synced: Vec<_> = known.runs.iter().filter(|known| known.synced && known.run.segment == info.id).collect();
        let mut met = Vec::new();
        match info.kind {
            Kind::Pack => {
                let visit = &mut |walked: margay_segment::WalkedRun| {
                    met.extend(walked.run);
                    ControlFlow::Continue(())
                };
                if let Err(error) = store.walk_pack(info.id, visit)
                    && !synced.is_empty()
                {
                    return Err(format!("walk of {:?}: {error}", info.id));
                }
            }
            Kind::Raw => met.extend(store.raw_run(info.id).ok().map(|(_, run)| run)),
            Kind::Log => {}
        }
        if let Some(missed) = synced.iter().find(|known| !met.contains(&known.run)) {
            return Err(format!("the walk missed {missed:?}"));
        }
    }
    let newest = known.runs.iter().filter(|known| known.synced).map(|known| known.run.segment).max();
    let reused = newest.is_some_and(|newest| store.next_id() <= newest);
    if reused { Err("an id was given again".to_owned()) } else { Ok(()) }
}

/// Three lives of a machine, each ended by a power loss at a random moment.
fn three_lives(seed: u64, sync: bool) -> Result<(), String> {
    let random = SimRandom::new(seed);
    let mut disk = SimDisk::new(seed);
    let mut known = Known::default();
    for _ in 0..3 {
        // The disk of the first life has no folder yet, so the power may go while it is made.
        disk.fail_after(random.below(120));
        if let Ok(store) = open(&disk, random.next_u64()) {
            let stopped = work(&store, &mut known, &random, 40, sync);
            assert!(!matches!(stopped, Err(SegmentError::Corrupt { .. } | SegmentError::Full)), "{stopped:?}");
        }
        disk = disk.crash(random.next_u64());
        // Whether an unsynced run is there is decided now: keep asking about the synced ones only.
        let store = open(&disk, random.next_u64()).map_err(|error| error.to_string())?;
        check(&store, &known)?;
        known.runs.retain(|known| known.synced);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_synced_run_survives_every_crash(seed: u64) {
        prop_assert_eq!(three_lives(seed, true), Ok(()));
    }
}

/// The property above is able to fail: without syncs it finds lost runs, and only lost ones.
#[test]
fn a_store_that_does_not_sync_is_caught() {
    let failures: Vec<String> = (0..30).filter_map(|seed| three_lives(seed, false).err()).collect();
    assert!(failures.len() > 10, "{failures:?}");
    assert!(failures.iter().all(|failure| !failure.contains("wrong bytes")), "{failures:?}");
}

#[test]
fn concurrent_writers_keep_what_was_synced() {
    for seed in 0..20u64 {
        let disk = SimDisk::new(seed);
        let store = open(&disk, seed).unwrap();
        disk.fail_after(50 + seed * 20);
        let synced: Vec<(u64, Run)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8u64)
                .map(|thread| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut synced = Vec::new();
                        for round in 0..30 {
                            let pattern = thread * 1000 + round;
                            let Ok(run) = write(store, 100 + pattern % 90 * 1000, pattern) else { break };
                            if store.sync_blocking(run.segment).is_err() {
                                break;
                            }
                            synced.push((pattern, run));
                        }
                        synced
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let store = open(&disk.crash(seed), seed).unwrap();
        for (seed, run) in synced {
            assert_eq!(store.read(&Extent::whole(run), 0, run.len).unwrap(), pattern(run.len, seed));
        }
    }
}

#[test]
fn every_flipped_bit_of_a_run_is_noticed() {
    let disk = SimDisk::new(1);
    let store = open(&disk, 1).unwrap();
    for len in [100, 66_000, 250_000] {
        let run = write(&store, len, len).unwrap();
        let ending = if run.offset == 0 { "raw" } else { "pack" };
        let path = Path::new(FOLDER).join(format!("{:016x}.{ending}", run.segment.0));
        for at in (0..len).step_by(1 + len as usize / 50) {
            disk.flip_bit(&path, run.offset + at, at as u8 % 8).unwrap();
            assert!(matches!(store.read(&Extent::whole(run), at, 1), Err(SegmentError::Corrupt { .. })));
            assert!(matches!(store.verify(&Extent::whole(run)), Err(SegmentError::Corrupt { .. })));
            disk.flip_bit(&path, run.offset + at, at as u8 % 8).unwrap();
        }
        store.verify(&Extent::whole(run)).unwrap();
    }
}

#[test]
fn a_failed_sync_ends_writing_but_not_reading() {
    for directory in [false, true] {
        let disk = SimDisk::new(1);
        let store = open(&disk, 1).unwrap();
        let run = write(&store, 5000, 1).unwrap();
        let mut open_writer = store.begin_run(10, b"").unwrap();
        if directory {
            disk.fail_sync_dir_at(1)
        } else {
            disk.fail_sync_at(1)
        }
        assert!(matches!(store.sync_blocking(run.segment), Err(SegmentError::Poisoned(_))));
        assert!(matches!(store.sync_blocking(run.segment), Err(SegmentError::Poisoned(_))), "no second chance");
        assert!(matches!(open_writer.write(b"x"), Err(SegmentError::Poisoned(_))));
        assert!(matches!(store.begin_run(1, b""), Err(SegmentError::Poisoned(_))));
        assert!(matches!(store.create_log(4096), Err(SegmentError::Poisoned(_))));
        assert_eq!(store.read(&Extent::whole(run), 0, 5000).unwrap(), pattern(5000, 1));
        assert!(store.fault().unwrap().contains("injected"));
    }
}

#[test]
fn a_full_disk_refuses_data_and_takes_it_again_after_removals() {
    let disk = SimDisk::new(1);
    disk.set_capacity(4 << 20);
    let store = Store::open(env(&disk, 1), Options { reserve_bytes: 1 << 20, ..options() }).unwrap();
    for round in 0..20u64 {
        let mut runs = Vec::new();
        let available = store.available_bytes().unwrap();
        assert_eq!(available, disk.space(Path::new(FOLDER)).unwrap().free_bytes - (1 << 20));
        assert!(store.check_space(available).is_ok(), "what is said to be available is granted");
        assert!(matches!(store.check_space(available + 1), Err(SegmentError::Full)));
        let refused = loop {
            match write(&store, 40_000 + round * 10_000, round) {
                Ok(run) => runs.push(run),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, SegmentError::Full), "{refused}");
        let free = disk.space(Path::new(FOLDER)).unwrap().free_bytes;
        let reserve = 1 << 20;
        assert!((reserve - 16_384..reserve + 300_000).contains(&free), "round {round}: {free} bytes free");
        let (log, _) = store.create_log(100 << 10).unwrap();
        for run in &runs {
            assert_eq!(store.read(&Extent::whole(*run), 0, run.len).unwrap(), pattern(run.len, round));
        }
        store.seal(log).unwrap();
        for info in store.segments() {
            store.seal(info.id).unwrap();
            remove(&store, info.id).unwrap();
        }
    }
}

#[test]
fn a_disk_without_room_is_full_whoever_notices() {
    let disk = SimDisk::new(1);
    let store = open(&disk, 1).unwrap();
    disk.set_capacity(64 << 10);
    assert!(matches!(store.begin_run(300_000, b""), Err(SegmentError::Full)));
    let mut writer = store.begin_run(50_000, b"").unwrap();
    disk.set_capacity(8 << 10);
    let result = writer.write(&[1; 50_000]).and_then(|()| writer.finish());
    assert!(matches!(result, Err(SegmentError::Full)), "{result:?}");
    assert!(matches!(store.create_log(1 << 20), Err(SegmentError::Full)));
    assert!(store.logs().is_empty());
    // What a log cannot get is not taken from others even for a moment.
    let used = disk.space(Path::new(FOLDER)).unwrap();
    disk.set_capacity(used.total_bytes - used.free_bytes + (1 << 20) + (8 << 10));
    assert!(matches!(store.create_log(1 << 20), Err(SegmentError::Full)), "nearly all that is free");
    disk.set_capacity(used.total_bytes - used.free_bytes + (1 << 20) + (64 << 10));
    store.create_log(1 << 20).unwrap();
}

#[test]
fn cold_bytes_are_not_read_from_memory() {
    let disk = SimDisk::new(1);
    let store = open(&disk, 1).unwrap();
    let run = write(&store, 100_000, 1).unwrap();
    disk.set_cold(true);
    assert!(store.read_cached(&Extent::whole(run), 0, 100).unwrap().is_none());
    disk.set_cold(false);
    assert_eq!(store.read_cached(&Extent::whole(run), 0, 100).unwrap().unwrap(), pattern(100_000, 1)[..100]);
}
