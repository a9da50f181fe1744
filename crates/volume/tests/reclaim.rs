//! Space comes back, and nothing that is named is lost.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use margay_volume::*;
use proptest::prelude::*;
use world::*;

fn budget() -> ReclaimBudget {
    ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() }
}

/// After a checkpoint, so that the embedded engine lets its logs go.
fn reclaim(world: &World) -> Reclaimed {
    world.engine.checkpoint().unwrap();
    world.volume.reclaim_once(&budget(), &SealedLogs).unwrap()
}

/// Bytes of packs, raw segments, and logs that the engine let go.
fn data_bytes(world: &World) -> u64 {
    let counts = |info: &margay_segment::SegmentInfo| info.kind != margay_segment::Kind::Log || !info.open;
    world.store.segments().iter().filter(|info| counts(info)).map(|info| info.len).sum()
}

/// Reclaims until what is left is as wanted, and gives what the last look found: the checkpointer seals its last log after
/// the fold, and removes it a little later, so a second look may find it again.
fn reclaim_until(world: &World, wanted: impl Fn(u64) -> bool) -> u64 {
    let mut left = 0;
    for _ in 0..500 {
        reclaim(world);
        left = data_bytes(world);
        if wanted(left) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    left
}

fn clean(world: &World) -> FsckReport {
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
    report
}

#[test]
fn deleted_bytes_come_back() {
    for payload in [0, 4096, EMBEDDED] {
        let world = World::new(payload);
        wait(world.volume.create_bucket("b")).unwrap();
        for index in 0..200 {
            world.put("b", &format!("{index:03}"), &body_of(index, [900, 9000, 60_000][index % 3])).unwrap();
        }
        clean(&world);
        let full = data_bytes(&world);
        for index in (0..200).filter(|index| index % 10 != 0) {
            assert!(world.delete("b", &format!("{index:03}")).unwrap());
        }
        let done = reclaim(&world);
        assert!(done.moved_runs > 0 && done.removed_segments > 0, "{done:?}");
        let live = clean(&world).live_bytes;
        let left = reclaim_until(&world, |left| live * 10 >= left * 7);
        assert!(left * 3 < full, "{left} of {full}");
        assert!(live * 10 >= left * 7, "{left}: {:?}", clean(&world));
        for index in (0..200).step_by(10) {
            let body = body_of(index, [900, 9000, 60_000][index % 3]);
            assert!(world.get("b", &format!("{index:03}")).unwrap() == body);
            assert!(world.delete("b", &format!("{index:03}")).unwrap());
        }
        assert_eq!(reclaim_until(&world, |left| left == 0), 0);
        assert_eq!(clean(&world).live_bytes, 0);
    }
}

#[test]
fn a_reader_keeps_its_segment_and_an_upload_its_own() {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    let body = body_of(1, 20_000);
    world.put("b", "k", &body).unwrap();
    let reader = wait(world.volume.get_object("b", "k", &ReadCondition::default())).unwrap();
    let staged = world.stage("b", &body);
    world.delete("b", "k").unwrap();
    reclaim(&world);
    assert_eq!(read_all(&reader), body);
    let condition = WriteCondition::None;
    let request = PutRequest {
        bucket: "b",
        key: "l",
        etag: etag_of(&body),
        headers: Headers::new(),
        condition,
        ..PutRequest::default()
    };
    wait(world.volume.put_object(request, staged)).unwrap();
    reclaim(&world);
    assert_eq!(world.get("b", "l").unwrap(), body);
    drop(reader);
    world.delete("b", "l").unwrap();
    reclaim(&world);
    clean(&world);
    assert_eq!(data_bytes(&world), 0);
}

#[test]
fn reclaim_and_scrub_beside_writers_and_readers() {
    [4096, EMBEDDED].into_iter().for_each(|engine| reclaim_beside(&World::new(engine)));
}

fn reclaim_beside(world: &World) {
    wait(world.volume.create_bucket("b")).unwrap();
    let writing = AtomicUsize::new(4);
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let writing = &writing;
            scope.spawn(move || {
                let mut model = BTreeMap::new();
                for index in 0..150usize {
                    let key = format!("{thread}/{}", index * 7 % 20);
                    let body = body_of(index + thread, [300, 6000, 50_000, 170_000][(index + thread) % 4]);
                    if index % 3 == 2 {
                        world.delete("b", &key).unwrap();
                        model.remove(&key);
                    } else {
                        world.put("b", &key, &body).unwrap();
                        model.insert(key, body);
                    }
                    for (key, body) in model.iter().take(3) {
                        assert!(world.get("b", key).unwrap() == *body);
                    }
                    if index % 5 == 0 {
                        let (from, to) = (format!("{thread}/0"), format!("{thread}/copy"));
                        let request = CopyRequest {
                            source_bucket: "b",
                            source_key: &from,
                            bucket: "b",
                            key: &to,
                            ..CopyRequest::default()
                        };
                        if wait(world.volume.copy_object(request)).is_ok() {
                            let body = model[&from].clone();
                            model.insert(to, body);
                        }
                    }
                }
                for (key, body) in &model {
                    assert!(world.get("b", key).unwrap() == *body);
                }
                writing.fetch_sub(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while writing.load(Ordering::Relaxed) > 0 {
                world.volume.reclaim_once(&budget(), &SealedLogs).unwrap();
            }
        });
        scope.spawn(|| {
            while writing.load(Ordering::Relaxed) > 0 {
                let report = world.volume.scrub(10, |_| ControlFlow::Continue(())).unwrap();
                assert_eq!(report.damaged, 0, "{report:#?}");
            }
        });
    });
    clean(world);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]
    #[test]
    fn shared_and_large_objects_survive(
        steps in prop::collection::vec((0usize..8, 0usize..8, 0usize..4), 1..60), payload in prop::sample::select(vec![0usize, 4096, EMBEDDED]),
    ) {
        let world = World::new(payload);
        wait(world.volume.create_bucket("b")).unwrap();
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for (index, (one, two, what)) in steps.into_iter().enumerate() {
            let (from, to) = (format!("{one}"), format!("{two}"));
            match what {
                0 => {
                    let body = body_of(index, [500, 20_000, 90_000, 250_000][two % 4]);
                    world.put("b", &from, &body).unwrap();
                    model.insert(from, body);
                }
                1 => {
                    let request = CopyRequest {
                        source_bucket: "b", source_key: &from, bucket: "b", key: &to, ..CopyRequest::default()
                    };
                    if wait(world.volume.copy_object(request)).is_ok() {
                        let body = model[&from].clone();
                        model.insert(to, body);
                    }
                }
                2 => {
                    world.delete("b", &from).unwrap();
                    model.remove(&from);
                }
                _ => drop(reclaim(&world)),
            }
        }
        reclaim(&world);
        clean(&world);
        for (key, body) in &model {
            prop_assert!(world.get("b", key).unwrap() == *body);
        }
        model.keys().for_each(|key| assert!(world.delete("b", key).unwrap()));
        let left = reclaim_until(&world, |left| left == 0);
        let report = clean(&world);
        prop_assert_eq!((report.live_bytes, left), (0, 0));
    }
}

#[test]
fn a_run_that_many_rows_name_is_verified_once() {
    let world = World::new(0);
    wait(world.volume.create_bucket("b")).unwrap();
    world.put("b", "k", &body_of(1, 20_000)).unwrap();
    for copy in 0..5 {
        let key = &format!("c{copy}");
        let request = CopyRequest { source_bucket: "b", source_key: "k", bucket: "b", key, ..CopyRequest::default() };
        wait(world.volume.copy_object(request)).unwrap();
    }
    let report = world.volume.scrub(10, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((report.rows, report.bytes, report.damaged), (6, 20_000, 0), "{report:?}");
}

/// A pass that rewrites a segment gives back space, so passes come to an end: neither the rest of a small pack's last page nor
/// the frames of small runs are dead bytes.
#[test]
fn passes_end_when_nothing_more_can_be_given_back() {
    for sizes in [&[5000_usize][..], &[9000, 5000], &[150; 400], &[129, 4000, 70_000]] {
        let world = World::new(0);
        wait(world.volume.create_bucket("b")).unwrap();
        for (index, size) in sizes.iter().enumerate() {
            world.put("b", &format!("k{index}"), &body_of(index, *size)).unwrap();
            world.put("b", "gone", &body_of(index, 3000)).unwrap();
        }
        world.delete("b", "gone").unwrap();
        let compact = ReclaimBudget { punch: true, ..budget() };
        let mut passes = 0;
        loop {
            world.engine.checkpoint().unwrap();
            let done = world.volume.reclaim_once(&compact, &SealedLogs).unwrap();
            if done.moved_runs + done.removed_segments == 0 {
                break;
            }
            passes += 1;
            assert!(passes < 20, "{sizes:?}: it moves the same runs again and again: {done:?}");
        }
        clean(&world);
        for (index, size) in sizes.iter().enumerate() {
            assert_eq!(world.get("b", &format!("k{index}")).unwrap(), body_of(index, *size));
        }
    }
}
