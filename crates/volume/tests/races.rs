//! Operations at the same moment: whatever the order, what is left is whole.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_volume::*;
use world::maintenance::Maintained;
use world::*;

static MAINTAINED: Maintained = Maintained::new();

fn world() -> World {
    world_over(4096)
}

fn world_over(engine: usize) -> World {
    let world = World::new(engine);
    wait(world.volume.create_bucket("b")).unwrap();
    world
}

fn clean(world: &World) {
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
}

/// Runs `work` on so many threads at once, each with its number, beside reclaim.
fn together(world: &World, threads: usize, work: impl Fn(usize) + Sync) {
    let (start, done) = (Barrier::new(threads + 1), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            MAINTAINED.beside(&world.volume, &*world.engine, &done);
        });
        let _ends = Ends(&done);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (work, start) = (&work, &start);
                scope.spawn(move || {
                    start.wait();
                    work(thread);
                });
            }
        });
    });
}

/// Ends reclaim, also when a thread has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn puts_and_deletes_in_one_prefix() {
    [4096, EMBEDDED].into_iter().for_each(|engine| puts_and_deletes(&world_over(engine)));
    MAINTAINED.told("operations at the same moment");
}

fn puts_and_deletes(world: &World) {
    together(world, 64, |thread| {
        for index in 0..20 {
            let key = format!("p/q/{thread:02}-{index}");
            world.put("b", &key, &body_of(thread, 200)).unwrap();
            if index % 2 == 0 {
                assert!(world.delete("b", &key).unwrap());
            }
        }
    });
    assert_eq!(world.keys("b").len(), 640);
    clean(world);
    together(world, 64, |thread| {
        for index in (1..20).step_by(2) {
            assert!(world.delete("b", &format!("p/q/{thread:02}-{index}")).unwrap());
        }
    });
    clean(world);
    wait(world.volume.delete_bucket("b")).unwrap();
}

#[test]
fn one_key_replaced_by_many() {
    let world = world();
    together(&world, 16, |thread| {
        for index in 0..20 {
            world.put("b", "k", &body_of(thread + index, 1000 * thread)).unwrap();
            assert_eq!(world.get("b", "k").unwrap().len() % 1000, 0);
        }
    });
    assert_eq!(world.keys("b"), ["k"]);
    clean(&world);
}

#[test]
fn only_one_wins_a_key_that_was_absent() {
    let world = world();
    let wins = std::sync::atomic::AtomicUsize::new(0);
    together(&world, 32, |thread| {
        let put = world.put_with("b", "d/k", &[thread as u8], Headers::new(), WriteCondition::Absent);
        match put {
            Ok(_) => drop(wins.fetch_add(1, std::sync::atomic::Ordering::Relaxed)),
            Err(error) => assert!(matches!(error, Error::PreconditionFailed), "{error:?}"),
        }
    });
    assert_eq!(wins.into_inner(), 1);
    clean(&world);
}

#[test]
fn implicit_directories_come_and_go() {
    let world = world();
    together(&world, 8, |thread| {
        for _ in 0..60 {
            let key = format!("a/b/c/{thread}");
            world.put("b", &key, b"1").unwrap();
            assert_eq!(world.get("b", &key).unwrap(), b"1");
            assert!(world.delete("b", &key).unwrap());
        }
    });
    assert_eq!(world.keys("b"), [""; 0]);
    clean(&world);
    wait(world.volume.delete_bucket("b")).unwrap();
}

#[test]
fn renames_never_make_a_circle() {
    let world = world();
    for round in 0..60 {
        world.put("b", "a/1", b"1").unwrap();
        world.put("b", "b/2", b"2").unwrap();
        together(&world, 2, |thread| {
            let (from, to) = [("a/", "b/x/"), ("b/", "a/y/")][thread];
            match wait(world.volume.rename("b", from, to, &WriteCondition::None)) {
                Ok(()) | Err(Error::NoSuchKey | Error::PreconditionFailed) => {}
                Err(error) => panic!("{error:?}"),
            }
        });
        let keys = world.keys("b");
        assert_eq!(keys.len(), 2, "round {round}: {keys:?}");
        clean(&world);
        keys.iter().for_each(|key| assert!(world.delete("b", key).unwrap()));
    }
}

#[test]
fn copies_against_the_end_of_their_source() {
    let world = world();
    for payload in [0, 1000, 50_000] {
        for round in 0..30 {
            let body = body_of(round, payload);
            world.put("b", "s/source", &body).unwrap();
            together(&world, 4, |thread| match thread {
                0 => assert!(world.delete("b", "s/source").unwrap()),
                _ => {
                    let key = format!("t/{thread}");
                    let request = CopyRequest {
                        source_bucket: "b",
                        source_key: "s/source",
                        bucket: "b",
                        key: &key,
                        ..CopyRequest::default()
                    };
                    match wait(world.volume.copy_object(request)) {
                        Ok(_) => assert_eq!(world.get("b", &key).unwrap(), body),
                        Err(error) => assert!(matches!(error, Error::NoSuchKey), "{error:?}"),
                    }
                }
            });
            clean(&world);
            let keys = world.keys("b");
            together(&world, keys.len(), |thread| assert!(world.delete("b", &keys[thread]).unwrap()));
            let report = world.volume.fsck(FsckOptions::default()).unwrap();
            assert!(report.clean() && report.live_bytes == 0, "{report:#?}");
        }
    }
}

#[test]
fn parts_against_completion() {
    let world = world();
    for _ in 0..30 {
        let upload = wait(world.volume.create_multipart("b", "m", Headers::new(), Documents::new())).unwrap().upload;
        let put = |number, seed| {
            let body = body_of(seed, 500);
            let staged = world.stage("b", &body);
            wait(world.volume.put_part("b", "m", &upload, number, etag_of(&body), Headers::new(), staged))
        };
        let first = put(1, 1).unwrap();
        together(&world, 4, |thread| match thread {
            0 => {
                let choice = [PartChoice { number: 1, etag: first.etag }];
                let none = WriteCondition::None;
                let done = wait(world.volume.complete_multipart("b", "m", &upload, &choice, Headers::new(), &none));
                assert!(matches!(done, Ok(_) | Err(Error::InvalidPart(1))), "{done:?}");
                if done.is_err() {
                    wait(world.volume.abort_multipart("b", "m", &upload)).unwrap();
                }
            }
            _ => assert!(matches!(put(thread as u16, 2 + thread), Ok(_) | Err(Error::NoSuchUpload))),
        });
        let report = world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean() && report.parts == 0 && report.orphans == 0, "{report:#?}");
    }
}
