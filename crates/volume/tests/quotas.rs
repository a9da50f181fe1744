//! Quotas: what adds to a bucket is refused when it would hold too much, by whichever door it comes.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::{Arc, Barrier};

use margay_volume::posix::{Mount, MountOptions, Name, NewFile, OpenFlags, PosixError};
use margay_volume::*;
use world::*;

fn world(objects: Option<u64>, bytes: Option<u64>) -> World {
    let world = World::new(4096);
    wait(world.volume.create_bucket("b")).unwrap();
    wait(world.volume.set_quota("b", Quota { objects, bytes })).unwrap();
    world
}

fn refused<T: std::fmt::Debug>(done: Result<T, Error>) {
    assert!(matches!(done, Err(Error::QuotaExceeded)), "{done:?}");
}

#[test]
fn objects_are_counted() {
    let world = world(Some(2), None);
    world.put("b", "a", b"1").unwrap();
    world.put("b", "d/b", b"1").unwrap();
    refused(world.put("b", "c", b"1"));
    world.put("b", "a", &body_of(1, 9000)).unwrap();
    world.delete("b", "a").unwrap();
    world.put("b", "c", b"1").unwrap();
    assert_eq!(wait(world.volume.quota("b")).unwrap(), Quota { objects: Some(2), bytes: None });
}

#[test]
fn bytes_are_counted() {
    let world = world(None, Some(1000));
    world.put("b", "a", &body_of(1, 600)).unwrap();
    refused(world.put("b", "c", &body_of(1, 401)));
    world.put("b", "c", &body_of(1, 400)).unwrap();
    refused(world.put("b", "c", &body_of(1, 401)));
    refused(wait(world.volume.begin_upload("b", 1001)).map(drop));
    world.put("b", "empty", b"").unwrap();
    let copy = CopyRequest { source_bucket: "b", source_key: "a", bucket: "b", key: "copy", ..CopyRequest::default() };
    refused(wait(world.volume.copy_object(copy)));
    let (etag, condition) = (etag_of(b"1"), WriteCondition::None);
    let append = AppendRequest { bucket: "b", key: "a", offset: 600, etag, encryption: None, condition };
    refused(wait(world.volume.append_object(append, world.stage("b", b"1"))));
    wait(world.volume.rename("b", "a", "moved", &WriteCondition::None)).unwrap();
    // A lower quota keeps what is there.
    wait(world.volume.set_quota("b", Quota { bytes: Some(10), objects: None })).unwrap();
    refused(world.put("b", "more", b"1"));
    assert_eq!(world.get("b", "moved").unwrap(), body_of(1, 600));
    wait(world.volume.set_quota("b", Quota::default())).unwrap();
    world.put("b", "more", b"1").unwrap();
}

#[test]
fn quotas_are_known_after_a_restart() {
    let world = world(Some(0), None);
    let reopened = world.reopen();
    let staged = world.stage("b", b"x");
    refused(wait(reopened.put_object(PutRequest { bucket: "b", key: "k", ..PutRequest::default() }, staged)));
    assert!(reopened.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn what_is_exceeded_was_under_way() {
    let threads = 8;
    let world = world(Some(20), None);
    let start = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (world, start) = (&world, &start);
            scope.spawn(move || {
                start.wait();
                for index in 0..10 {
                    match world.put("b", &format!("{thread}-{index}"), b"1") {
                        Ok(_) | Err(Error::QuotaExceeded) => {}
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
    });
    let objects = wait(world.volume.usage("b")).unwrap().objects;
    assert!((20..20 + threads as u64).contains(&objects), "{objects}");
}

#[test]
fn mounts_are_refused_too() {
    let world = world(Some(2), Some(1000));
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let new = NewFile { rights: 0o644, ..NewFile::default() };
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let create = |name: &str| mount.create(mount.root(), &Name::Plain(name.to_owned()), &new, flags);
    let over = |error: PosixError| assert!(matches!(error, PosixError::Failed(Error::QuotaExceeded)), "{error:?}");
    let (_, handle) = create("a").unwrap();
    mount.write(&handle, 0, &body_of(1, 1000), false).unwrap();
    over(mount.write(&handle, 1000, b"x", false).unwrap_err());
    // Overwriting adds nothing.
    mount.write(&handle, 0, &body_of(2, 1000), false).unwrap();
    mount.release(handle).unwrap();
    assert_eq!(world.get("b", "a").unwrap(), body_of(2, 1000));
    create("b").unwrap();
    over(create("c").map(drop).unwrap_err());
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}
