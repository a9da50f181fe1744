//! A name that is not here is looked for in the bucket, and files that are made here cost no look-ups.

use std::time::Duration;

use http::Method;
use margay_upstream::Opens;
use margay_volume::posix::*;

use crate::store::{Fault, Store};
use crate::world::*;

/// A directory of twenty pages.
const MANY: u64 = 60;

/// As `listed`, and nothing has changed since: the listing of the top directory counts for half a minute, and is 5 s old.
fn quiet(seed: u64, objects: &[(&'static str, &'static [u8])]) -> (std::sync::Arc<Store>, World, Cache) {
    let (store, world, cache) = listed(seed, objects);
    for seconds in [3, 6, 12, 5] {
        cache.clock().jump(Duration::from_secs(seconds));
        // It is known, so it is not asked for.
        world.at(objects[0].0).unwrap();
    }
    (store, world, cache)
}

fn many() -> Vec<(&'static str, &'static [u8])> {
    (0..MANY).map(|number| (&*format!("f{number:02}").leak(), &b"1"[..])).collect()
}

/// What a kernel does to make a file.
fn make(world: &World, name: &str) {
    assert!(matches!(world.at(name), Err(PosixError::NotFound)));
    world.write("", name, 0, b"mine").unwrap();
}

/// Since a beginning: heads and listings.
fn asked(store: &Store, before: (u64, u64)) -> (u64, u64) {
    (store.heads() - before.0, store.listings() - before.1)
}

/// An answer that takes longer than a second, as on a busy machine, counts for who asks next.
fn wait_found(world: &World, path: &str) {
    wait("it is found", || world.at(path).is_ok());
}

#[test]
fn what_another_has_just_made_is_found() {
    let (store, world, cache) = quiet(51, &[("a", b"1")]);
    store.put("new", b"22");
    store.put("n/e/w", b"2");
    let before = (store.heads(), store.listings());
    assert_eq!(world.mount.attributes(world.at("new").unwrap()).unwrap().size, 2);
    world.at("n").unwrap();
    let (heads, listings) = asked(&store, before);
    // Two directories are asked for their markers.
    assert!(heads <= 3 && listings == 1, "one listing for all: {heads} HEAD, {listings} LIST");
    store.put("later", b"2");
    let before = store.requests();
    for name in ["later", "never", "later"] {
        assert!(matches!(world.at(name), Err(PosixError::NotFound)));
    }
    assert_eq!(store.requests(), before, "it was just listed");
    cache.clock().jump(Duration::from_secs(3));
    wait_found(&world, "later");
    world.shown();
    world.reclaim();
}

#[test]
fn one_name_of_many_is_looked_for_alone() {
    let (store, world, cache) = quiet(52, &many());
    store.put("new", b"22");
    store.put("below/it", b"2");
    let before = (store.heads(), store.listings());
    assert_eq!(world.mount.attributes(world.at("new").unwrap()).unwrap().size, 2);
    assert_eq!(asked(&store, before), (1, 1), "the object, and what is below it");
    world.at("below").unwrap();
    // The directory's marker is asked for, too.
    assert_eq!(asked(&store, before), (3, 2));
    let none = || assert!(matches!(world.at("none"), Err(PosixError::NotFound)));
    none();
    assert_eq!(asked(&store, before), (4, 3));
    none();
    assert_eq!(asked(&store, before), (4, 3), "it was just asked for");
    store.put("none", b"2");
    cache.clock().jump(Duration::from_secs(3));
    wait_found(&world, "none");
    assert_eq!(world.mount.attributes(world.at("f07").unwrap()).unwrap().size, 1, "the others stay");
    // With many, a listing is cheaper.
    cache.clock().jump(Duration::from_secs(4));
    let before = (store.heads(), store.listings());
    for number in 0..MANY {
        assert!(matches!(world.at(&format!("none{number}")), Err(PosixError::NotFound)));
    }
    let (heads, listings) = asked(&store, before);
    let pages = MANY.div_ceil(3) + 2;
    assert!(heads < pages && listings < 2 * pages + 1, "{heads} HEAD, {listings} LIST");
    world.shown();
    world.reclaim();
}

/// A kernel looks for each name before it makes it.
#[test]
fn files_that_are_made_cost_no_look_ups() {
    for (seed, objects) in [(53, vec![("a", &b"1"[..])]), (54, many())] {
        let (store, world, cache) = quiet(seed, &objects);
        // Nothing is sent for now, so that listings keep their pages.
        store.script(|method, _, _| {
            matches!(*method, Method::PUT | Method::POST).then_some(Fault::Refused(503, "SlowDown"))
        });
        let before = (store.heads(), store.listings());
        (0..100).for_each(|number| make(&world, &format!("made{number}")));
        let (heads, listings) = asked(&store, before);
        let pages = objects.len().div_ceil(3) as u64;
        match pages {
            1 => assert_eq!((heads, listings), (0, 1)),
            // The first ones, until it is seen that many are made.
            _ => assert_eq!((heads, listings), (4, 4)),
        }
        // As long as it is filled, the listing that it has counts.
        for number in 0..100 {
            cache.clock().jump(Duration::from_millis(100));
            make(&world, &format!("slowly{number}"));
        }
        let (heads, listings) = asked(&store, before);
        assert!(heads <= 4 && listings <= 4 + 3 * pages, "{heads} HEAD, {listings} LIST for 200 files");
        // Who waits for the name of another one still sees it, once nothing is made any more.
        store.put("theirs", b"2");
        cache.clock().jump(Duration::from_secs(4));
        wait_found(&world, "theirs");
        store.set_reachable(true);
        world.flush();
        world.reclaim();
    }
}

#[test]
fn what_was_just_removed_here_is_not_looked_for() {
    let (store, world, _cache) = quiet(55, &[("a", b"1"), ("b", b"1")]);
    // Nothing is sent for now.
    store.script(|method, _, _| {
        matches!(*method, Method::PUT | Method::POST).then_some(Fault::Refused(503, "SlowDown"))
    });
    world.mount.unlink(world.mount.root(), &Name::Plain("a".to_owned())).unwrap();
    world.rename("b", "c", RenameMode::Replace).unwrap();
    let before = (store.heads(), store.listings());
    for name in ["a", "b"] {
        assert!(matches!(world.at(name), Err(PosixError::NotFound)));
    }
    assert_eq!(asked(&store, before), (0, 0));
    world.at("c").unwrap();
    store.set_reachable(true);
    world.flush();
    assert_eq!(store.objects().keys().collect::<Vec<_>>(), ["c"]);
}

#[test]
fn without_the_bucket_a_name_is_absent_as_it_was_listed() {
    for (seed, objects) in [(56, vec![("a", &b"1"[..])]), (57, many())] {
        let (store, world, cache) = quiet(seed, &objects);
        store.set_reachable(false);
        for name in ["none", "none", "other"] {
            assert!(matches!(world.at(name), Err(PosixError::NotFound)));
        }
        make(&world, "made");
        store.put("new", b"2");
        store.set_reachable(true);
        world.flush();
        cache.clock().jump(Duration::from_secs(4));
        wait_found(&world, "new");
    }
}

/// Temporary objects are not shown under any name.
#[test]
fn the_hidden_directory_is_not_looked_for() {
    let (store, world, _cache) = quiet(58, &many());
    store.put(".margay-tmp/theirs", b"2");
    assert!(matches!(world.at(".margay-tmp"), Err(PosixError::NotFound)));
}

/// Strict close-to-open: each open asks, however lately something was listed.
#[test]
fn with_open_always_each_open_and_each_missing_name_is_asked_for() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("a", b"1");
    let world = Cache::opening(60, Opens::Always).open(&target, "");
    world.shown();
    store.wait_probed();
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    let file = world.at("a").unwrap();
    let (heads, listings) = (store.heads(), store.listings());
    for _ in 0..5 {
        world.mount.release(world.mount.open_file(file, read).unwrap()).unwrap();
    }
    assert_eq!((store.heads() - heads, store.listings() - listings), (5, 0));
    store.put("a", b"22");
    assert!(matches!(world.mount.open_file(file, read), Err(PosixError::Stale)), "the name is looked up again");
    assert_eq!(world.mount.attributes(world.at("a").unwrap()).unwrap().size, 2);
    for name in ["new", "newer"] {
        assert!(matches!(world.at(name), Err(PosixError::NotFound)));
        store.put(name, b"2");
        world.at(name).unwrap();
    }
    assert_eq!(world.mount.keeps_absences_for(world.mount.root()), Some(Duration::ZERO));
    // A bucket that is gone holds nobody up.
    store.set_reachable(false);
    assert!(matches!(world.at("newest"), Err(PosixError::NotFound)));
    world.mount.release(world.mount.open_file(world.at("a").unwrap(), read).unwrap()).unwrap();
}

/// The listing counts for opens, too.
#[test]
fn with_open_ttl_nothing_is_asked_for_until_the_listing_is_old() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("a", b"1");
    let cache = Cache::opening(61, Opens::Listed);
    let world = cache.open(&target, "");
    world.shown();
    store.wait_probed();
    for seconds in [3, 6, 12, 20] {
        cache.clock().jump(Duration::from_secs(seconds));
        world.at("a").unwrap();
    }
    let file = world.at("a").unwrap();
    store.put("a", b"22");
    store.put("new", b"2");
    let before = store.requests();
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    world.mount.release(world.mount.open_file(file, read).unwrap()).unwrap();
    assert!(matches!(world.at("new"), Err(PosixError::NotFound)));
    assert_eq!(store.requests(), before);
    let keeps = world.mount.keeps_absences_for(world.mount.root());
    assert!(keeps > Some(Duration::from_secs(3)), "{keeps:?}");
    cache.clock().jump(Duration::from_secs(24));
    wait_found(&world, "new");
    assert_eq!(world.mount.attributes(world.at("a").unwrap()).unwrap().size, 2);
}
