//! What POSIX puts into the tree, seen through S3 and by the checkers: several names, holes, extended attributes,
//! files that are neither regular nor directories.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use margay_volume::*;
use world::rows::{self, FLAG_XATTRS};
use world::*;

fn world() -> World {
    let world = World::new(4096);
    wait(world.volume.create_bucket("b")).unwrap();
    world
}

fn clean(world: &World) -> FsckReport {
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "{report:#?}");
    let scrub = world.volume.scrub(10, |_| std::ops::ControlFlow::Continue(())).unwrap();
    assert_eq!(scrub.damaged, 0, "{scrub:?}");
    report
}

fn findings(world: &World) -> Vec<FindingKind> {
    world.volume.fsck(FsckOptions::default()).unwrap().findings.keys().copied().collect()
}

/// Repairs, and is clean afterwards.
fn repair(world: &World) {
    world.volume.fsck(FsckOptions { repair: true, ..FsckOptions::default() }).unwrap();
    clean(world);
}

fn link(world: &World, from: &str, to: &str) {
    assert_eq!(rows::link(&world.volume, "b", from, to), "linked");
}

fn copy(world: &World, from: &str, to: &str, headers: Option<Headers>) -> Result<PutOutcome, Error> {
    let (condition, source_condition) = (WriteCondition::None, ReadCondition::default());
    let (source_bucket, source_key, bucket, key) = ("b", from, "b", to);
    let request = CopyRequest {
        source_bucket,
        source_key,
        bucket,
        key,
        headers,
        condition,
        source_condition,
        ..CopyRequest::default()
    };
    wait(world.volume.copy_object(request))
}

fn head(world: &World, key: &str) -> ObjectInfo {
    wait(world.volume.head_object("b", key, &ReadCondition::default())).unwrap()
}

fn rename(world: &World, from: &str, to: &str) {
    wait(world.volume.rename("b", from, to, &WriteCondition::None)).unwrap();
}

fn usage(world: &World) -> (u64, u64) {
    let usage = wait(world.volume.usage("b")).unwrap();
    (usage.objects, usage.bytes)
}

fn tables(world: &World) -> String {
    // Of segments and stores: segment_rows.rs.
    let mut tables: Vec<u8> = world.rows().iter().map(|(key, _)| key[0]).filter(|table| *table != b'S').collect();
    tables.dedup();
    String::from_utf8(tables).unwrap()
}

fn reclaim(world: &World) -> Reclaimed {
    let budget = ReclaimBudget { seal_dead_bytes_min: 1, ..ReclaimBudget::default() };
    world.volume.reclaim_once(&budget, &SealedLogs).unwrap()
}

#[test]
fn several_names_are_several_objects() {
    let world = world();
    let body = body_of(1, 5000);
    world.put("b", "a", &body).unwrap();
    world.put("b", "d/x", b"x").unwrap();
    link(&world, "a", "b");
    link(&world, "b", "d/c");
    assert_eq!(world.keys("b"), ["a", "b", "d/c", "d/x"]);
    assert_eq!(usage(&world), (4, 15_001));
    assert_eq!((head(&world, "a"), clean(&world).files), (head(&world, "d/c"), 2));
    // Two directories of names, one after another, a page at a time.
    let page = |after| {
        let request =
            ListRequest { bucket: "b", prefix: "", delimiter: Some("/"), after, after_is_prefix: false, max: 1 };
        world.list(&request)
    };
    assert_eq!(page(Some("a")), (vec![Item::Object("b".to_owned(), 5000)], Some(("b".to_owned(), false))));
    assert_eq!(page(Some("b")), (vec![Item::Prefix("d/".to_owned())], None));

    world.put("b", "a", b"new").unwrap();
    assert_eq!((world.get("b", "a").unwrap(), world.get("b", "b").unwrap()), (b"new".to_vec(), body.clone()));
    clean(&world);
    rename(&world, "b", "e/f");
    assert_eq!(world.get("b", "e/f").unwrap(), body);
    assert!(world.delete("b", "e/f").unwrap());
    assert_eq!(rows::file(&world.engine, "b", "d/c").1.links(), 1);
    assert_eq!(world.get("b", "d/c").unwrap(), body);
    clean(&world);
    assert!(world.delete("b", "d/c").unwrap());
    assert_eq!((clean(&world).live_bytes, usage(&world)), (0, (2, 4)));
    assert!(!tables(&world).contains('n'));
}

#[test]
fn a_name_replaces_another_name_of_its_file() {
    let world = world();
    let body = body_of(1, 5000);
    world.put("b", "a", &body).unwrap();
    for name in ["b", "c", "d"] {
        link(&world, "a", name);
    }
    rename(&world, "a", "b");
    copy(&world, "b", "c", None).unwrap();
    assert_eq!(rows::file(&world.engine, "b", "b").1.links(), 2);
    assert_eq!(clean(&world).shared_runs, 1);
    // Onto itself: the headers of the file, whatever its names.
    let headers = Headers::from([("content-type".to_owned(), "text/x".to_owned())]);
    copy(&world, "d", "d", Some(headers.clone())).unwrap();
    assert_eq!(head(&world, "b").headers, headers);
    assert_eq!(world.keys("b"), ["b", "c", "d"]);
    assert_eq!(usage(&world), (3, 15_000));
    for key in ["b", "d", "c"] {
        assert_eq!(world.get("b", key).unwrap(), body);
        assert!(world.delete("b", key).unwrap());
        clean(&world);
    }
    assert_eq!((clean(&world).live_bytes, tables(&world)), (0, "bcdilmt".to_owned()));
}

#[test]
fn a_large_file_goes_with_its_last_name() {
    let world = world();
    let body = body_of(3, 210_000);
    let headers = Headers::from([("x-amz-meta-long".to_owned(), "m".repeat(1500))]);
    world.put_with("b", "a", &body, headers.clone(), WriteCondition::None).unwrap();
    world.put("b", "filler", &body_of(1, 60_000)).unwrap();
    link(&world, "a", "b");
    rows::change(&world.engine, "b", "a", |raw| raw.flags |= FLAG_XATTRS);
    let ino = rows::file(&world.engine, "b", "a").1.ino;
    rows::write(&world.engine, vec![rows::put(rows::key(b'a', ino, b"user.x"), b"1".to_vec())]);
    clean(&world);
    assert!(world.delete("b", "a").unwrap());
    assert_eq!((world.get("b", "b").unwrap(), head(&world, "b").headers), (body.clone(), headers));
    // What is left moves, and the record's file with it.
    assert!(world.delete("b", "filler").unwrap());
    reclaim(&world);
    clean(&world);
    assert!(world.get("b", "b").unwrap() == body);
    assert!(world.delete("b", "b").unwrap());
    assert_eq!((clean(&world).live_bytes, tables(&world)), (0, "bcdilmt".to_owned()));
}

#[test]
fn reclaim_moves_the_runs_of_files_with_several_names() {
    let world = world();
    for index in 0..40 {
        world.put("b", &format!("{index:02}"), &body_of(index, 9000)).unwrap();
    }
    world.put("b", "large", &body_of(50, 210_000)).unwrap();
    for name in ["00", "20", "large"] {
        link(&world, name, &format!("{name} again"));
    }
    for index in (0..40).filter(|index| index % 20 != 0) {
        assert!(world.delete("b", &format!("{index:02}")).unwrap());
    }
    let done = reclaim(&world);
    assert!(done.moved_runs >= 2 && done.skipped_runs == 0, "{done:?}");
    clean(&world);
    for (name, index, len) in [("00", 0, 9000), ("20 again", 20, 9000), ("large again", 50, 210_000)] {
        assert!(world.get("b", name).unwrap() == body_of(index, len));
    }
}

#[test]
fn holes_read_as_zeros_and_belong_to_nobody() {
    const HOLE: usize = 3 << 20;
    let world = world();
    let bytes = body_of(1, 9000);
    world.put("b", "a", &bytes).unwrap();
    rows::change(&world.engine, "b", "a", |raw| raw.add_hole(HOLE as u64));
    rows::write(&world.engine, vec![margay_meta::Write::Add { key: rows::key(b'c', 1, b"b"), delta: HOLE as i64 }]);
    let body = [vec![0; HOLE], bytes].concat();
    assert!(world.get("b", "a").unwrap() == body);
    let reader = wait(world.volume.get_object("b", "a", &ReadCondition::default())).unwrap();
    assert_eq!(reader.pinned_segments(), 1);
    assert_eq!(&wait(reader.read(HOLE as u64 - 3, 10)).unwrap()[..], [0; 3]);
    assert_eq!(&wait(reader.read(HOLE as u64, 10)).unwrap()[..], &body[HOLE..HOLE + 10]);
    drop(reader);
    assert_eq!(clean(&world).live_bytes, 9000);

    copy(&world, "a", "copy", None).unwrap();
    let upload = wait(world.volume.create_multipart("b", "parts", Headers::new(), Documents::new())).unwrap().upload;
    let slice = 1000..HOLE as u64 + 5000;
    let condition = ReadCondition::default();
    let part =
        wait(world.volume.copy_part("b", "parts", &upload, 1, ("b", "a", None), Some(slice), &condition)).unwrap();
    let choice = [PartChoice { number: 1, etag: part.etag }];
    let none = WriteCondition::None;
    wait(world.volume.complete_multipart("b", "parts", &upload, &choice, Headers::new(), &none)).unwrap();
    assert!(world.get("b", "parts").unwrap() == body[1000..HOLE + 5000]);
    assert_eq!(clean(&world).shared_runs, 1);
    assert!(!world.rows().iter().any(|(key, _)| b"rl".contains(&key[0]) && key[1..9] == [0; 8]));

    world.put("b", "filler", &body_of(2, 30_000)).unwrap();
    for key in ["a", "filler", "parts"] {
        assert!(world.delete("b", key).unwrap());
    }
    reclaim(&world);
    assert!(world.get("b", "copy").unwrap() == body);
    assert!(world.delete("b", "copy").unwrap());
    assert_eq!((clean(&world).live_bytes, usage(&world)), (0, (0, 0)));
}

#[test]
fn extended_attributes_go_with_what_has_them() {
    let world = world();
    let attribute = |ino: u64, name: &[u8]| rows::put(rows::key(b'a', ino, name), b"value".to_vec());
    world.put("b", "d/a", &body_of(1, 300)).unwrap();
    rows::change(&world.engine, "b", "d/a", |raw| (raw.flags, raw.mode) = (FLAG_XATTRS, 0o640));
    let old = rows::file(&world.engine, "b", "d/a").1;
    let directory = rows::directory(&world.engine, "b", "d/");
    let entry = rows::key(b'e', 1, b"d/");
    let mut value = world.engine.get(&entry).unwrap().value.unwrap().value.to_vec();
    value[2] |= FLAG_XATTRS;
    rows::write(
        &world.engine,
        vec![
            attribute(old.ino, b"system.posix_acl_access"),
            attribute(old.ino, b"user.x"),
            attribute(directory, b"user.y"),
            rows::put(entry, value),
        ],
    );
    clean(&world);
    // A copy has none; an object in the file's place has its rights, and the list that they are the mask of.
    copy(&world, "d/a", "copy", None).unwrap();
    assert_eq!(rows::file(&world.engine, "b", "copy").1.flags & FLAG_XATTRS, 0);
    world.put("b", "d/a", b"new").unwrap();
    let new = rows::file(&world.engine, "b", "d/a").1;
    assert_eq!((new.mode, new.flags & FLAG_XATTRS), (0o640, FLAG_XATTRS));
    let attributes = world.rows().into_iter().filter(|(key, _)| key[0] == b'a').map(|(key, _)| key);
    let wanted = [rows::key(b'a', directory, b"user.y"), rows::key(b'a', new.ino, b"system.posix_acl_access")];
    assert_eq!(attributes.collect::<Vec<_>>(), wanted);
    clean(&world);
    // The implicit directory goes too.
    assert!(world.delete("b", "d/a").unwrap());
    assert!(!tables(&world).contains('a'));
    clean(&world);
}

#[test]
fn attributes_of_a_root_go_with_its_bucket() {
    let world = world();
    // Kind 2, explicit with attributes, ino 1, mode 755, root.
    let root = [vec![1, 2, 1 | FLAG_XATTRS, 1], rows::varint(0o755), vec![0, 0]].concat();
    let attribute = rows::put(rows::key(b'a', 1, b"user.x"), b"1".to_vec());
    rows::write(&world.engine, vec![rows::put(rows::key(b'n', 1, b""), root.clone()), attribute]);
    clean(&world);
    wait(world.volume.delete_bucket("b")).unwrap();
    assert_eq!(tables(&world), "im");
    rows::write(&world.engine, vec![rows::put(rows::key(b'n', 1, b""), root)]);
    assert_eq!(findings(&world), [FindingKind::Leftover]);
    repair(&world);
}

#[test]
fn other_kinds_of_files_are_objects_that_say_so() {
    use rows::{BLOCK, CHAR, FIFO, SOCKET, SYMLINK};
    let world = world();
    let told = |key: &str| {
        let headers = head(&world, key).headers;
        let reader = wait(world.volume.get_object("b", key, &ReadCondition::default())).unwrap();
        assert_eq!(reader.info().headers, headers);
        headers.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let kinds = [
        ("symlink", SYMLINK, 0, "../target"),
        ("fifo", FIFO, 0, ""),
        ("socket", SOCKET, 0, ""),
        ("char", CHAR, 0x0010_0334, ""),
        ("block", BLOCK, 0x0810, ""),
    ];
    for (kind, mode, device, body) in kinds {
        world.put("b", kind, body.as_bytes()).unwrap();
        rows::change(&world.engine, "b", kind, |raw| {
            (raw.mode, raw.uid, raw.gid) = (mode | 0o6711, 7, 8);
            if device != 0 {
                raw.set_device(device);
            }
        });
        let mut wanted = vec![format!("x-amz-meta-margay-kind={kind}")];
        match kind {
            "char" => wanted.insert(0, "x-amz-meta-margay-device=3:308".to_owned()),
            "block" => wanted.insert(0, "x-amz-meta-margay-device=8:16".to_owned()),
            _ => {}
        }
        assert_eq!(told(kind), wanted);
        assert_eq!(world.get("b", kind).unwrap(), body.as_bytes());
        // A copy is a plain object, and so is what a PUT leaves there.
        copy(&world, kind, "copy", None).unwrap();
        assert_eq!((told("copy"), rows::file(&world.engine, "b", "copy").1.mode), (Vec::new(), 0o644));
        assert!(world.delete("b", "copy").unwrap());
        world.put("b", kind, b"plain").unwrap();
        let plain = rows::file(&world.engine, "b", kind).1;
        let mode = if kind == "symlink" { 0o644 } else { 0o711 };
        assert_eq!((plain.mode, plain.uid, plain.gid, told(kind)), (mode, 7, 8, Vec::new()));
    }
    clean(&world);
}

#[test]
fn fsck_counts_names() {
    let world = world();
    world.put("b", "a", &body_of(1, 3000)).unwrap();
    link(&world, "a", "b");
    rows::change(&world.engine, "b", "a", |raw| raw.set_links(5));
    assert_eq!(findings(&world), [FindingKind::Links]);
    repair(&world);
    assert_eq!(rows::file(&world.engine, "b", "b").1.links(), 2);
}

#[test]
fn fsck_removes_a_file_without_names() {
    let world = world();
    world.put_with("b", "a", &body_of(1, 210_000), Headers::new(), WriteCondition::None).unwrap();
    link(&world, "a", "b");
    let names = ["a", "b"].map(|name| margay_meta::Write::Delete { key: rows::entry_key(&world.engine, "b", name) });
    rows::write(&world.engine, names.to_vec());
    assert_eq!(findings(&world), [FindingKind::Counter, FindingKind::Leftover, FindingKind::Back]);
    repair(&world);
    assert_eq!(tables(&world), "bcdimt");
}

#[test]
fn fsck_tells_of_names_without_a_file() {
    let world = world();
    world.put("b", "a", b"").unwrap();
    link(&world, "a", "b");
    let ino = rows::file(&world.engine, "b", "a").1.ino;
    rows::write(&world.engine, vec![margay_meta::Write::Delete { key: rows::key(b'n', ino, b"") }]);
    let report = world.volume.fsck(FsckOptions::default()).unwrap();
    assert_eq!(report.findings[&FindingKind::LostFile], 2);
    assert!(matches!(world.get("b", "a"), Err(Error::Corrupt(_))));
    assert!(matches!(world.delete("b", "a"), Err(Error::Corrupt(_))));
}

#[test]
fn fsck_finds_rows_that_do_not_belong() {
    let world = world();
    world.put("b", "a", &body_of(1, 3000)).unwrap();
    let (row, raw) = rows::file(&world.engine, "b", "a");
    // Attributes that the entry does not tell of.
    rows::write(&world.engine, vec![rows::put(rows::key(b'a', raw.ino, b"user.x"), b"1".to_vec())]);
    assert_eq!(findings(&world), [FindingKind::Leftover]);
    repair(&world);
    // A record of another number.
    rows::write(&world.engine, vec![rows::put(rows::key(b'n', raw.ino + 1, b""), raw.value())]);
    assert_eq!(findings(&world), [FindingKind::Damaged]);
    rows::write(&world.engine, vec![margay_meta::Write::Delete { key: rows::key(b'n', raw.ino + 1, b"") }]);
    // A run whose place was never filled in is no hole.
    let mut lost = raw.clone();
    lost.rest[2..18].fill(0);
    rows::write(&world.engine, vec![rows::put(row, lost.value())]);
    assert_eq!(findings(&world), [FindingKind::Counter, FindingKind::MissingData, FindingKind::Back]);
    // A file with the name of a directory.
    let name = rows::put(rows::key(b'e', 1, b"d/"), rows::link_value(raw.ino));
    rows::write(&world.engine, vec![name]);
    assert!(findings(&world).contains(&FindingKind::Directory));
}

#[test]
fn a_mount_finds_what_s3_moved() {
    let world = world();
    world.put("b", "d/a", &body_of(1, 300)).unwrap();
    let mount = posix::Mount::open(world.volume.clone(), "b", "", posix::MountOptions::default()).unwrap();
    let look = |parent, name: &str| mount.lookup(parent, &posix::Name::Plain(name.to_owned())).unwrap();
    let directory = look(mount.root(), "d");
    let file = look(directory.ino, "a");
    rename(&world, "d/", "e/");
    assert_eq!(mount.attributes(file.ino).unwrap().size, 300);
    assert_eq!(look(mount.root(), "e").ino, directory.ino);
    rename(&world, "e/a", "f/g/h");
    assert_eq!(mount.attributes(file.ino).unwrap().size, 300);
    // Its name goes, another one stays.
    link(&world, "f/g/h", "other");
    assert!(world.delete("b", "f/g/h").unwrap());
    let now = mount.attributes(file.ino).unwrap();
    assert_eq!((now.ino, now.links), (file.ino, 1));
    assert!(world.delete("b", "other").unwrap());
    assert!(mount.attributes(file.ino).is_err());
}
