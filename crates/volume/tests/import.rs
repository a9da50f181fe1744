//! Entries that come from another store: where there is room for them, and counted as any other.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Timestamp;
use margay_segment::{SegmentId, Segments, StoreNumber};
use margay_volume::posix::{Mount, MountOptions};
use margay_volume::*;
use world::*;

/// The store that has the bytes: without another one all segments count as own.
#[derive(Debug)]
struct Elsewhere;

impl Peers for Elsewhere {
    fn store(&self, _number: StoreNumber) -> Option<Arc<dyn Segments>> {
        None
    }
}

fn entry(world: &World, name: &str, size: u64) -> Imported {
    let ino = world.volume.new_number().unwrap();
    let kind = match name.ends_with('/') {
        true => ImportedKind::Directory { explicit: false },
        false => ImportedKind::File {
            size,
            etag: etag_of(b""),
            device: 0,
            headers: Headers::new(),
            bytes: ImportedBytes::Far(SegmentId(StoreNumber(0xfffe).ids().0.0 + ino.0)),
        },
    };
    let (sort_name, modified) = (name.to_owned(), Timestamp(5));
    Imported { ino, sort_name, mode: 0o600, uid: 1, gid: 2, modified, xattrs: Vec::new(), kind }
}

#[test]
fn entries_are_made_where_there_are_none_and_are_counted() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    let mount = Mount::open(std::sync::Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let root = mount.root();
    let import = |directory, entries: &[Imported]| world.volume.import("b", directory, entries, &[]).unwrap();
    world.put("b", "taken", b"x").unwrap();
    let both = [entry(&world, "new", 0), entry(&world, "taken", 0)];
    assert!(!import(root, &both), "one of the names is taken");
    assert_eq!(world.get("b", "taken").unwrap(), b"x");
    assert!(world.get("b", "new").is_err(), "all or nothing");
    let below = entry(&world, "d/", 0);
    assert!(!import(below.ino, &[entry(&world, "f", 0)]), "the directory is not there");
    assert!(import(root, &[entry(&world, "new", 0), below.clone()]));
    assert!(import(below.ino, &[entry(&world, "f", 0)]));
    assert_eq!(world.get("b", "d/f").unwrap(), b"");
    assert_eq!(mount.attributes(below.ino).unwrap().rights, 0o600);
    assert_eq!(wait(world.volume.usage("b")).unwrap(), Usage { objects: 3, bytes: 1, versions: 0 });
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
    // What is elsewhere counts too; this world has no such store, so its bytes cannot be checked.
    assert!(import(root, &[entry(&world, "far", 70 << 30)]));
    assert_eq!(wait(world.volume.usage("b")).unwrap(), Usage { objects: 4, bytes: 1 + (70 << 30), versions: 0 });
    let reader = wait(world.volume.get_object("b", "far", &ReadCondition::default()));
    assert!(reader.is_err(), "no such store");
}

#[test]
fn an_entry_takes_the_place_of_the_file_that_is_named() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    let mount = Mount::open(std::sync::Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let root = mount.root();
    for name in ["replaced", "gone", "kept"] {
        world.put("b", name, b"content").unwrap();
    }
    let ino = |name: &str| mount.lookup(root, &posix::Name::Plain(name.to_owned())).unwrap().ino;
    let gone = [("replaced".to_owned(), ino("replaced")), ("gone".to_owned(), ino("gone"))];
    let new = [entry(&world, "replaced", 0), entry(&world, "new", 0)];
    let import =
        |gone: &[(String, Ino)], new: &[Imported]| world.volume.import_over("b", root, gone, new, &[]).unwrap();
    assert!(!import(&[("gone".to_owned(), ino("kept"))], &[]), "another file has the name");
    assert!(!import(&gone, &[entry(&world, "kept", 0)]), "a name that is not to go");
    assert!(!import(&[("absent".to_owned(), ino("kept"))], &[]));
    let before = mount.attributes(root).unwrap().modified;
    assert!(import(&gone, &new));
    assert!(mount.attributes(root).unwrap().modified > before, "the directory has changed");
    assert_eq!(ino("replaced"), new[0].ino);
    assert_eq!(
        (world.get("b", "replaced").unwrap(), world.get("b", "kept").unwrap()),
        (Vec::new(), b"content".to_vec())
    );
    assert!(world.get("b", "gone").is_err() && world.get("b", "new").is_ok());
    assert_eq!(wait(world.volume.usage("b")).unwrap(), Usage { objects: 3, bytes: 7, versions: 0 });
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn an_evicted_file_has_no_bytes_here() {
    let options = Options { run_bytes_max: 40 << 10, peers: Some(Arc::new(Elsewhere)), ..Options::default() };
    let world = World::with_options(EMBEDDED, options);
    wait(world.volume.create_bucket("b")).unwrap();
    let mount = Mount::open(std::sync::Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let root = mount.root();
    let ino = |name: &str| mount.lookup(root, &posix::Name::Plain(name.to_owned())).unwrap().ino;
    let evict = |name: &str, is_there: &dyn Fn() -> bool| {
        let (ino, bytes) = (ino(name), SegmentId(StoreNumber(0xfffe).ids().0.0 + 7));
        let named = NamedFile { directory: root, sort_name: name, ino };
        world.volume.evict(named, bytes, |_| is_there(), &[]).unwrap()
    };
    world.put("b", "whole", &[1; 2000]).unwrap();
    let new = posix::NewFile { uid: 1, gid: 1, rights: 0o644, umask: 0 };
    let both = posix::OpenFlags {
        read: true,
        write: true,
        append: false,
        truncate: false,
        exclusive: false,
        kill_privileges: false,
    };
    // More extents than an entry has, with holes between them.
    let (_, handle) = mount.create(root, &posix::Name::Plain("pieces".to_owned()), &new, both).unwrap();
    for number in 0..200 {
        mount.write(&handle, number * 8192, &[2; 1000], false).unwrap();
        mount.flush(&handle).unwrap();
    }
    mount.release(handle).unwrap();
    assert_eq!(world.volume.own_bytes().unwrap(), 202_000);
    assert_eq!(evict("whole", &|| false), 0, "the other store has another state");
    let changed = || {
        world.put("b", "whole", &[3; 1000]).unwrap();
        true
    };
    assert_eq!(evict("whole", &changed), 0, "it was changed after the look");
    assert_eq!(world.get("b", "whole").unwrap(), [3; 1000]);
    assert_eq!((evict("whole", &|| true), evict("pieces", &|| true)), (1000, 200_000));
    assert_eq!(world.volume.own_bytes().unwrap(), 0);
    assert_eq!(evict("whole", &|| true), 0, "it has nothing here");
    assert_eq!(
        wait(world.volume.usage("b")).unwrap(),
        Usage { objects: 2, bytes: 1000 + 199 * 8192 + 1000, versions: 0 }
    );
    // Nothing is left when they go.
    for name in ["whole", "pieces"] {
        mount.unlink(root, &posix::Name::Plain(name.to_owned())).unwrap();
    }
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn what_is_kept_is_counted_and_let_go() {
    let world = World::new(EMBEDDED);
    for bucket in ["b", "kept"] {
        wait(world.volume.create_bucket(bucket)).unwrap();
    }
    let mount = Mount::open(std::sync::Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let root = mount.root();
    world.put("b", "x", &[1; 2000]).unwrap();
    let keep = |name: &str, is_state: &dyn Fn() -> bool| {
        let ino = mount.lookup(root, &posix::Name::Plain("x".to_owned())).unwrap().ino;
        let named = NamedFile { directory: root, sort_name: "x", ino };
        world.volume.keep(named, ("kept", name), |_| is_state(), &[]).unwrap()
    };
    let usage = |bucket: &str| wait(world.volume.usage(bucket)).unwrap();
    assert!(!keep("one", &|| false), "it has another state");
    assert!(keep("one", &|| true));
    assert!(!keep("one", &|| true), "the name is taken");
    let changed = || {
        world.put("b", "x", &[3; 1000]).unwrap();
        true
    };
    assert!(!keep("two", &changed), "it was changed after the look");
    assert_eq!(usage("kept"), Usage { objects: 1, bytes: 2000, versions: 0 });
    assert_eq!((world.get("kept", "one").unwrap(), world.get("b", "x").unwrap()), (vec![1; 2000], vec![3; 1000]));
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
    assert!(world.volume.let_go("kept", "one", &[]).unwrap());
    assert!(!world.volume.let_go("kept", "one", &[]).unwrap(), "it is gone");
    assert_eq!((usage("kept"), usage("b").bytes), (Usage { objects: 0, bytes: 0, versions: 0 }, 1000));
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn a_directory_goes_when_nothing_is_in_it() {
    let world = World::new(EMBEDDED);
    wait(world.volume.create_bucket("b")).unwrap();
    let mount = Mount::open(std::sync::Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let root = mount.root();
    let [full, empty] = ["full/", "empty/"].map(|name| entry(&world, name, 0));
    let links = || mount.attributes(root).unwrap().links;
    let alone = links();
    assert!(world.volume.import("b", root, &[full.clone(), empty.clone()], &[]).unwrap());
    assert!(world.volume.import("b", full.ino, &[entry(&world, "f", 0)], &[]).unwrap());
    assert_eq!(links(), alone + 2);
    let goes = |name: &str, ino| world.volume.import_over("b", root, &[(name.to_owned(), ino)], &[], &[]).unwrap();
    assert!(!goes("full/", full.ino), "something is in it");
    assert!(!goes("empty/", full.ino), "another one has the name");
    assert!(!goes("absent/", full.ino));
    assert!(goes("empty/", empty.ino));
    assert_eq!(links(), alone + 1);
    assert!(mount.lookup(root, &posix::Name::Plain("empty".to_owned())).is_err());
    assert_eq!(world.get("b", "full/f").unwrap(), b"");
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}
