//! Faults of send and list, one by one: each was there once.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use margay_upstream::NotSent;
use margay_volume::posix::*;

use crate::store::{Fault, Store};
use crate::world::*;
use crate::{in_bucket, keys};

pub(crate) fn bodies(store: &Store) -> Vec<(String, String)> {
    let objects = in_bucket(store).into_iter();
    objects.map(|(key, (_, body))| (key, String::from_utf8_lossy(&body).into_owned())).collect()
}

fn here(world: &World) -> Vec<(String, String)> {
    world.shown().into_iter().map(|(key, (_, body))| (key, String::from_utf8_lossy(&body).into_owned())).collect()
}

pub(crate) fn change_rights(world: &World, path: &str) {
    let change = AttributeChange { rights: Some(0o600), ..AttributeChange::default() };
    world.mount.set_attributes(world.at(path).unwrap(), &change).unwrap();
}

#[test]
fn a_file_renamed_here_and_replaced_there_has_the_new_content_under_its_new_name() {
    let (store, world, cache) =
        listed(11, &[("a", b"first"), ("other", b"x"), ("d/e/f", b"first"), ("mode", b"first")]);
    world.rename("a", "b", RenameMode::Replace).unwrap();
    world.rename("d", "moved", RenameMode::Replace).unwrap();
    change_rights(&world, "mode");
    ["a", "d/e/f", "mode"].iter().for_each(|key| store.put(key, b"theirs"));
    world.mount.unlink(world.mount.root(), &Name::Plain("other".to_owned())).unwrap();
    world.flush();
    let moved = pairs(&[("b", "theirs"), ("mode", "theirs"), ("moved/e/f", "theirs")]);
    let files = |all: Vec<(String, String)>| all.into_iter().filter(|(key, _)| !key.ends_with('/')).collect::<Vec<_>>();
    assert_eq!(files(bodies(&store)), moved);
    assert_eq!(files(here(&world)), moved);
    cache.clock().jump(std::time::Duration::from_secs(61));
    here(&world);
    assert_eq!(files(here(&world)), moved);
    world.reclaim();
}

/// Its reader keeps its name until it is closed, and what a writer writes is not lost.
#[test]
fn an_open_file_renamed_here_and_replaced_there_stays_until_it_is_closed() {
    let (store, world, cache) = listed(15, &[("a", b"first"), ("c", b"first")]);
    let open = |name: &str| world.mount.open_file(world.at(name).unwrap(), BOTH).unwrap();
    let (reader, writer) = (open("a"), open("c"));
    world.rename("a", "b", RenameMode::Replace).unwrap();
    world.rename("c", "d", RenameMode::Replace).unwrap();
    store.put("a", b"theirs");
    store.put("c", b"theirs");
    let is_told = || world.far.backlog().failures.iter().filter(|one| one.reason.contains("is open")).count() == 2;
    wait("both are left alone", || {
        cache.clock().jump(std::time::Duration::from_millis(100));
        world.far.look();
        is_told()
    });
    assert!(world.at("b").is_ok() && world.at("d").is_ok());
    world.mount.set_attributes(writer.ino(), &AttributeChange { size: Some(0), ..AttributeChange::default() }).unwrap();
    world.mount.write(&writer, 0, b"mine", false).unwrap();
    world.mount.release(writer).unwrap();
    world.mount.release(reader).unwrap();
    cache.clock().jump(std::time::Duration::from_secs(61));
    world.flush();
    let all = pairs(&[("b", "theirs"), ("c", "theirs"), ("d", "mine")]);
    assert_eq!((bodies(&store), here(&world)), (all.clone(), all));
}

#[test]
fn a_file_renamed_here_and_removed_there_is_gone() {
    let (store, world, _cache) = listed(12, &[("a", b"first"), ("other", b"x")]);
    world.rename("a", "b", RenameMode::Replace).unwrap();
    change_rights(&world, "other");
    store.remove("a");
    store.remove("other");
    world.flush();
    assert_eq!((bodies(&store), here(&world)), (pairs(&[]), pairs(&[])));
}

#[test]
fn a_file_written_and_renamed_here_and_replaced_there_is_both() {
    let (store, world, _cache) = listed(13, &[]);
    world.write("", "a", 0, b"mine").unwrap();
    world.flush();
    store.put("a", b"theirs");
    world.rename("a", "b", RenameMode::Replace).unwrap();
    world.flush();
    let both = pairs(&[("a", "theirs"), ("b", "mine")]);
    assert_eq!((bodies(&store), here(&world)), (both.clone(), both));
}

#[test]
fn what_somebody_changed_and_kept_the_metadata_of_is_theirs() {
    let (store, world, _cache) = listed(14, &[]);
    world.write("", "a", 0, b"mine").unwrap();
    world.flush();
    store.replace_body("a", b"theirs");
    world.write("", "a", 4, b" again").unwrap();
    world.flush();
    let there = bodies(&store);
    assert_eq!(there[0], ("a".to_owned(), "theirs".to_owned()));
    assert!(there[1].0.starts_with("a.conflict-") && there[1].1 == "mine again", "{there:?}");
}

#[test]
fn a_bucket_that_is_gone_takes_nothing_with_it() {
    let (store, world, _cache) = listed(15, &[("a", b"first")]);
    store.script(|_, _, _| Some(Fault::Refused(404, "NoSuchBucket")));
    world.rename("a", "b", RenameMode::Replace).unwrap();
    std::thread::sleep(Duration::from_millis(800));
    store.set_reachable(true);
    world.flush();
    assert_eq!((bodies(&store), here(&world)), (pairs(&[("b", "first")]), pairs(&[("b", "first")])));
}

#[test]
fn a_refused_file_is_tried_again_later() {
    let (store, world, cache) = listed(16, &[]);
    store
        .script(|method, key, _| (*method == Method::PUT && key == "a").then_some(Fault::Refused(403, "AccessDenied")));
    world.write("", "a", 0, b"mine").unwrap();
    let refused = world.far.flush(None, &mut |_| true);
    assert!(matches!(refused, Err(NotSent::Refused(_))), "{refused:?}");
    store.set_reachable(true);
    cache.clock().jump(Duration::from_secs(301));
    let mut tries = 0;
    while bodies(&store).is_empty() {
        std::thread::sleep(Duration::from_millis(20));
        tries += 1;
        assert!(tries < 3000, "{}", world.far.details());
    }
}

#[test]
fn a_panic_of_the_sender_is_told_to_all_who_wait() {
    let (_store, world, cache) = listed(18, &[]);
    world.far.flush(None, &mut |_| true).unwrap();
    cache.clock().break_sending();
    world.write("", "a", 0, b"mine").unwrap();
    let told = world.far.flush(None, &mut |_| true);
    assert!(matches!(&told, Err(NotSent::Broken(why)) if why.contains("the clock is broken")), "{told:?}");
    assert!(world.far.broken().is_some());
    let drained = world.far.drain(&mut |_| true);
    assert!(matches!(drained, Err(NotSent::Broken(_))), "{drained:?}");
    assert_eq!(world.far.backlog().files, 1, "it is kept");
}

#[test]
fn a_directory_moves_only_where_all_keys_below_it_are_short_enough() {
    let (store, world, _cache) = listed(19, &[]);
    let name = |letter: char, bytes: usize| String::from(letter).repeat(bytes);
    let mut path = String::new();
    for letter in ['a', 'b', 'c', 'd'] {
        let made = Name::Plain(name(letter, 240));
        world.mount.make_directory(world.at(&path).unwrap(), &made, &NEW).unwrap();
        path = format!("{path}{}/", name(letter, 240));
    }
    world.write(&path, &name('f', 60), 0, b"deep").unwrap();
    assert_eq!(path.len() + 60, 1024);
    world.flush();
    let (first, other) = (name('a', 240), name('x', 240));
    let refused = world.rename(&first, &name('x', 241), RenameMode::Replace).unwrap_err();
    assert!(format!("{refused:?}").contains("code: 36"), "ENAMETOOLONG: {refused:?}");
    world.rename(&first, &other, RenameMode::Replace).unwrap();
    world.flush();
    let keys: Vec<String> = bodies(&store).into_iter().map(|(key, _)| key).collect();
    assert!(keys.len() == 5 && keys.iter().all(|key| key.starts_with(&other)), "{keys:?}");
}

#[test]
fn exchanged_files_arrive_though_answers_are_lost() {
    let (store, world, _cache) = listed(17, &[("a", b"one"), ("b", b"two")]);
    let mut lost = 0;
    store.script(move |method, key, _| {
        // One more than the client's own tries.
        let is_lost = *method == Method::PUT && key.contains("-tmp/") && lost < 12;
        lost += u32::from(is_lost);
        is_lost.then_some(Fault::Unanswered)
    });
    world.rename("a", "b", RenameMode::Exchange).unwrap();
    world.flush();
    let both = pairs(&[("a", "two"), ("b", "one")]);
    assert_eq!((bodies(&store), here(&world)), (both.clone(), both));
}

#[test]
fn temporary_keys_are_below_the_prefix() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("in/a", b"one");
    store.put("in/b", b"two");
    store.script(|method, key, _| {
        (*method == Method::PUT && !key.starts_with("in/")).then_some(Fault::Refused(403, "AccessDenied"))
    });
    let world = Cache::new(18).open(&target, "in/");
    world.shown();
    world.rename("a", "b", RenameMode::Exchange).unwrap();
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("in/a", "two"), ("in/b", "one")]));
}

#[test]
fn a_file_that_is_changed_all_the_time_is_sent() {
    let (store, world, cache) = listed(19, &[]);
    let handle = world.create("", "log").unwrap();
    let mut lines = 0;
    while bodies(&store).is_empty() {
        world.mount.write(&handle, lines * 5, b"line\n", false).unwrap();
        world.mount.flush(&handle).unwrap();
        cache.clock().jump(Duration::from_millis(200));
        std::thread::sleep(Duration::from_millis(5));
        lines += 1;
        assert!(lines < 2000, "{}", world.far.details());
    }
    world.mount.release(handle).unwrap();
    world.flush();
}

#[test]
fn fsync_of_a_renamed_file_waits_for_no_removal() {
    let (store, world, _cache) = listed(20, &[]);
    world.write("", "a", 0, b"mine").unwrap();
    world.flush();
    store.script(|method, _, _| (*method == Method::POST).then_some(Fault::Refused(503, "SlowDown")));
    world.rename("a", "b", RenameMode::Replace).unwrap();
    let ino = world.at("b").unwrap();
    world.far.flush(Some(ino), &mut |_| true).unwrap();
    assert!(bodies(&store).contains(&("b".to_owned(), "mine".to_owned())));
    let stopped = world.far.flush(None, &mut |_| false);
    assert!(matches!(stopped, Err(NotSent::Stopped)), "{stopped:?}");
    store.set_reachable(true);
    world.flush();
    assert_eq!(keys(&in_bucket(&store)), ["b 644 4"]);
}

#[test]
fn a_volume_whose_first_start_was_cut_off_shows_the_bucket() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("a", b"first");
    let cache = Cache::new(22);
    let (volume, far) = cache.volume(&target, "");
    runtime().block_on(volume.create_bucket("b")).unwrap();
    drop((volume, far));
    assert_eq!(here(&cache.open(&target, "")), pairs(&[("a", "first")]));
}

#[test]
fn a_write_id_is_of_one_write() {
    let (store, mut target) = runtime().block_on(Store::start());
    let mut cache = Cache::new(23);
    let mut seen = std::collections::BTreeSet::new();
    for number in 0..4u8 {
        let world = cache.open(&target, "");
        world.write("", "a", 0, &[number; 8]).unwrap();
        world.flush();
        assert!(seen.insert(store.objects()["a"].headers["x-amz-meta-margay-w"].clone()), "{seen:?}");
        target = cache.end(world, &store);
    }
}

#[test]
fn an_object_that_may_not_be_read_is_shown() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("a", b"first");
    store.put("d/b", b"second");
    store.script(|method, _, _| (*method == Method::HEAD).then_some(Fault::Refused(403, "AccessDenied")));
    let world = Cache::new(24).open(&target, "");
    assert_eq!(here(&world), pairs(&[("a", "first"), ("d/", ""), ("d/b", "second")]));
}

/// The first PUT of each process is done and not answered.
fn lose_answers(store: &Store) {
    store.script(|method, _, _| (*method == Method::PUT).then_some(Fault::Unanswered));
}

#[test]
fn a_file_that_was_sent_by_a_process_that_ended_and_renamed_is_there_once() {
    for replaced in [false, true] {
        let (store, target) = runtime().block_on(Store::start());
        let mut cache = Cache::new(25);
        let world = cache.open(&target, "");
        if replaced {
            // Its object is replaced by that of the next one, and both rows say so after the end.
            world.write("", "a", 0, b"same").unwrap();
            world.flush();
            store.may_lose(&cache.id(), world.at("a").unwrap().0);
            world.mount.unlink(world.mount.root(), &Name::Plain("a".to_owned())).unwrap();
        }
        lose_answers(&store);
        world.write("", "a", 0, b"same").unwrap();
        let id = format!("{}-{}-", cache.id(), world.at("a").unwrap().0);
        let is_sent = || store.objects().get("a").is_some_and(|a| a.headers["x-amz-meta-margay-w"].starts_with(&id));
        let mut tries = 0;
        while !is_sent() {
            std::thread::sleep(Duration::from_millis(5));
            tries += 1;
            assert!(tries < 12_000, "{}", world.far.details());
        }
        let target = cache.end(world, &store);
        let world = cache.open(&target, "");
        world.rename("a", "b", RenameMode::Replace).unwrap();
        store.set_reachable(true);
        world.flush();
        assert_eq!(bodies(&store), pairs(&[("b", "same")]), "replaced: {replaced}");
        store.assert_nothing_was_missing();
    }
}

#[test]
fn a_store_that_ignores_conditions_is_asked_first() {
    let (store, target) = runtime().block_on(Store::start());
    for name in ["replaced", "removed", "renamed"] {
        store.put(name, b"first");
    }
    store.ignore_conditions();
    let world = Cache::new(26).open(&target, "");
    world.shown();
    store.wait_probed();
    for name in ["made", "replaced", "removed", "there"] {
        store.put(name, b"theirs");
    }
    world.write("", "made", 0, b"mine").unwrap();
    world.write("", "replaced", 0, b"mine").unwrap();
    world.rename("renamed", "there", RenameMode::Replace).unwrap();
    world.mount.unlink(world.mount.root(), &Name::Plain("removed".to_owned())).unwrap();
    world.flush();
    let there = bodies(&store);
    let found = |name: &str| {
        let found = there.iter().filter(|(key, _)| key.starts_with(name));
        found.map(|(_, body)| body.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(found("made"), ["theirs", "mine"], "{there:?}");
    assert_eq!(found("replaced"), ["theirs", "minet"], "{there:?}");
    assert_eq!(found("there"), ["theirs", "first"], "{there:?}");
    assert_eq!((found("removed"), found("renamed")), (vec!["theirs"], vec![]), "{there:?}");
}

#[test]
fn what_an_earlier_process_left_at_temporary_keys_goes() {
    let (store, target) = runtime().block_on(Store::start());
    let cache = Cache::new(27);
    let own: &'static str = format!(".margay-tmp/{}-0-5-6", cache.id()).leak();
    store.put(own, b"left");
    store.put(".margay-tmp/another-0-5-6", b"in use");
    let world = cache.open(&target, "");
    store.wait_probed();
    let mut tries = 0;
    while store.objects().contains_key(own) {
        std::thread::sleep(Duration::from_millis(5));
        tries += 1;
        assert!(tries < 12_000, "{:?}", store.objects().keys());
    }
    assert!(here(&world).is_empty(), "the directory is not shown");
    assert_eq!(store.objects().keys().collect::<Vec<_>>(), [".margay-tmp/another-0-5-6"]);
}

#[test]
fn a_name_that_no_store_takes_is_refused_at_the_call() {
    let (store, world, _cache) = listed(28, &[]);
    let (name, mut at, mut depth) = (Name::Plain("d".repeat(250)), world.mount.root(), 0);
    let refused = loop {
        match world.mount.make_directory(at, &name, &NEW) {
            Ok(made) => (at, depth) = (made.ino, depth + 1),
            Err(error) => break error,
        }
    };
    assert!(depth == 4 && format!("{refused:?}").contains("36"), "{depth}: {refused:?}");
    world.flush();
    assert_eq!(store.objects().len(), 4);
}

#[test]
fn a_write_that_arrived_twice_is_known_after_a_rename() {
    let (store, world, cache) = listed(33, &[("d/x", b"x")]);
    world.write("d", "a", 0, b"mine").unwrap();
    let handled = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&handled);
    store.script(move |method, key, _| match (method, key) {
        (&Method::PUT, "d/a") => Some(Fault::Twice),
        (&Method::HEAD, "d/a") => {
            seen.store(true, std::sync::atomic::Ordering::SeqCst);
            Some(Fault::Refused(403, "AccessDenied"))
        }
        _ => None,
    });
    cache.clock().jump(Duration::from_secs(5));
    wait("it is asked for", || handled.load(std::sync::atomic::Ordering::SeqCst));
    wait("that fails", || world.far.backlog().failing > 0);
    store.script(|_, _, _| None);
    world.rename("d", "e", RenameMode::Replace).unwrap();
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("e/", ""), ("e/a", "mine"), ("e/x", "x")]));
}

#[test]
fn a_copy_that_is_done_and_said_to_have_failed_is_there_once() {
    let (store, world, _cache) = listed(34, &[("a", b"same")]);
    store.script(|method, key, _| (method == Method::PUT && key == "b").then_some(Fault::FailedInBody));
    world.rename("a", "b", RenameMode::Replace).unwrap();
    wait("it has failed", || world.far.backlog().failures.iter().any(|one| one.key == "b"));
    assert_eq!(bodies(&store), pairs(&[("a", "same"), ("b", "same")]));
    world.rename("b", "c", RenameMode::Replace).unwrap();
    store.set_reachable(true);
    world.flush();
    assert_eq!(bodies(&store), pairs(&[("c", "same")]));
}

/// Once it went here, and then its copy there, which was its last.
#[test]
fn a_copy_whose_answer_was_lost_stays_when_its_source_is_removed() {
    for replaced in [false, true] {
        let (store, world, cache) = listed(41, &[("a", b"first")]);
        store.script(|method, key, _| (*method == Method::PUT && key == "b").then_some(Fault::FailedInBody));
        world.rename("a", "b", RenameMode::Replace).unwrap();
        cache.clock().jump(Duration::from_secs(5));
        wait("it is copied", || world.far.backlog().failing > 0);
        if replaced {
            store.put("a", b"theirs")
        } else {
            store.remove("a")
        };
        store.script(|_, _, _| None);
        cache.clock().jump(Duration::from_secs(60));
        world.flush();
        let there = if replaced { pairs(&[("a", "theirs"), ("b", "first")]) } else { pairs(&[("b", "first")]) };
        assert_eq!(bodies(&store), there);
        assert_eq!(here(&world), there);
    }
}

/// The key `d/` is the directory's own; a mount shows such an object as `@{}` elsewhere.
#[test]
fn a_file_with_the_key_of_its_directory_is_refused() {
    let (store, world, _cache) = listed(43, &[("d/a", b"1")]);
    assert!(world.write("d", "", 0, b"x").is_err());
    assert!(world.rename("d/a", "d/", RenameMode::Replace).is_err());
    world.write("d", "b", 0, b"2").unwrap();
    world.flush();
    let files = bodies(&store).into_iter().filter(|(key, _)| !key.ends_with('/'));
    assert_eq!(files.collect::<Vec<_>>(), pairs(&[("d/a", "1"), ("d/b", "2")]));
}
