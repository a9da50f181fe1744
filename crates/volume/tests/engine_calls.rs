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
use margay_volume::posix::{Mount, MountOptions, Name, NewFile, OpenFlags, RenameMode};
use margay_volume::*;
use world::{World, etag_of, segment_options, wait};

fn counted() -> (Arc<CountedEngine>, World) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(&folder.path().join("segments"))).unwrap();
    let engine = Memory::with_payloads(Arc::clone(&store), 64 << 10);
    let counted = Arc::new(CountedEngine::new(Arc::new(engine)));
    let engine = Arc::clone(&counted) as Arc<dyn Engine>;
    let volume = Volume::open(Env::real(), Arc::clone(&engine), Arc::clone(&store), Options::default()).unwrap();
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
