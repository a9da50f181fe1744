//! A restored bucket or prefix holds exactly its keys, fits together, and gives all its space back.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::Env;
use margay_volume::posix::*;
use margay_volume::*;
use world::backups::*;
use world::maintenance::ALL;
use world::tree::*;
use world::*;

fn copy(world: &World, source_key: &str, bucket: &str, key: &str) {
    let request = CopyRequest { source_bucket: "b", source_key, bucket, key, ..CopyRequest::default() };
    wait(world.volume.copy_object(request)).unwrap();
}

/// Names that sort around each other, runs and files that are shared across them, and one of everything that has rows of its
/// own.
fn laid_out() -> Tree {
    let tree = Tree::new();
    let world = &tree.world;
    for bucket in ["other", "versions"] {
        wait(world.volume.create_bucket(bucket)).unwrap();
    }
    let keys =
        ["a", "a-", "a/", "a/b", "a/b/", "a/b/c", "a/bc", "a/bd/e", "a0", "x//y", "x/z", "y/deep/er/one", "y/two"];
    for (seed, key) in keys.into_iter().enumerate() {
        world.put("b", key, &body_of(seed, [20, 900, 60_000, 230_000][seed % 4])).unwrap();
    }
    world.put("other", "alone", &body_of(50, 70_000)).unwrap();
    for (source, bucket, key) in [
        ("a/b", "b", "x/copy"),
        ("a/b", "b", "a/b/copy"),
        ("a/bc", "b", "y/copy"),
        ("a/bd/e", "other", "of/e"),
        ("a/b/c", "other", "of/c"),
        ("x//y", "b", "x/two"),
    ] {
        copy(world, source, bucket, key);
    }
    let headers: Headers = (0..30).map(|index| (format!("x-amz-meta-{index}"), "value".repeat(20))).collect();
    world.put_with("b", "a/headers", &body_of(1, 700), headers, WriteCondition::None).unwrap();
    links(&tree);
    multipart(world);
    versions(world);
    for bucket in ["b", "versions"] {
        wait(world.volume.set_bucket_setting(bucket, Setting::Cors, b"cors")).unwrap();
        wait(world.volume.set_bucket_setting(bucket, Setting::Policy, b"policy")).unwrap();
    }
    tree
}

/// Hard links, directories that stay, attributes.
fn links(tree: &Tree) {
    for path in ["dir", "dir/sub", "dir/sub/empty", "a/made"] {
        tree.directory(path).unwrap();
    }
    let mount = &tree.mount;
    for (file, others) in [("dir/sub/one", ["two", "dir/three"]), ("a/first", ["a/b/second", "x/third"])] {
        let ino = tree.file(file).unwrap().ino;
        let handle = mount.open_file(ino, OpenFlags { read: true, write: true, ..OpenFlags::default() }).unwrap();
        mount.write(&handle, 0, &body_of(ino.0 as usize, 90_000), false).unwrap();
        mount.release(handle).unwrap();
        for other in others {
            let (parent, name) = tree.split(other);
            mount.link(ino, parent, &name).unwrap();
        }
    }
    mount.publish_written(true).unwrap();
    for path in ["dir/sub/one", "dir/sub", "a/made", "y"] {
        let ino = tree.at(path).unwrap().ino;
        mount.set_xattr(ino, b"user.note", path.as_bytes(), SetXattr::Any, false).unwrap();
    }
}

fn multipart(world: &World) {
    let tags = Documents::from([(Document::Tags, Bytes::from_static(b"a=b"))]);
    for (key, completes) in [("m/parts", true), ("m/under-way", false)] {
        let upload = wait(world.volume.create_multipart("b", key, Headers::new(), tags.clone())).unwrap().upload;
        let mut choice = Vec::new();
        for number in 1..=2 {
            let body = body_of(number.into(), 5 << 20);
            let staged = world.stage("b", &body);
            let etag = etag_of(&body);
            wait(world.volume.put_part("b", key, &upload, number, etag, Headers::new(), staged)).unwrap();
            choice.push(PartChoice { number, etag });
        }
        if completes {
            let none = WriteCondition::None;
            wait(world.volume.complete_multipart("b", key, &upload, &choice, Headers::new(), &none)).unwrap();
        }
    }
}

fn versions(world: &World) {
    world.put("versions", "p/old", &body_of(9, 50_000)).unwrap();
    for versioning in [Versioning::Enabled, Versioning::Suspended] {
        wait(world.volume.set_versioning("versions", versioning)).unwrap();
        for (seed, key) in ["p/old", "p/gone", "p/old", "q/r/s", "p", "q/r/gone"].into_iter().enumerate() {
            world.put("versions", key, &body_of(seed, 45_000)).unwrap();
        }
        for key in ["p/gone", "q/r/gone"] {
            world.delete("versions", key).unwrap();
        }
    }
}

/// Keys with their bytes, and versions, that begin with a prefix.
fn shown(volume: &Arc<Volume>, bucket: &str, prefix: &str) -> (BTreeMap<String, Vec<u8>>, Vec<String>) {
    let mut keys = Vec::new();
    let request = ListRequest { bucket, prefix, delimiter: None, after: None, after_is_prefix: false, max: usize::MAX };
    wait(volume.list(&request, &mut |item| {
        if let ListItem::Object { key, .. } = item {
            keys.push(key.to_owned());
        }
    }))
    .unwrap();
    let objects = all_objects(volume, bucket, keys.into_iter());
    let request = ListVersionsRequest { bucket, prefix, delimiter: None, after: None, max: usize::MAX };
    let mut versions = Vec::new();
    wait(volume.list_versions(&request, &mut |item| versions.push(format!("{item:?}")))).unwrap();
    (objects, versions)
}

/// Removes every version of every key, and lets reclaim take all.
fn empty(volume: &Arc<Volume>, bucket: &str) {
    let request = ListVersionsRequest { bucket, prefix: "", delimiter: None, after: None, max: usize::MAX };
    let mut all = Vec::new();
    wait(volume.list_versions(&request, &mut |item| match item {
        VersionItem::Version { key, version, .. } | VersionItem::DeleteMarker { key, version, .. } => {
            all.push((key.to_owned(), version));
        }
        VersionItem::Prefix(_) => {}
    }))
    .unwrap();
    for (key, version) in all {
        let request = DeleteRequest { version: Some(version), ..DeleteRequest::of(&key) };
        wait(volume.delete_object(bucket, &request)).unwrap();
    }
    for _ in 0..2 {
        volume.reclaim_once(&ALL, &SealedLogs).unwrap();
    }
    let live: u64 = volume.live_bytes().unwrap().values().sum();
    assert_eq!(live, 0, "all is removed");
}

#[test]
fn a_part_holds_its_keys_and_nothing_else() {
    let tree = laid_out();
    let world = &tree.world;
    let folder = tempfile::tempdir().unwrap();
    let moment = backup(world, folder.path()).moment;
    let of_b = ["", "a", "a/", "a/b", "a/b/", "a/b/c", "a/bd/", "d", "dir/", "dir/sub/", "dir/sub/empty/", "two", "x/"];
    let more = ["x//", "y/deep/er/", "y/d", "m/", "a0", "a/made/", "a/f"];
    let of_versions = ["", "p", "p/", "p/gone", "q/r/", "q/r/gone", "q"];
    let parts = of_b.into_iter().chain(more).map(|prefix| ("b", prefix));
    let parts = parts.chain(of_versions.map(|prefix| ("versions", prefix))).chain([("other", ""), ("other", "of/")]);
    for (bucket, prefix) in parts {
        let to = tempfile::tempdir().unwrap();
        let name = PartName { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
        let volume = restore_part(folder.path(), &moment, name, to.path()).unwrap();
        let report = volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{bucket} {prefix:?}: {report:#?}");
        assert_eq!((report.buckets, report.uploads), (1, 0));
        let (right, found) = (shown(&world.volume, bucket, prefix), shown(&volume, bucket, ""));
        assert!(right.0.len() + right.1.len() > 0, "{bucket} {prefix:?} shows nothing");
        assert_eq!(found.0.keys().collect::<Vec<_>>(), right.0.keys().collect::<Vec<_>>(), "{bucket} {prefix:?}");
        assert!(found == right, "{bucket} {prefix:?}");
        if bucket != "other" {
            let setting = wait(volume.bucket_setting(bucket, Setting::Policy)).unwrap();
            assert_eq!(setting.as_deref(), Some(&b"policy"[..]));
        }
        // Who owns what is still right: all goes, and nothing twice.
        empty(&volume, bucket);
        let report = volume.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean(), "{bucket} {prefix:?} emptied: {report:#?}");
    }
}

#[test]
fn attributes_and_links_of_a_part_are_those_of_its_names() {
    let tree = laid_out();
    let folder = tempfile::tempdir().unwrap();
    let moment = backup(&tree.world, folder.path()).moment;
    let to = tempfile::tempdir().unwrap();
    let name = PartName { bucket: "b".to_owned(), prefix: "dir/".to_owned() };
    let volume = restore_part(folder.path(), &moment, name, to.path()).unwrap();
    let mount = Mount::open(volume, "b", "", MountOptions::default()).unwrap();
    let dir = mount.lookup(mount.root(), &plain("dir")).unwrap();
    let sub = mount.lookup(dir.ino, &plain("sub")).unwrap();
    let one = mount.lookup(sub.ino, &plain("one")).unwrap();
    let three = mount.lookup(dir.ino, &plain("three")).unwrap();
    assert_eq!((one.ino, one.links, sub.links), (three.ino, 2, 3));
    assert_eq!(mount.get_xattr(one.ino, b"user.note").unwrap(), "dir/sub/one");
    assert_eq!(mount.get_xattr(sub.ino, b"user.note").unwrap(), "dir/sub");
    let root = mount.attributes(mount.root()).unwrap();
    assert_eq!(root.links, 3, "only dir is left in it");
    assert!(matches!(mount.lookup(mount.root(), &plain("two")), Err(PosixError::NotFound)));
}

#[test]
fn a_part_that_is_not_there_is_refused() {
    let tree = laid_out();
    let folder = tempfile::tempdir().unwrap();
    let moment = backup(&tree.world, folder.path()).moment;
    let find = |bucket: &str, prefix: &str| {
        let name = PartName { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
        Part::find(&Env::real(), folder.path(), &moment, name)
    };
    assert!(matches!(find("none", ""), Err(BackupError::NoBucket { .. })));
    for prefix in ["none", "a/none", "a/none/", "a//", "dir/sub/one/", "y/deep/er/one/"] {
        assert!(matches!(find("b", prefix), Err(BackupError::NoKeys(_))), "{prefix}");
    }
}
