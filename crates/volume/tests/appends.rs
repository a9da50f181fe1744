//! Appends to objects of every form: the bytes, the back rows that lead to them, and what runs beside.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use world::interposed::Interposed;
use world::maintenance::ALL;
use world::tree::plain;
use world::*;

const READ_ONLY: OpenFlags =
    OpenFlags { read: true, write: false, append: false, truncate: false, exclusive: false, kill_privileges: false };

fn append(world: &World, offset: usize, more: &[u8]) -> Result<AppendOutcome, Error> {
    let staged = world.stage("b", more);
    let (offset, etag) = (offset as u64, etag_of(more));
    let condition = WriteCondition::None;
    let request = AppendRequest { bucket: "b", key: "k", offset, etag, encryption: None, condition };
    wait(world.volume.append_object(request, staged))
}

/// The rows fit together, before and after reclaim has moved everything, and the bytes are the same.
fn holds(world: &World, key: &str, body: &[u8]) {
    for _ in 0..2 {
        let report = world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{key} of {} bytes: {report:?}", body.len());
        assert!(world.get("b", key).unwrap() == body, "{key} of {} bytes", body.len());
        let done = world.volume.reclaim_once(&ALL, &SealedLogs).unwrap();
        assert_eq!((done.damaged_runs, done.disputed_segments), (0, 0), "{done:?}");
    }
}

/// Of all sizes: inline, in the log, in a pack, of its own; often enough that the extents need rows of their own.
fn pieces() -> impl Iterator<Item = Vec<u8>> {
    [20, 60, 700, 9000, 50_000, 90_000, 300, 9000, 1, 40 << 10]
        .into_iter()
        .enumerate()
        .map(|(at, len)| body_of(at, len))
}

#[test]
fn an_object_grows_through_all_forms() {
    for payload_bytes_max in [4096, EMBEDDED] {
        let world = World::new(payload_bytes_max);
        wait(world.volume.create_bucket("b")).unwrap();
        let mut body = body_of(99, 10);
        world.put("b", "k", &body).unwrap();
        for more in pieces() {
            append(&world, body.len(), &more).unwrap();
            body.extend_from_slice(&more);
            holds(&world, "k", &body);
        }
        assert!(matches!(append(&world, 3, b"x"), Err(Error::WrongOffset(size)) if size == body.len() as u64));
        world.delete("b", "k").unwrap();
        let usage = wait(world.volume.usage("b")).unwrap();
        assert_eq!(usage, Usage::default());
        assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
    }
}

#[test]
fn another_name_of_the_old_file_keeps_what_it_had() {
    let world = World::new(4096);
    wait(world.volume.create_bucket("b")).unwrap();
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    for (at, first) in pieces().enumerate() {
        world.put("b", "k", &first).unwrap();
        let ino = mount.lookup(mount.root(), &plain("k")).unwrap().ino;
        let link = format!("link{at}");
        mount.link(ino, mount.root(), &plain(&link)).unwrap();
        let mut body = first.clone();
        for more in pieces().skip(at) {
            append(&world, body.len(), &more).unwrap();
            body.extend_from_slice(&more);
        }
        holds(&world, "k", &body);
        holds(&world, &link, &first);
        world.delete("b", "k").unwrap();
        holds(&world, &link, &first);
    }
}

/// Another process gives the object a second name, takes it away, or writes, between any two calls of an append.
#[test]
fn what_another_process_does_to_the_old_file_is_noticed() {
    for (linked, length) in [(false, 700), (true, 700), (false, 50_000), (true, 50_000)] {
        for moment in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
            let memory = Arc::new(Memory::with_payloads(Arc::clone(&store), 4096));
            let engine = Arc::new(Interposed::new(Arc::<Memory>::clone(&memory)));
            let below = Arc::clone(&engine) as Arc<dyn Engine>;
            let volume = Volume::open(Env::real(), Arc::clone(&below), Arc::clone(&store), Options::default()).unwrap();
            let world = World { volume, engine: below, store: Arc::clone(&store), folder };
            wait(world.volume.create_bucket("b")).unwrap();
            let first = body_of(1, length);
            world.put("b", "k", &first).unwrap();
            let other = Volume::open(Env::real(), memory as Arc<dyn Engine>, store, Options::default()).unwrap();
            let mount = Mount::open(other, "b", "", MountOptions::default()).unwrap();
            let ino = mount.lookup(mount.root(), &plain("k")).unwrap().ino;
            if linked {
                mount.link(ino, mount.root(), &plain("link")).unwrap();
            }
            let beside = move || {
                let root = mount.root();
                match linked {
                    true => mount.unlink(root, &plain("link")).unwrap(),
                    false => drop(mount.link(ino, root, &plain("link")).unwrap()),
                }
                drop(mount.open_file(ino, READ_ONLY));
            };
            engine.arm(moment, Box::new(beside));
            let done = append(&world, length, &body_of(2, 900));
            if engine.disarm() {
                assert!(moment > 1, "hardly a moment between");
                break;
            }
            done.unwrap();
            holds(&world, "k", &[first.clone(), body_of(2, 900)].concat());
            if !linked {
                holds(&world, "link", &first);
            }
        }
    }
}
