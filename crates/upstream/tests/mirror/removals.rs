//! Removals: of what is still read, of what came back meanwhile, and of what fails.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use margay_volume::posix::*;

use crate::faults::{bodies, change_rights};
use crate::store::{Fault, Store};
use crate::world::*;

#[test]
fn an_open_file_that_was_removed_has_its_bytes() {
    let (store, world, _cache) = listed(21, &[("a", b"first"), ("b", b"x")]);
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = world.mount.open_file(world.at("a").unwrap(), read).unwrap();
    for name in ["a", "b"] {
        world.mount.unlink(world.mount.root(), &Name::Plain(name.to_owned())).unwrap();
    }
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("a", "first")]), "the other one is gone");
    assert_eq!(world.mount.read(&handle, 0, 100).unwrap(), b"first".as_slice());
    world.mount.release(handle).unwrap();
    let mut tries = 0;
    while !bodies(&store).is_empty() {
        world.flush();
        std::thread::sleep(Duration::from_millis(20));
        tries += 1;
        assert!(tries < 3000, "{}", world.far.details());
    }
}

/// All removals go when one is due, but not of what is still read.
#[test]
fn an_open_file_that_was_removed_after_another_has_its_bytes() {
    let (store, world, cache) = listed(37, &[("a", b"first"), ("b", b"x")]);
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    let handle = world.mount.open_file(world.at("a").unwrap(), read).unwrap();
    for name in ["b", "a"] {
        world.mount.unlink(world.mount.root(), &Name::Plain(name.to_owned())).unwrap();
        cache.clock().jump(Duration::from_millis(200));
    }
    wait("the other one is gone", || !store.objects().contains_key("b"));
    assert_eq!(world.mount.read(&handle, 0, 100).unwrap(), b"first".as_slice());
    world.mount.release(handle).unwrap();
}

/// Removals were made, and the answer to them was lost. Then somebody moved the same bytes back, so they have the same ETag.
fn what_came_back_stays(ends: impl Fn(Cache, World, &Arc<Store>) -> (Cache, World)) {
    let (store, world, cache) = listed(31, &[("a", b"first")]);
    world.write("", "gone", 0, b"second").unwrap();
    world.flush();
    store.script(|method, _, _| (*method == Method::POST).then_some(Fault::Unanswered));
    world.rename("a", "b", RenameMode::Replace).unwrap();
    world.mount.unlink(world.mount.root(), &Name::Plain("gone".to_owned())).unwrap();
    cache.clock().jump(Duration::from_secs(5));
    wait("they are removed", || store.objects().keys().eq(["b"]));
    store.remove("b");
    store.put("a", b"first");
    store.put("gone", b"second");
    store.script(|_, _, _| None);
    let (_cache, world) = ends(cache, world, &store);
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("a", "first"), ("gone", "second")]));
}

#[test]
fn what_came_back_while_an_answer_was_lost_is_not_removed() {
    what_came_back_stays(|cache, world, _| (cache, world));
}

#[test]
fn what_came_back_while_the_power_was_off_is_not_removed() {
    what_came_back_stays(|mut cache, world, store| {
        let target = cache.cut_power(world, store, 3);
        let world = cache.open(&target, "");
        (cache, world)
    });
}

/// A write was made, and the answer to it was lost. Then somebody moved the old bytes back, so they have the ETag that it required.
fn what_came_back_is_beside_what_was_written(ends: impl Fn(Cache, World, &Arc<Store>) -> (Cache, World)) {
    let (store, world, cache) = listed(38, &[("a", b"first")]);
    store.script(|method, _, _| (*method == Method::PUT).then_some(Fault::Unanswered));
    world.write("", "a", 0, b"other").unwrap();
    cache.clock().jump(Duration::from_secs(60));
    wait("it is sent", || bodies(&store) == pairs(&[("a", "other")]));
    wait("its tries have ended", || world.far.backlog().failing > 0);
    store.remove("a");
    store.put("a", b"first");
    store.script(|_, _, _| None);
    let (cache, world) = ends(cache, world, &store);
    cache.clock().jump(Duration::from_secs(60));
    world.flush();
    let [(a, first), (aside, other)] = &bodies(&store)[..] else { panic!("{:?}", bodies(&store)) };
    assert_eq!((a.as_str(), first.as_str(), other.as_str()), ("a", "first", "other"));
    assert!(aside.starts_with("a.conflict-"), "{aside}");
}

#[test]
fn what_came_back_while_an_answer_was_lost_is_not_overwritten() {
    what_came_back_is_beside_what_was_written(|cache, world, _| (cache, world));
}

#[test]
fn what_came_back_while_the_power_was_off_is_not_overwritten() {
    what_came_back_is_beside_what_was_written(|mut cache, world, store| {
        let target = cache.cut_power(world, store, 3);
        let world = cache.open(&target, "");
        (cache, world)
    });
}

#[test]
fn what_came_back_while_the_renamed_one_was_taken_is_not_removed() {
    let (store, world, cache) = listed(36, &[("a", b"first")]);
    store.script(|method, _, _| (*method == Method::POST).then_some(Fault::Refused(403, "AccessDenied")));
    world.rename("a", "b", RenameMode::Replace).unwrap();
    cache.clock().jump(Duration::from_secs(5));
    wait("it is copied", || store.objects().contains_key("b"));
    wait("the old one stays", || world.far.backlog().failing > 0);
    for key in ["b", "a"] {
        store.remove(key);
    }
    store.put("a", b"first");
    change_rights(&world, "b");
    cache.clock().jump(Duration::from_secs(5));
    wait("b is gone here", || world.at("b").is_err());
    store.script(|_, _, _| None);
    cache.clock().jump(Duration::from_secs(60));
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("a", "first")]));
}

/// Once there were hundreds of requests a second: the removal of `a` waits for the new `a`, and all others went again with it,
/// and it was asked again whether the new one had arrived.
#[test]
fn removals_wait_for_their_next_try() {
    let (store, world, cache) = listed(35, &[("a", b"1"), ("b", b"2")]);
    let unlink = |name: &str| world.mount.unlink(world.mount.root(), &Name::Plain(name.to_owned())).unwrap();
    let fails = |key: &'static str| {
        cache.clock().jump(Duration::from_secs(5));
        wait("it fails", || world.far.backlog().failures.iter().any(|one| one.key == key));
    };
    store.script(|method, _, _| match *method {
        Method::POST | Method::HEAD => Some(Fault::Refused(403, "AccessDenied")),
        Method::PUT => Some(Fault::Lost),
        _ => None,
    });
    unlink("b");
    fails("b");
    unlink("a");
    world.write("", "a", 0, b"3").unwrap();
    fails("a");
    let is_quiet = || {
        cache.clock().jump(Duration::from_secs(5));
        let before = store.requests();
        std::thread::sleep(Duration::from_millis(500));
        let sent = store.requests() - before;
        assert!(sent < 40, "{sent} requests in half a second");
    };
    is_quiet();
    world.rename("a", "c", RenameMode::Replace).unwrap();
    is_quiet();
}

/// A request that is done, said to have failed and made again finds the bytes that it was to replace.
#[test]
fn what_came_back_while_it_was_replaced_is_kept() {
    let (store, world, cache) = listed(38, &[("a", b"first")]);
    world.mount.unlink(world.mount.root(), &Name::Plain("a".to_owned())).unwrap();
    world.write("", "a", 0, b"second").unwrap();
    let first = std::sync::atomic::AtomicBool::new(true);
    store.script(move |method, _, _| {
        let is_first = *method == Method::PUT && first.swap(false, std::sync::atomic::Ordering::SeqCst);
        is_first.then_some(Fault::Refused(412, "PreconditionFailed"))
    });
    store.remove("a");
    store.put("a", b"first");
    cache.clock().jump(Duration::from_secs(5));
    world.flush();
    let found: Vec<String> = bodies(&store).into_iter().map(|(_, body)| body).collect();
    assert_eq!(found, ["first", "second"], "both are kept");
}

/// A tree of a hundred files in two directories, and one beside them that stays; what the mount has sent is counted from here on.
fn hundred(cache: Cache) -> (Arc<Store>, World, Cache) {
    let (store, target) = runtime().block_on(Store::start());
    (0..100).for_each(|number| store.put(&format!("{}/f{number:02}", ["d", "e"][number % 2]), b"first"));
    store.put("d/f", b"stays");
    store.ignore_conditions();
    let world = cache.open(&target, "");
    world.shown();
    store.wait_probed();
    (store, world, cache)
}

/// Without the objects of directories.
fn files(store: &Store) -> Vec<(String, String)> {
    bodies(store).into_iter().filter(|(key, _)| !key.ends_with('/')).collect()
}

fn remove_all(world: &World) {
    for number in 0..100 {
        let directory = world.at(["d", "e"][number % 2]).unwrap();
        world.mount.unlink(directory, &Name::Plain(format!("f{number:02}"))).unwrap();
    }
}

#[test]
fn many_removals_cost_a_listing_where_conditions_are_ignored() {
    let (store, world, _cache) = hundred(Cache::new(39));
    store.set_page_keys(40);
    store.put("d/f50", b"theirs");
    store.remove("e/f51");
    let (heads, listings) = (store.heads(), store.listings());
    remove_all(&world);
    world.flush();
    assert_eq!(files(&store), pairs(&[("d/f", "stays"), ("d/f50", "theirs")]));
    let asked = (store.heads() - heads, store.listings() - listings);
    assert!(asked.0 < 40 && asked.0 + asked.1 < 60, "{asked:?}");
}

#[test]
fn nothing_is_asked_for_where_nobody_else_writes() {
    let (store, world, _cache) = hundred(Cache::alone(41));
    let heads = store.heads();
    remove_all(&world);
    world.write("", "made", 0, b"mine").unwrap();
    world.write("d", "f", 0, b"mine").unwrap();
    world.flush();
    assert_eq!(files(&store), pairs(&[("d/f", "mines"), ("made", "mine")]));
    assert_eq!(store.heads() - heads, 0);
}

/// Names that XML does not hold: one of them in a request would keep all others there.
#[test]
fn names_that_xml_cannot_hold_are_removed_one_by_one() {
    let names = ["Icon\r", "a\u{1}", "b\u{fffe}", "c\n", "plain"];
    let (store, world, _cache) = listed(42, &[]);
    names.iter().for_each(|name| world.write("", name, 0, b"x").unwrap());
    world.flush();
    assert_eq!(bodies(&store).len(), names.len());
    store.put("b\u{fffe}", b"theirs");
    for name in names {
        world.mount.unlink(world.mount.root(), &Name::Plain(name.to_owned())).unwrap();
    }
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("b\u{fffe}", "theirs")]), "removed here, changed there");
}

/// Each removal has an outcome of its own: one that the store refuses for ever holds up no others.
#[test]
fn a_removal_that_is_refused_holds_up_no_others() {
    let (store, world, cache) = listed(44, &[]);
    let names = ["a", "b\u{1}", "c\u{1}"];
    names.iter().for_each(|name| world.write("", name, 0, b"x").unwrap());
    world.flush();
    store.script(|method, key, _| {
        (*method == Method::DELETE && key == "b\u{1}").then_some(Fault::Refused(400, "InvalidName"))
    });
    for name in names {
        world.mount.unlink(world.mount.root(), &Name::Plain(name.to_owned())).unwrap();
    }
    cache.clock().jump(Duration::from_secs(5));
    wait("the others are gone", || bodies(&store) == pairs(&[("b\u{1}", "x")]) && world.far.backlog().files == 1);
}
