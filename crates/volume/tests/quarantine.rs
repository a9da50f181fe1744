//! Wrong accounting loses nothing: a segment that rows name is kept, whatever its counters and back rows say; and a check
//! says so.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use margay_env::Env;
use margay_meta::memory::Memory;
use margay_meta::{Engine, Write};
use margay_segment::{Kind, SegmentId, Store};
use margay_volume::*;
use world::actions::{self, Action, Given};
use world::interposed::Interposed;
use world::*;

fn budget(quarantine: Duration) -> ReclaimBudget {
    // However full the disk is that the test runs on.
    ReclaimBudget { seal_dead_bytes_min: 1, quarantine, free_percent_min: 0, ..ReclaimBudget::default() }
}

fn reclaim(world: &World, quarantine: Duration) -> Reclaimed {
    world.engine.checkpoint().unwrap();
    world.volume.reclaim_once(&budget(quarantine), &SealedLogs).unwrap()
}

/// Counts all live bytes of a segment out, as a wrong counter would.
fn lose_count(world: &World, segment: SegmentId, live: u64) {
    let key = [b"l".as_slice(), &segment.0.to_be_bytes(), b"-"].concat();
    rows::write(&world.engine, vec![Write::Add { key, delta: live as i64 }]);
}

/// A world with one object in a pack of its own, which is sealed; the pack and its live bytes.
fn world_of_one(body: &[u8]) -> (World, SegmentId, u64) {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    world.put("b", "a/k", body).unwrap();
    let live = world.volume.live_bytes().unwrap();
    let (segment, bytes) = live.into_iter().next().unwrap();
    world.store.seal(segment).unwrap();
    (world, segment, bytes)
}

#[test]
fn a_wrong_counter_is_no_proof_and_is_told_and_mended() {
    let body = body_of(1, 20_000);
    let (world, segment, live) = world_of_one(&body);
    lose_count(&world, segment, live);
    let done = reclaim(&world, Duration::ZERO);
    assert_eq!((done.set_aside_segments, done.disputed_segments), (0, 0), "{done:?}");
    let found = world.volume.check(10, &Arc::default()).unwrap();
    assert_eq!(found.findings.into_iter().collect::<Vec<_>>(), [(FindingKind::Counter, 1)]);
    let repaired = world.volume.fsck(FsckOptions { repair: true, ..FsckOptions::default() }).unwrap();
    assert_eq!(repaired.repaired, 1);
    assert!(world.volume.check(10, &Arc::default()).unwrap().clean());
}

#[test]
fn lost_back_rows_remove_nothing_and_are_told_and_mended() {
    let body = body_of(1, 20_000);
    let (world, segment, _) = world_of_one(&body);
    rows::lose_backs(&world.engine, segment.0);
    let done = reclaim(&world, Duration::ZERO);
    assert_eq!((done.set_aside_segments, done.disputed_segments, done.removed_segments), (1, 1, 0), "{done:?}");
    assert_eq!(world.store.taken_back(), 1);
    assert_eq!(world.get("b", "a/k").unwrap(), body);
    // Not again and again.
    let done = reclaim(&world, Duration::ZERO);
    assert_eq!((done.set_aside_segments, done.disputed_segments), (0, 0), "{done:?}");
    let found = world.volume.check(10, &Arc::default()).unwrap();
    assert_eq!(found.findings.into_iter().collect::<Vec<_>>(), [(FindingKind::Back, 1)]);
    let repaired = world.volume.fsck(FsckOptions { repair: true, ..FsckOptions::default() }).unwrap();
    assert_eq!(repaired.repaired, 1);
    assert!(world.volume.check(10, &Arc::default()).unwrap().clean());
}

#[test]
fn a_read_takes_a_segment_back_from_quarantine() {
    let body = body_of(2, 20_000);
    let (world, segment, _) = world_of_one(&body);
    rows::lose_backs(&world.engine, segment.0);
    let done = reclaim(&world, Duration::from_secs(3600));
    assert_eq!((done.set_aside_segments, done.disputed_segments, done.removed_segments), (1, 0, 0), "{done:?}");
    assert_eq!(world.store.quarantined().len(), 1);
    assert_eq!(world.get("b", "a/k").unwrap(), body);
    assert_eq!((world.store.quarantined().len(), world.store.taken_back()), (0, 1));
}

#[test]
fn a_check_takes_a_segment_back_from_quarantine_and_repair_does() {
    let body = body_of(3, 20_000);
    for repair in [false, true] {
        let (world, segment, _) = world_of_one(&body);
        rows::lose_backs(&world.engine, segment.0);
        reclaim(&world, Duration::from_secs(3600));
        let report = if repair {
            world.volume.fsck(FsckOptions { repair: true, ..FsckOptions::default() }).unwrap()
        } else {
            world.volume.check(10, &Arc::default()).unwrap()
        };
        assert_eq!(report.findings.get(&FindingKind::Quarantine), Some(&1), "{report:#?}");
        assert!(world.store.quarantined().is_empty());
        assert_eq!(world.volume.check(10, &Arc::default()).unwrap().clean(), repair);
        assert_eq!(world.get("b", "a/k").unwrap(), body);
    }
}

#[test]
fn a_dead_segment_waits_in_quarantine_and_goes_when_its_time_is_over() {
    let (world, segment, _) = world_of_one(&body_of(4, 20_000));
    assert!(world.delete("b", "a/k").unwrap());
    let done = reclaim(&world, Duration::from_secs(3600));
    assert_eq!((done.set_aside_segments, done.removed_segments), (1, 0), "{done:?}");
    let done = world.volume.release_quarantined(&budget(Duration::from_secs(3600))).unwrap();
    assert_eq!(done, Reclaimed::default());
    assert_eq!(world.store.quarantined()[0].id, segment);
    let hold = world.store.hold_quarantine();
    let done = world.volume.release_quarantined(&budget(Duration::ZERO)).unwrap();
    assert_eq!(done.removed_segments, 0, "somebody needs it");
    drop(hold);
    let done = world.volume.release_quarantined(&budget(Duration::ZERO)).unwrap();
    assert_eq!(done.removed_segments, 1);
    assert!(done.removed_bytes >= 20_000);
    assert!(world.store.quarantined().is_empty());
    assert!(world.volume.check(10, &Arc::default()).unwrap().clean());
}

#[test]
fn lost_files_are_named_by_bucket_and_key() {
    let (world, segment, _) = world_of_one(&body_of(5, 20_000));
    world.put("b", "whole", &body_of(6, 20_000)).unwrap();
    let kind = world.store.state(segment).unwrap().kind;
    assert_eq!(kind, Kind::Pack);
    let file = world.folder.path().join("segments").join(format!("{:016x}.pack", segment.0));
    margay_env::Env::real().disk.remove(&file).unwrap();
    let store =
        margay_segment::Store::open(margay_env::Env::real(), segment_options(&world.folder.path().join("segments")))
            .unwrap();
    let volume = Volume::open(margay_env::Env::real(), Arc::clone(&world.engine), store, Options::default()).unwrap();
    for report in [volume.check(10, &Arc::default()).unwrap(), volume.fsck(FsckOptions::default()).unwrap()] {
        assert_eq!(report.findings.get(&FindingKind::MissingData), Some(&1), "{report:#?}");
        assert!(report.shown.iter().any(|finding| finding.what.starts_with("b/a/k: 20000 bytes")), "{report:#?}");
    }
}

#[test]
fn a_check_beside_writers_finds_nothing() {
    for payload in [0, 4096, EMBEDDED] {
        let world = World::new(payload);
        wait(world.volume.create_bucket("b")).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let world = &world;
                scope.spawn(move || {
                    for round in 0..60 {
                        let key = format!("{writer}/{}", round % 7);
                        world.put("b", &key, &body_of(round, [90, 3000, 40_000][round % 3])).unwrap();
                        if round % 3 == 0 {
                            world.delete("b", &key).unwrap();
                        }
                        if round % 5 == 0 {
                            world.volume.reclaim_once(&budget(Duration::ZERO), &SealedLogs).unwrap();
                        }
                    }
                });
            }
            for _ in 0..10 {
                let report = world.volume.check(10, &Arc::default()).unwrap();
                assert!(report.clean(), "{report:#?}");
            }
        });
        assert_eq!(world.store.taken_back(), 0);
    }
}

#[test]
fn a_reader_of_a_file_that_goes_meanwhile_raises_no_alarm() {
    no_alarm_from(|volume| drop(wait(volume.get_object("b", "k", &ReadCondition::default()))));
    no_alarm_from(|volume| {
        let report = volume.scrub(10, |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(report.damaged, 0, "{report:?}");
    });
}

/// The file goes at every moment of the reading.
fn no_alarm_from(read: impl Fn(&Volume)) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
    let mut set_aside = 0;
    for at in 0.. {
        let engine = Arc::new(Interposed::on_both_sides(Arc::new(Memory::with_payloads(Arc::clone(&store), 4096))));
        let open = || {
            let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
            Volume::open(Env::real(), below, Arc::clone(&store), Options::default()).unwrap()
        };
        let (first, second) = (open(), open());
        wait(first.create_bucket("b")).unwrap();
        let given = Given::default();
        actions::run(&first, &given, Action::Put("k", 66_500));
        let removed = Arc::new(AtomicU64::new(0));
        let slot = Arc::clone(&removed);
        let remove = move || {
            actions::run(&second, &given, Action::Delete("k"));
            let done = second.reclaim_once(&budget(Duration::from_secs(3600)), &SealedLogs).unwrap();
            slot.store(done.set_aside_segments, Ordering::Relaxed);
        };
        engine.arm(at, Box::new(remove));
        read(&first);
        assert_eq!(store.taken_back(), 0, "moment {at}");
        if engine.disarm() {
            break;
        }
        set_aside += removed.load(Ordering::Relaxed);
    }
    assert!(set_aside > 0, "no segment went while somebody read");
}
