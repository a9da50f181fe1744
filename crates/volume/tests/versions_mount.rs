//! What the mount refuses where versions are kept or locked, and what it makes there.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_volume::posix::*;
use margay_volume::*;
use world::*;

struct Doors {
    world: World,
    mount: Arc<Mount>,
}

/// Key, version, whether it is the latest; without a size a delete marker.
type Line = (String, VersionId, bool, Option<u64>);

impl Doors {
    fn new(payload: usize, object_lock: bool) -> Doors {
        let world = World::new(payload);
        wait(world.volume.create_bucket_with("b", &NewBucket { object_lock, ..NewBucket::default() })).unwrap();
        let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
        Doors { world, mount }
    }

    fn open(&self, file: &str) -> Handle {
        let flags = OpenFlags { read: true, write: true, ..OpenFlags::default() };
        let new = NewFile { rights: 0o644, ..NewFile::default() };
        self.mount.create(self.mount.root(), &name(file), &new, flags).unwrap().1
    }

    fn lines(&self) -> Vec<Line> {
        let request = ListVersionsRequest { bucket: "b", prefix: "", delimiter: None, after: None, max: 1000 };
        let mut lines = Vec::new();
        let listed = wait(self.world.volume.list_versions(&request, &mut |item| match item {
            VersionItem::Version { key, version, is_latest, size, .. } => {
                lines.push((key.to_owned(), version, is_latest, Some(size)));
            }
            VersionItem::DeleteMarker { key, version, is_latest, .. } => {
                lines.push((key.to_owned(), version, is_latest, None));
            }
            VersionItem::Prefix(_) => {}
        }));
        listed.unwrap();
        lines
    }

    fn clean(&self) {
        let report = self.world.volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{report:#?}");
    }
}

fn name(name: &str) -> Name {
    Name::Plain(name.to_owned())
}

#[test]
fn what_the_mount_refuses_where_versions_are_kept() {
    let doors = Doors::new(0, false);
    let (mount, root) = (&doors.mount, doors.mount.root());
    doors.world.put("b", "f", b"1").unwrap();
    let ino = mount.lookup(root, &name("f")).unwrap().ino;
    mount.link(ino, root, &name("g")).unwrap();
    mount.make_directory(root, &name("d"), &NewFile::default()).unwrap();
    wait(doors.world.volume.set_versioning("b", Versioning::Enabled)).unwrap();

    assert!(matches!(mount.link(ino, root, &name("h")), Err(PosixError::NotPermitted)));
    let moved = |from: &str, to: &str, mode| mount.rename(root, &name(from), root, &name(to), mode);
    for (from, to, mode) in [("d", "e", RenameMode::Replace), ("f", "d", RenameMode::Exchange)] {
        assert!(matches!(moved(from, to, mode), Err(PosixError::Failed(Error::KeepsVersions))));
    }
    // A file with several names has no one key.
    assert!(matches!(moved("g", "e", RenameMode::Replace), Err(PosixError::Failed(Error::KeepsVersions))));
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    assert!(matches!(mount.open_file(ino, write), Err(PosixError::NotPermitted)));
    mount.unlink(root, &name("g")).unwrap();
    drop(mount.open_file(ino, write).unwrap());
    let lines = doors.lines();
    assert!(lines.iter().any(|line| line.0 == "g" && line.2 && line.3.is_none()), "{lines:?}");
    doors.clean();
}

#[test]
fn a_locked_file_is_read_only_in_the_mount() {
    let doors = Doors::new(0, true);
    let (mount, root, volume) = (&doors.mount, doors.mount.root(), &doors.world.volume);
    doors.world.put("b", "f", b"kept").unwrap();
    doors.world.put("b", "g", b"free").unwrap();
    let ino = mount.lookup(root, &name("f")).unwrap().ino;
    // Opened for writing before it is locked: what it publishes is another version.
    let early = doors.open("f");
    wait(volume.set_legal_hold(("b", "f", None), true)).unwrap();

    let refused = |done: Result<(), PosixError>| assert!(matches!(done, Err(PosixError::NotPermitted)), "{done:?}");
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    refused(mount.open_file(ino, write).map(drop));
    refused(mount.open_file(ino, OpenFlags { read: true, truncate: true, ..OpenFlags::default() }).map(drop));
    refused(mount.unlink(root, &name("f")));
    refused(mount.rename(root, &name("f"), root, &name("h"), RenameMode::Replace));
    refused(mount.rename(root, &name("g"), root, &name("f"), RenameMode::Replace));
    refused(mount.set_attributes(ino, &AttributeChange { size: Some(0), ..AttributeChange::default() }).map(drop));
    refused(mount.set_attributes(ino, &AttributeChange { rights: Some(0), ..AttributeChange::default() }).map(drop));
    let time = Some(SetTime::Now);
    refused(mount.set_attributes(ino, &AttributeChange { modified: time, ..AttributeChange::default() }).map(drop));
    refused(mount.set_xattr(ino, b"user.a", b"b", SetXattr::Any, false));
    drop(mount.open_file(ino, OpenFlags { read: true, ..OpenFlags::default() }).unwrap());
    assert_eq!(doors.world.get("b", "f").unwrap(), b"kept");

    mount.write(&early, 0, b"more", false).unwrap();
    mount.release(early).unwrap();
    let of_f: Vec<Line> = doors.lines().into_iter().filter(|line| line.0 == "f").collect();
    let [(_, _, true, Some(4)), (_, locked, false, Some(4))] = of_f[..] else { panic!("{of_f:?}") };
    let reader = wait(volume.get_version("b", "f", Some(locked), &ReadCondition::default())).unwrap();
    assert_eq!(read_all(&reader), b"kept");
    let request = DeleteRequest { version: Some(locked), bypass_governance: true, ..DeleteRequest::of("f") };
    assert!(matches!(wait(volume.delete_object("b", &request)), Err(Error::Locked)));
    // What is current is not locked as the one below it is.
    mount.unlink(root, &name("f")).unwrap();
    doors.clean();
}

#[test]
fn what_the_mount_makes_is_retained_with_its_last_close() {
    let doors = Doors::new(4096, true);
    let default = DefaultRetention { mode: RetentionMode::Compliance, period: RetentionPeriod::Days(1) };
    wait(doors.world.volume.set_object_lock("b", Some(default))).unwrap();
    let documents = || wait(doors.world.volume.head_object("b", "f", &ReadCondition::default())).unwrap().documents;
    let handle = doors.open("f");
    for round in 0..3 {
        doors.mount.write(&handle, round * 100, &body_of(1, 100), false).unwrap();
        doors.mount.sync(&handle).unwrap();
        assert!(documents().is_empty());
    }
    doors.mount.release(handle).unwrap();
    assert!(documents().contains_key(&Document::Retention));
    assert_eq!(doors.lines().len(), 1);
    let gone = doors.mount.unlink(doors.mount.root(), &name("f"));
    assert!(matches!(gone, Err(PosixError::NotPermitted)));
    doors.clean();
}

#[test]
fn a_path_too_long_for_rows_of_versions_is_refused_and_one_that_is_there_stays() {
    let doors = Doors::new(EMBEDDED, false);
    let (new, flags) = (NewFile::default(), OpenFlags { write: true, ..OpenFlags::default() });
    let mut parent = doors.mount.root();
    for _ in 0..12 {
        parent = doors.mount.make_directory(parent, &name(&"d".repeat(250)), &new).unwrap().ino;
    }
    let make = |text: &str| doors.mount.create(parent, &name(text), &new, flags);
    doors.mount.release(make("old").unwrap().1).unwrap();
    wait(doors.world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
    assert!(matches!(make("new"), Err(PosixError::Failed(Error::KeyTooLong))));
    doors.mount.unlink(parent, &name("old")).unwrap();
    let longest = doors.world.rows().iter().map(|(key, _)| key.len()).max().unwrap();
    assert!(longest > margay_meta::KEY_BYTES_MAX, "{longest}");
    let of_file = doors.lines().into_iter().filter(|(key, ..)| key.ends_with("/old"));
    assert_eq!(of_file.count(), 2, "a version and a delete marker");
    doors.world.engine.checkpoint().unwrap();
    assert!(doors.world.reopen().fsck(FsckOptions::default()).unwrap().clean());
    doors.clean();
}
