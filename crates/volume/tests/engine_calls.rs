//! How many calls of the engine an operation makes, one after another: what it waits for when the engine is far away.
//!
//! Why:      an engine that answers after a millisecond makes of nine calls nine milliseconds. The numbers below are those of
//!           now; a change may lower one, and must then write the lower number down.
//! Not here: calls of the S3 door, which asks for facts of the bucket besides.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::counted::CountedEngine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::{DirectoryItem, Mount, MountOptions, Name, NewFile, OpenFlags, RenameMode};
use margay_volume::*;
use world::{World, etag_of, far, segment_options, wait};

fn counted() -> (Arc<CountedEngine>, World) {
    counted_with(Options::default())
}

fn counted_with(options: Options) -> (Arc<CountedEngine>, World) {
    counted_over(options, |memory| memory)
}

fn counted_over(
    options: Options,
    place: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>,
) -> (Arc<CountedEngine>, World) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
    let engine = Memory::with_payloads(Arc::clone(&store), 64 << 10);
    let counted = Arc::new(CountedEngine::new(place(Arc::new(engine))));
    let engine = Arc::clone(&counted) as Arc<dyn Engine>;
    let volume = Volume::open(Env::real(), Arc::clone(&engine), Arc::clone(&store), options).unwrap();
    wait(volume.create_bucket("b")).unwrap();
    (counted, World { volume, engine, store, folder })
}

fn list(world: &World, delimiter: Option<&str>, prefix: &str) {
    let request = ListRequest { bucket: "b", prefix, delimiter, after: None, after_is_prefix: false, max: 1000 };
    wait(world.volume.list(&request, &mut |_| {})).unwrap();
}

/// Puts an object whose bytes are there already.
fn put(world: &World, counted: &CountedEngine, key: &str) -> (u64, u64) {
    let staged = world.stage("b", b"body");
    let request = PutRequest { bucket: "b", key, etag: etag_of(b"body"), ..PutRequest::default() };
    counted.of(|| wait(world.volume.put_object(request, staged)).unwrap())
}

#[test]
fn operations_of_s3_make_so_many_calls() {
    let (counted, world) = counted();
    let plain = ReadCondition::default();
    let calls = [0usize, 3].map(|depth| {
        let key = format!("{}k", "d/".repeat(depth));
        // The first one makes directories, the second one remembers the walk to them.
        put(&world, &counted, &key);
        put(&world, &counted, &key);
        [
            ("PUT", put(&world, &counted, &key)),
            ("HEAD", counted.of(|| wait(world.volume.head_object("b", &key, &plain)).unwrap())),
            ("GET", counted.of(|| drop(wait(world.volume.get_object("b", &key, &plain)).unwrap()))),
            ("DELETE", counted.of(|| wait(world.volume.delete_object("b", &DeleteRequest::of(&key))).unwrap())),
        ]
    });
    let each = [("PUT", (1, 1)), ("HEAD", (1, 0)), ("GET", (1, 0)), ("DELETE", (1, 1))];
    assert_eq!(calls, [each; 2], "reads and commits at depth 0 and 3");
}

/// The directories of a key are made, and the way to them is remembered.
fn warm(world: &World, key: &str) {
    let directory = &key[..key.rfind('/').map_or(0, |slash| slash + 1)];
    for _ in 0..2 {
        world.put("b", &format!("{directory}beside"), b"x").unwrap();
    }
}

/// Puts with the rows that the door has looked for.
fn put_looked_for(world: &World, counted: &CountedEngine, key: &str) -> (u64, u64) {
    let staged = world.stage("b", b"body");
    let request = PutRequest { bucket: "b", key, etag: etag_of(b"body"), ..PutRequest::default() };
    counted.of(|| {
        let rows = wait(world.volume.look("b", Purpose::PutObject(key))).unwrap();
        wait(world.volume.view(&rows).put_object(request, staged)).unwrap()
    })
}

#[test]
fn operations_on_two_keys_make_one_read_and_one_commit() {
    let (counted, world) = counted();
    let none = WriteCondition::None;
    for (from, to) in [("from", "to"), ("a/b/c/from", "a/d/e/to"), ("a/b/c/from", "to")] {
        let source = || {
            world.put("b", from, b"body").unwrap();
            // Neighbours keep the directories.
            [from, to].iter().for_each(|key| warm(&world, key));
        };
        let copy =
            || CopyRequest { source_bucket: "b", source_key: from, bucket: "b", key: to, ..CopyRequest::default() };
        // To a free key, over an object, and onto itself.
        for _ in 0..2 {
            source();
            assert_eq!(counted.of(|| wait(world.volume.copy_object(copy())).unwrap()), (1, 1), "copy {from} {to}");
        }
        let onto_itself = CopyRequest { key: from, headers: Some(Headers::new()), ..copy() };
        assert_eq!(counted.of(|| wait(world.volume.copy_object(onto_itself)).unwrap()), (1, 1), "copy {from}");
        for _ in 0..2 {
            source();
            let rename = || wait(world.volume.rename("b", from, to, &none)).unwrap();
            assert_eq!(counted.of(rename), (1, 1), "rename {from} {to}");
        }
        world.put("b", from, b"body").unwrap();
        wait(world.volume.delete_object("b", &DeleteRequest::of(to))).unwrap();
    }
    ["p/q/k", "p/k"].iter().for_each(|key| warm(&world, key));
    assert_eq!(counted.of(|| wait(world.volume.rename("b", "p/q/", "p/r/", &none)).unwrap()), (1, 1), "a directory");
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn uploads_in_parts_make_one_read_and_one_commit_each() {
    let (counted, world) = counted();
    world.put("b", "source", &[7; 100_000]).unwrap();
    for key in ["k", "d/e/k", "d/e/k"] {
        warm(&world, key);
        let (volume, mut upload) = (&world.volume, String::new());
        let create =
            || upload = wait(volume.create_multipart("b", key, Headers::new(), Documents::new())).unwrap().upload;
        assert_eq!(counted.of(create), (1, 1), "create {key}");
        for number in [1, 1, 2] {
            let staged = world.stage("b", b"part");
            let put = || wait(volume.put_part("b", key, &upload, number, etag_of(b"part"), Headers::new(), staged));
            assert_eq!(counted.of(|| put().unwrap()), (1, 1), "part {number} of {key}");
        }
        let (source, plain) = (("b", "source", None), ReadCondition::default());
        let copy = || wait(volume.copy_part("b", key, &upload, 3, source, None, &plain)).unwrap();
        assert_eq!(counted.of(copy), (1, 1), "a copied part of {key}");
        assert_eq!(counted.of(|| wait(volume.abort_multipart("b", key, &upload)).unwrap()).1, 2, "abort {key}");

        let upload = wait(volume.create_multipart("b", key, Headers::new(), Documents::new())).unwrap().upload;
        let part = |number| {
            let staged = world.stage("b", b"part");
            wait(volume.put_part("b", key, &upload, number, etag_of(b"part"), Headers::new(), staged)).unwrap();
        };
        part(1);
        let choice = [PartChoice { number: 1, etag: etag_of(b"part") }];
        let complete = || {
            wait(volume.complete_multipart("b", key, &upload, &choice, Headers::new(), &WriteCondition::None)).unwrap()
        };
        assert_eq!(counted.of(complete), (1, 1), "complete {key}");

        // A part that is not chosen is drained.
        let upload = wait(volume.create_multipart("b", key, Headers::new(), Documents::new())).unwrap().upload;
        for number in [1, 2] {
            let staged = world.stage("b", b"part");
            wait(volume.put_part("b", key, &upload, number, etag_of(b"part"), Headers::new(), staged)).unwrap();
        }
        let complete = || {
            wait(volume.complete_multipart("b", key, &upload, &choice, Headers::new(), &WriteCondition::None)).unwrap()
        };
        assert_eq!(counted.of(complete), (3, 2), "complete {key} with a part left");
    }
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn a_version_is_read_in_one_call() {
    let (counted, world) = counted();
    let plain = ReadCondition::default();
    for key in ["k", "d/e/k"] {
        warm(&world, key);
        let old = world.put("b", key, &[1; 9000]).unwrap();
        wait(world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
        let ids = [old, world.put("b", key, &[2; 9000]).unwrap(), world.put("b", key, b"3").unwrap()]
            .map(|put| put.version.unwrap_or(VersionId::Null));
        for id in ids {
            // A row that says which one is the null version is read first.
            let reads = if id == VersionId::Null { 3 } else { 1 };
            let get = || wait(world.volume.get_version("b", key, Some(id), &plain)).unwrap();
            assert_eq!(counted.of(|| drop(get())), (reads, 0), "GET {id} of {key}");
            let head = || wait(world.volume.head_version("b", key, Some(id), &plain)).unwrap();
            assert_eq!(counted.of(|| drop(head())), (reads, 0), "HEAD {id} of {key}");
        }
        // Also if the directories have gone, once the bucket is known.
        assert_eq!(put_looked_for(&world, &counted, key), (1, 1), "PUT {key}");
        wait(world.volume.delete_object("b", &DeleteRequest::of(key))).unwrap();
        let get = || wait(world.volume.get_version("b", key, Some(ids[1]), &plain)).unwrap();
        assert_eq!(counted.of(|| drop(get())), (1, 0), "GET of {key}, which is deleted");
        let delete = DeleteRequest { version: Some(ids[1]), ..DeleteRequest::of(key) };
        assert_eq!(counted.of(|| wait(world.volume.delete_object("b", &delete)).unwrap()), (1, 1), "DELETE {key}");
    }
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn extents_in_rows_come_with_the_entry() {
    let options = Options { payload_bytes_max: 128, run_bytes_max: 128, ..Options::default() };
    let (counted, world) = counted_with(options);
    let plain = ReadCondition::default();
    warm(&world, "d/many");
    // Those behind the first 2048 are read by themselves, and then the entry once more.
    for (extents, reads) in [(5, 1), (2048, 1), (2049, 3)] {
        let body: Vec<u8> = (0..extents * 128).map(|at| (at / 128) as u8).collect();
        world.put("b", "d/many", &body).unwrap();
        assert_eq!(counted.of(|| wait(world.volume.head_object("b", "d/many", &plain)).unwrap()), (1, 0), "HEAD");
        let get = || wait(world.volume.get_object("b", "d/many", &plain)).unwrap();
        assert_eq!(counted.of(|| drop(get())), (reads, 0), "GET of {extents} extents");
        assert_eq!(world.get("b", "d/many").unwrap(), body);
        let copy = CopyRequest {
            source_bucket: "b",
            source_key: "d/many",
            bucket: "b",
            key: "d/copy",
            ..CopyRequest::default()
        };
        let copied = counted.of(|| wait(world.volume.copy_object(copy)).unwrap());
        assert!(copied.0 <= 4 && copied.1 == 1, "copy of {extents} extents: {copied:?}");
        assert_eq!(world.get("b", "d/copy").unwrap(), body);
        world.put("b", "d/small", b"x").unwrap();
        let over = CopyRequest {
            source_bucket: "b",
            source_key: "d/small",
            bucket: "b",
            key: "d/copy",
            ..CopyRequest::default()
        };
        let copied = counted.of(|| wait(world.volume.copy_object(over)).unwrap());
        assert!(copied.0 <= reads && copied.1 == 1, "copy over {extents} extents: {copied:?}");
    }
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn a_quota_costs_no_call_more() {
    let (counted, world) = counted();
    for directories in ["", "d/e/"] {
        for quota in [(Some(100), None), (None, Some(1000)), (Some(100), Some(1000))] {
            wait(world.volume.set_quota("b", Quota { objects: quota.0, bytes: quota.1 })).unwrap();
            warm(&world, directories);
            let key = format!("{directories}k-{quota:?}");
            assert_eq!(put_looked_for(&world, &counted, &key), (1, 1), "PUT {key}");
            assert_eq!(put_looked_for(&world, &counted, &key), (1, 1), "PUT {key} again");
        }
    }
    // Counters that were fetched ahead only admit; a refusal rests on those of now.
    let used = wait(world.volume.usage("b")).unwrap();
    wait(world.volume.set_quota("b", Quota { objects: Some(used.objects), bytes: None })).unwrap();
    world.put("b", "beside", b"x").unwrap();
    let rows = wait(world.volume.look("b", Purpose::PutObject("more"))).unwrap();
    world.delete("b", "beside").unwrap();
    let request = || PutRequest { bucket: "b", key: "more", etag: etag_of(b"body"), ..PutRequest::default() };
    let staged = world.stage("b", b"body");
    wait(world.volume.view(&rows).put_object(request(), staged)).unwrap();
    let rows = wait(world.volume.look("b", Purpose::PutObject("even more"))).unwrap();
    let staged = world.stage("b", b"body");
    let refused = wait(world.volume.view(&rows).put_object(PutRequest { key: "even more", ..request() }, staged));
    assert!(matches!(refused, Err(Error::QuotaExceeded)), "{refused:?}");
}

#[test]
fn a_thousand_keys_are_deleted_in_batches() {
    let (counted, world) = counted();
    let keys: Vec<String> = (0..1000).map(|number| format!("p/d{}/k{number}", number % 3)).collect();
    for key in &keys {
        world.put("b", key, b"x").unwrap();
    }
    let requests: Vec<DeleteRequest<'_>> = keys.iter().map(|key| DeleteRequest::of(key)).collect();
    let calls = counted.of(|| {
        let answers = wait(world.volume.delete_objects("b", &requests)).unwrap();
        assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|deleted| deleted.removed)));
    });
    assert_eq!(calls, (10, 10), "of 100 keys each");
    assert_eq!(world.keys("b"), [""; 0]);
    assert!(world.volume.fsck(FsckOptions::default()).unwrap().clean());
}

#[test]
fn listings_make_so_many_calls() {
    let (counted, world) = counted();
    for directory in 0..100 {
        world.put("b", &format!("p/d{directory:02}/k"), b"x").unwrap();
    }
    list(&world, Some("/"), "p/");
    let calls = [Some("/"), None].map(|delimiter| counted.of(|| list(&world, delimiter, "p/")));
    assert_eq!(calls, [(1, 0), (2, 0)], "a page with delimiter, and one over 100 directories without");
}

/// Lists everything below `p/` by pages, and gives for each page how many items it had and how many rows were read.
fn pages(world: &World, counted: &CountedEngine, delimiter: Option<&str>, max: usize) -> Vec<(u64, u64)> {
    let mut pages = Vec::new();
    let mut after: Option<(String, bool)> = None;
    loop {
        let (name, is_prefix) = after.as_ref().map_or((None, false), |(name, is)| (Some(name.as_str()), *is));
        let request =
            ListRequest { bucket: "b", prefix: "p/", delimiter, after: name, after_is_prefix: is_prefix, max };
        let (mut items, before) = (0, counted.rows());
        let outcome = wait(world.volume.list(&request, &mut |_| items += 1)).unwrap();
        pages.push((items, counted.rows() - before));
        match outcome.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

#[test]
fn a_page_reads_at_most_three_times_the_rows_that_it_gives_and_a_thousand() {
    // Directories below `p/`, and files in each.
    for (directories, files) in [(0, 2500), (1200, 1), (300, 7), (40, 60), (3, 1100), (1, 2100)] {
        let (counted, world) = counted();
        for directory in 0..directories.max(1) {
            for file in 0..files {
                let folder = if directories == 0 { String::new() } else { format!("d{directory:04}/") };
                world.put("b", &format!("p/{folder}f{file:04}"), b"x").unwrap();
            }
        }
        for delimiter in [None, Some("/"), Some("1")] {
            for max in [1000, 300, 7] {
                for (page, (items, rows)) in pages(&world, &counted, delimiter, max).into_iter().enumerate() {
                    let told = format!("{directories} x {files}, {delimiter:?}, page {page} of {max}: {items} items");
                    assert!(rows <= 3 * items + 1000, "{told}, {rows} rows");
                }
            }
        }
    }
}

#[test]
fn operations_of_a_mount_make_so_many_calls() {
    let (counted, world) = counted();
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let name = |text: &str| Name::Plain(text.to_owned());
    let root = mount.root();
    let (new, flags) = (NewFile::default(), OpenFlags { write: true, ..OpenFlags::default() });
    mount.release(mount.create(root, &name("warm"), &new, flags).unwrap().1).unwrap();
    let mut handle = None;
    let create = counted.of(|| handle = Some(mount.create(root, &name("file"), &new, flags).unwrap().1));
    mount.write(handle.as_ref().unwrap(), 0, b"body", false).unwrap();
    let mut longer = Some(mount.create(root, &name("longer"), &new, flags).unwrap().1);
    mount.write(longer.as_ref().unwrap(), 0, &[7; 20_000], false).unwrap();
    let calls = [
        ("create", create),
        ("close", counted.of(|| mount.release(handle.take().unwrap()).unwrap())),
        ("close with bytes in the log", counted.of(|| mount.release(longer.take().unwrap()).unwrap())),
        ("look-up", counted.of(|| mount.lookup(root, &name("file")).unwrap())),
        ("look-up of nothing", counted.of(|| mount.lookup(root, &name("none")).unwrap_err())),
        ("rename", counted.of(|| mount.rename(root, &name("file"), root, &name("to"), RenameMode::Replace).unwrap())),
        ("unlink", counted.of(|| mount.unlink(root, &name("to")).unwrap())),
    ];
    let now = [
        ("create", (0, 1)),
        ("close", (0, 1)),
        ("close with bytes in the log", (0, 1)),
        ("look-up", (1, 0)),
        ("look-up of nothing", (1, 0)),
        ("rename", (1, 1)),
        ("unlink", (1, 1)),
    ];
    assert_eq!(calls, now, "reads and commits");
}

#[test]
fn a_directory_is_listed_with_attributes_without_a_call_for_each_line() {
    let (counted, world) = counted();
    for number in 0..2000 {
        let key = if number % 4 == 0 { format!("d{number}/k") } else { format!("f{number}") };
        world.put("b", &key, b"x").unwrap();
    }
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let handle = mount.open_directory(mount.root()).unwrap();
    let mut lines = 0;
    let calls = counted.of(|| {
        mount
            .read_directory(&handle, 0, true, &mut |_| {
                lines += 1;
                true
            })
            .unwrap();
    });
    // Pages of 64, 128, 256 and from then on 512 lines; each has a read for its directories, and one at its end may look
    // whether a directory stands beside its last file.
    assert_eq!(lines, 2000);
    assert!(calls.0 <= 3 * 7 && calls.1 == 0, "{calls:?}");
}

#[test]
fn names_alone_are_read_by_the_thousand_however_few_are_taken_at_once() {
    let (counted, world) = counted();
    for number in 0..5000 {
        world.put("b", &format!("f{number:04}"), b"x").unwrap();
    }
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let handle = mount.open_directory(mount.root()).unwrap();
    let mut names = Vec::new();
    let calls = counted.of(|| {
        let mut last = None;
        while last != Some(names.len()) {
            last = Some(names.len());
            let mut room = 100;
            let visit = &mut |item: &DirectoryItem<'_>| {
                room -= 1;
                let is_taken = room >= 0;
                if is_taken {
                    names.push((item.cookie, item.name.to_owned()));
                }
                is_taken
            };
            let cookie = last.unwrap() as u64;
            mount.read_directory(&handle, cookie, false, visit).unwrap();
        }
    });
    let expected: Vec<_> = (0..5000).map(|number| (number + 1, format!("f{number:04}"))).collect();
    assert!(names == expected);
    // Pages of 64, 128, ... 2048 names, a call at the end of some for what is beside their last file, and the end is asked for again.
    assert!(calls.0 <= 16 && calls.1 == 0, "{calls:?}");
}

#[test]
fn where_a_page_is_a_round_trip_two_thousand_names_are_two_pages() {
    let (counted, world) = counted_over(Options::default(), |memory| Arc::new(far(memory)));
    for number in 0..2000 {
        world.put("b", &format!("f{number:04}"), b"x").unwrap();
    }
    let mount = Mount::open(Arc::clone(&world.volume), "b", "", MountOptions::default()).unwrap();
    let handle = mount.open_directory(mount.root()).unwrap();
    let mut names = 0;
    let calls = counted.of(|| {
        let visit = &mut |_: &DirectoryItem<'_>| {
            names += 1;
            true
        };
        mount.read_directory(&handle, 0, false, visit).unwrap();
    });
    // And what is beside the last file of the first one.
    assert_eq!((names, calls), (2000, (3, 0)));
}
