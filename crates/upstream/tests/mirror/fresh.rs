//! What other programs do in the bucket is seen, and what is only here stays.

use std::time::Duration;

use http::Method;
use margay_upstream::Opens;
use margay_volume::posix::*;

use crate::store::{Fault, Lists, Store};
use crate::world::*;
use crate::{in_bucket, keys};

/// Longer than any listing counts.
const LATER: Duration = Duration::from_secs(61);

/// As `listed`, and each object was read.
fn read(seed: u64, objects: &[(&'static str, &'static [u8])]) -> (std::sync::Arc<Store>, World, Cache) {
    let (store, world, cache) = listed(seed, objects);
    world.shown();
    (store, world, cache)
}

/// As `read`; so says the store in its listings.
fn read_by(
    seed: u64,
    objects: &[(&'static str, &'static [u8])],
    lists: Lists,
) -> (std::sync::Arc<Store>, World, Cache) {
    let (store, world, cache) = listed_by(seed, objects, lists);
    world.shown();
    (store, world, cache)
}

fn lines(world: &World) -> Vec<String> {
    try_lines(world).unwrap()
}

/// Fails if what is read is compared with the bucket meanwhile.
fn try_lines(world: &World) -> Option<Vec<String>> {
    let lines = world.try_shown().ok()?.into_iter();
    Some(lines.map(|(key, (_, body))| format!("{key} {}", String::from_utf8_lossy(&body))).collect())
}

/// Waits for it: a listing that takes longer than a second, as on a busy machine, is ended behind whoever asked for it.
fn assert_shown(world: &World, expected: &[&str]) {
    for _ in 0..6000 {
        if try_lines(world).is_some_and(|lines| lines == expected) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(lines(world), expected);
}

#[test]
fn what_others_put_replace_and_remove_is_seen() {
    let (store, world, cache) = read(31, &[("same", b"1"), ("replaced", b"1"), ("removed", b"1"), ("d/a", b"1")]);
    let before = store.requests();
    assert_eq!(lines(&world), ["d/ ", "d/a 1", "removed 1", "replaced 1", "same 1"]);
    store.put("new", b"2");
    store.put("replaced", b"22");
    store.put("d/b", b"2");
    store.put("n/e/w", b"2");
    store.remove("removed");
    store.remove("d/a");
    lines(&world);
    assert_eq!(store.requests(), before, "what was just listed and read is neither again");
    let old = world.at("replaced").unwrap();
    cache.clock().jump(LATER);
    assert_shown(&world, &["d/ ", "d/b 2", "n/ ", "n/e/ ", "n/e/w 2", "new 2", "replaced 22", "same 1"]);
    assert!(world.mount.attributes(old).is_err(), "another object is another file");
    let backlog = world.far.backlog();
    assert!(backlog.files == 0 && backlog.conflicts.is_empty(), "{backlog:?}");
    world.reclaim();
}

#[test]
fn what_does_not_change_is_listed_ever_more_seldom() {
    let (store, world, cache) = read(32, &[("a", b"1")]);
    lines(&world);
    let before = store.requests();
    for _ in 0..120 {
        cache.clock().jump(Duration::from_secs(1));
        world.at("a").unwrap();
    }
    let asked = store.requests() - before;
    assert!((3..=6).contains(&asked), "{asked} listings in two minutes");
}

#[test]
fn what_is_only_here_stays() {
    let (store, world, cache) = read(33, &[("gone", b"1"), ("moved", b"1"), ("written", b"1"), ("open", b"1")]);
    let open = world.mount.open_file(world.at("open").unwrap(), BOTH).unwrap();
    // Nothing is sent for now.
    store.script(|method, _, _| {
        matches!(*method, Method::PUT | Method::POST).then_some(Fault::Refused(503, "SlowDown"))
    });
    world.mount.unlink(world.mount.root(), &Name::Plain("gone".to_owned())).unwrap();
    world.rename("moved", "there", RenameMode::Replace).unwrap();
    world.write("", "written", 0, b"mine").unwrap();
    world.write("", "made", 0, b"mine").unwrap();
    store.put("open", b"theirs");
    // As if its object were going.
    store.put("gone/below", b"2");
    cache.clock().jump(LATER);
    assert_eq!(lines(&world), ["made mine", "open 1", "there 1", "written mine"]);
    world.mount.release(open).unwrap();
    store.set_reachable(true);
    world.flush();
    cache.clock().jump(LATER);
    let there = ["gone/ ", "gone/below 2", "made mine", "open theirs", "there 1", "written mine"];
    // What stays is a directory.
    assert_shown(&world, &there);
    let sent = ["gone/below 0 1", "made 644 4", "open 0 6", "there 644 1", "written 644 4"];
    assert_eq!(keys(&in_bucket(&store)), sent);
}

#[test]
fn without_the_bucket_what_was_listed_is_shown() {
    let (store, world, cache) = read(34, &[("a", b"1"), ("b", b"1")]);
    store.set_reachable(false);
    cache.clock().jump(LATER);
    assert_eq!(lines(&world), ["a 1", "b 1"]);
}

#[test]
fn a_late_listing_takes_nothing_away() {
    let (store, world, cache) = read(35, &[("a", b"1"), ("b", b"1")]);
    // Its listings do not show what is there.
    store.hide("a");
    cache.clock().jump(LATER);
    assert_eq!(lines(&world), ["a 1", "b 1"]);
}

/// A copy of an object onto itself, as `chmod` of another mount is, keeps its ETag.
#[test]
fn attributes_that_others_change_alone_are_seen() {
    for (seed, lists) in [(36, Lists::Nothing), (37, Lists::Metadata)] {
        let (store, world, cache) = read_by(seed, &[("theirs", b"1"), ("other", b"1")], lists);
        world.write("", "mine", 0, b"2").unwrap();
        set_xattr(&world, "mine");
        world.flush();
        cache.clock().jump(LATER);
        lines(&world);
        let (heads, mine) = (store.heads(), world.at("mine").unwrap());
        cache.clock().jump(LATER);
        lines(&world);
        assert_eq!(store.heads(), heads, "{lists:?}: what was sent from here is not asked for");
        // Written again as it is.
        store.set_header("mine", "content-type", "binary/octet-stream");
        cache.clock().jump(LATER);
        lines(&world);
        assert_eq!(world.at("mine").unwrap(), mine, "{lists:?}: nothing differs");
        store.set_header("mine", "x-amz-meta-mode", "0100600");
        store.set_header("theirs", "x-amz-meta-mode", "0100640");
        store.set_header("theirs", "x-amz-meta-colour", "red");
        cache.clock().jump(LATER);
        lines(&world);
        let changed = ["mine 600 1", "other 644 1", "theirs 640 1"];
        wait("the changes are shown", || world.try_shown().is_ok_and(|shown| keys(&shown) == changed));
        assert_eq!(lines(&world), ["mine 2", "other 1", "theirs 1"]);
        assert_eq!(world.xattrs("theirs")["user.colour"], b"red");
        assert!(store.heads() - heads <= 4, "{lists:?}: those that were written again");
        assert_eq!(world.far.backlog().files, 0);
        world.reclaim();
    }
}

fn set_xattr(world: &World, path: &str) {
    world.mount.set_xattr(world.at(path).unwrap(), b"user.title", "\u{fc}".as_bytes(), SetXattr::Any, false).unwrap();
}

#[test]
fn directories_in_which_others_left_nothing_go() {
    for (seed, lists) in [(38, Lists::Nothing), (39, Lists::Metadata)] {
        let objects: [(&str, &[u8]); 6] = [
            ("gone/a", b"1"),
            ("gone/d/e/f", b"1"),
            ("open/a", b"1"),
            ("kept/a", b"1"),
            ("new/a", b"1"),
            ("seen", b"1"),
        ];
        let (store, world, cache) = read_by(seed, &objects, lists);
        let root = world.mount.root();
        let made = world.mount.make_directory(root, &Name::Plain("own".to_owned()), &NEW).unwrap();
        world.mount.make_directory(made.ino, &Name::Plain("below".to_owned()), &NEW).unwrap();
        store.set_header("marked/", "x-amz-meta-mode", "040700");
        cache.clock().jump(LATER);
        wait("it is shown", || try_lines(&world).is_some_and(|lines| lines.contains(&"marked/ ".to_owned())));
        world.flush();
        let open = world.mount.open_file(world.at("open/a").unwrap(), BOTH).unwrap();
        for key in ["gone/a", "gone/d/e/f", "open/a", "kept/a", "new/a", "marked/", "own/below/"] {
            store.remove(key);
        }
        // Only here, and nothing is sent for now.
        store.script(|method, _, _| (*method == Method::PUT).then_some(Fault::Refused(503, "SlowDown")));
        world.write("new", "b", 0, b"mine").unwrap();
        cache.clock().jump(LATER);
        lines(&world);
        let here = ["new/ ", "new/b mine", "open/ ", "open/a 1", "own/ ", "seen 1"];
        // What is open is looked at later.
        assert_shown(&world, &here);
        store.set_reachable(true);
        world.mount.release(open).unwrap();
        world.flush();
        for _ in 0..3 {
            cache.clock().jump(LATER);
            lines(&world);
        }
        assert_shown(&world, &["new/ ", "new/b mine", "own/ ", "seen 1"]);
        assert_eq!(world.far.backlog().files, 0);
        world.reclaim();
    }
}

/// Thousands of names cost pages, and no request each.
#[test]
fn many_that_are_gone_cost_one_more_listing() {
    let objects: Vec<(&'static str, &'static [u8])> =
        (0..60).map(|number| (&*format!("f{number:02}").leak(), &b"1"[..])).collect();
    let (store, world, cache) = read(40, &objects);
    objects[..57].iter().for_each(|(key, _)| store.remove(key));
    let (heads, listings) = (store.heads(), store.listings());
    cache.clock().jump(LATER);
    assert_shown(&world, &["f57 1", "f58 1", "f59 1"]);
    assert_eq!((store.heads() - heads, store.listings() - listings), (0, 2));
}

/// A tree that is removed costs no round trip for each directory, and takes nothing of others along.
#[test]
fn a_directory_that_is_empty_here_is_removed_without_a_listing() {
    let (store, world, cache) = read(41, &[("theirs/", b""), ("theirs/a", b"1")]);
    let root = world.mount.root();
    let directories: Vec<String> = (0..20).map(|number| format!("d{number:02}")).collect();
    for name in &directories {
        world.mount.make_directory(root, &Name::Plain(name.clone()), &NEW).unwrap();
        world.write(name, "own", 0, b"mine").unwrap();
    }
    world.flush();
    let remove = |name: &str| world.mount.remove_directory(root, &Name::Plain(name.to_owned()));
    for name in &directories {
        world.mount.unlink(world.at(name).unwrap(), &Name::Plain("own".to_owned())).unwrap();
    }
    world.flush();
    // Older than a listing counts for anything else.
    cache.clock().jump(Duration::from_secs(30));
    store.put("d03/new", b"2");
    store.put("d03/n/e/w", b"2");
    store.remove("theirs/a");
    // The directory above is listed, as for anything in it.
    world.at("d00").unwrap();
    let listings = store.listings();
    directories[..10].iter().for_each(|name| remove(name).unwrap());
    assert_eq!(store.listings(), listings);
    // What is in it here may be gone there.
    remove("theirs").unwrap();
    world.flush();
    assert_eq!(
        store.objects().keys().filter(|key| key.starts_with("d0")).collect::<Vec<_>>(),
        ["d03/n/e/w", "d03/new"]
    );
    store.put("d13/new", b"2");
    cache.clock().jump(LATER);
    assert!(matches!(remove("d13"), Err(PosixError::NotEmpty)), "a listing of a minute ago says nothing");
    directories[10..].iter().filter(|name| *name != "d13").for_each(|name| remove(name).unwrap());
    world.flush();
    cache.clock().jump(LATER);
    assert_shown(&world, &["d03/ ", "d03/n/ ", "d03/n/e/ ", "d03/n/e/w 2", "d03/new 2", "d13/ ", "d13/new 2"]);
    world.reclaim();
}

/// Kernels keep names as long as the listing counts, and no longer.
#[test]
fn kernels_keep_names_for_what_is_left_of_the_listing() {
    let (store, world, cache) = read(42, &[("d/a", b"1")]);
    let (root, directory, file) = (world.mount.root(), world.at("d").unwrap(), world.at("d/a").unwrap());
    let (names, attributes) =
        (|ino| world.mount.keeps_names_for(ino).unwrap(), |ino| world.mount.keeps_attributes_for(ino).unwrap());
    let is_within = |keeps: Duration, seconds: u64| keeps <= Duration::from_secs(seconds);
    assert!(is_within(names(directory), 3) && is_within(attributes(file), 3));
    // What is quiet is kept for longer.
    for (passed, kept) in [(3, 6), (6, 12), (12, 24)] {
        cache.clock().jump(Duration::from_secs(passed));
        assert_eq!((names(directory), attributes(file)), (Duration::ZERO, Duration::ZERO), "{passed} s");
        world.at("d/a").unwrap();
        assert!(is_within(names(directory), kept) && is_within(attributes(file), kept), "{kept} s");
    }
    let least = Duration::from_secs(3);
    assert!(names(directory) > least && attributes(file) > least && attributes(directory) > least);
    assert_eq!(attributes(root).as_secs(), names(root).as_secs());
    store.put("d/b", b"2");
    cache.clock().jump(Duration::from_secs(24));
    world.at("d/b").unwrap();
    assert!(is_within(names(directory), 3), "somebody works in it");
    assert_eq!(attributes(margay_volume::Ino(u64::MAX)), Duration::ZERO, "nobody knows it");
}

/// Close-to-open, however long the listing still counts.
#[test]
fn what_is_opened_is_what_others_have_closed() {
    let (store, world, cache) =
        self::read(43, &[("replaced", b"1"), ("removed", b"1"), ("same", b"1"), ("open", b"1")]);
    let clock = cache.clock();
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    // It is quiet: the listing counts for half a minute.
    for seconds in [3, 6, 12] {
        clock.jump(Duration::from_secs(seconds));
        world.at("same").unwrap();
    }
    let file = |name: &str| world.at(name).unwrap();
    let [replaced, removed, same, open] = ["replaced", "removed", "same", "open"].map(file);
    let held = world.mount.open_file(open, read).unwrap();
    clock.jump(Duration::from_secs(5));
    store.put("replaced", b"22");
    store.remove("removed");
    store.put("open", b"22");
    let before = store.requests();
    assert_eq!(file("replaced"), replaced, "a name is what was listed");
    assert_eq!(store.requests(), before);
    assert!(matches!(world.mount.open_file(replaced, read), Err(PosixError::Stale)), "the name is looked up again");
    assert!(matches!(world.mount.open_file(removed, read), Err(PosixError::Stale)));
    let again = world.mount.open_file(open, read).unwrap();
    assert_eq!(&*world.mount.read(&again, 0, 10).unwrap(), b"1", "who has it open keeps it");
    world.mount.release(again).unwrap();
    world.mount.release(held).unwrap();
    // One page of names is as cheap as one object.
    let before = store.requests();
    for _ in 0..100 {
        let handle = world.mount.open_file(same, read).unwrap();
        world.mount.release(handle).unwrap();
    }
    assert_eq!(store.requests(), before, "what was just seen is not asked for");
    clock.jump(Duration::from_secs(4));
    assert_eq!(lines(&world), ["open 22", "replaced 22", "same 1"], "not for half a minute");
    world.reclaim();
}

/// A directory of many pages is not listed for one file.
#[test]
fn one_file_of_many_is_asked_for_alone() {
    let objects: Vec<(&'static str, &'static [u8])> =
        (0..60).map(|number| (&*format!("f{number:02}").leak(), &b"1"[..])).collect();
    let (store, world, cache) = self::read(44, &objects);
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    cache.clock().jump(Duration::from_secs(3));
    let files: Vec<_> = objects.iter().map(|(key, _)| world.at(key).unwrap()).collect();
    cache.clock().jump(Duration::from_secs(4));
    store.put("f07", b"22");
    store.remove("f08");
    let (heads, listings) = (store.heads(), store.listings());
    let open = |number: usize| world.mount.open_file(files[number], read);
    drop(open(6).unwrap());
    drop(open(6).unwrap());
    assert!(matches!(open(7), Err(PosixError::Stale)));
    assert_eq!((store.heads() - heads, store.listings() - listings), (2, 0));
    assert_eq!(world.mount.attributes(world.at("f07").unwrap()).unwrap().size, 2);
    // No object there: its directory is listed, since a HEAD says that of a bucket, too.
    assert!(matches!(open(8), Err(PosixError::Stale)));
    assert!(store.listings() > listings);
    let (heads, listings) = (store.heads(), store.listings());
    (9..60).for_each(|number| drop(open(number).unwrap()));
    assert_eq!((store.heads() - heads, store.listings() - listings), (0, 0), "all were listed");
    // With many, a listing is cheaper.
    cache.clock().jump(Duration::from_secs(4));
    (9..60).for_each(|number| drop(open(number).unwrap()));
    let pages = 60_u64.div_ceil(3);
    assert!(store.heads() - heads < pages + 5 && store.listings() > listings);
    world.reclaim();
}

/// What is here is opened without a bucket, and soon.
#[test]
fn a_file_is_opened_without_the_bucket() {
    let (store, world, cache) = read(45, &[("a", b"1")]);
    cache.clock().jump(Duration::from_secs(3));
    let file = world.at("a").unwrap();
    cache.clock().jump(Duration::from_secs(4));
    store.set_reachable(false);
    let handle = world.mount.open_file(file, OpenFlags { read: true, ..OpenFlags::default() }).unwrap();
    assert_eq!(&*world.mount.read(&handle, 0, 10).unwrap(), b"1");
}

/// Once each reader had an error for as long as the listing counted.
#[test]
fn what_a_reader_finds_to_be_another_object_is_opened_as_that() {
    for opens in [Opens::Recent, Opens::Listed] {
        let (store, target) = runtime().block_on(Store::start());
        store.put("a", b"first");
        let cache = Cache::opening(46, opens);
        let world = cache.open(&target, "");
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        let listed = world.at("a").unwrap();
        store.put("a", b"second");
        let handle = world.mount.open_file(listed, read).unwrap();
        assert!(world.mount.read(&handle, 0, 10).is_err(), "never the bytes of two objects");
        world.mount.release(handle).unwrap();
        assert!(matches!(world.mount.open_file(listed, read), Err(PosixError::Stale)), "the name is looked up again");
        let handle = world.mount.open_file(world.at("a").unwrap(), read).unwrap();
        assert_eq!(&*world.mount.read(&handle, 0, 10).unwrap(), b"second");
        world.mount.release(handle).unwrap();
    }
}

/// MinIO keeps what a broken write has left on its disk, and lists a directory by it.
#[test]
fn a_directory_that_is_listed_and_has_nothing_is_not_shown() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("d/a", b"1");
    store.leave("left/");
    let cache = Cache::new(46);
    let world = cache.open(&target, "");
    assert_eq!(lines(&world), ["d/ ", "d/a 1"]);
    store.put("e/a", b"1");
    cache.clock().jump(LATER);
    assert_shown(&world, &["d/ ", "d/a 1", "e/ ", "e/a 1"]);
    store.put("left/a", b"1");
    cache.clock().jump(LATER);
    assert_shown(&world, &["d/ ", "d/a 1", "e/ ", "e/a 1", "left/ ", "left/a 1"]);
}
