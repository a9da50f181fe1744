//! Syncs that wait for the cache alone: the bucket shows their order, whatever is lost on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use margay_volume::posix::*;

use crate::chance::{Chance, number};
use crate::store::{Contents, Fault, Store};
use crate::world::*;
use crate::{in_bucket, keys, mirrored};

/// Names of files; a directory is above some.
const PATHS: [&str; 5] = ["a", "b", "c", "d/a", "d/b"];

/// What each name held between two syncs.
type Epoch = BTreeMap<&'static str, BTreeSet<Option<Bytes>>>;

struct History(Vec<Epoch>);

impl History {
    fn note(&mut self, world: &World) {
        let tree = world.shown();
        let epoch = self.0.last_mut().unwrap();
        for path in PATHS {
            let body = tree.get(path).map(|(_, body)| Bytes::from(body.clone()));
            let held = epoch.entry(path).or_default();
            // A file is made before it is written.
            if body.is_some() && held.contains(&None) {
                held.insert(Some(Bytes::new()));
            }
            held.insert(body);
        }
    }

    /// A sync has returned.
    fn end_epoch(&mut self, world: &World) {
        self.0.push(Epoch::new());
        self.note(world);
    }

    /// Each state of the bucket is one of an epoch, and of none that came before that of the state before.
    fn check(&self, seed: u64, states: &[Contents]) {
        let mut shown = 0;
        for state in states {
            let fits = |epoch: &Epoch| PATHS.iter().all(|path| epoch[path].contains(&state.get(*path).cloned()));
            let found = self.0[shown..].iter().position(fits);
            let epochs = &self.0[shown..self.0.len().min(shown + 3)];
            shown +=
                found.unwrap_or_else(|| panic!("seed {seed}: {state:?} is no state of {shown} {epochs:#?} or later"));
        }
    }
}

fn change(world: &World, chance: &mut Chance, number: u64) -> Done<()> {
    let path = chance.of(&PATHS);
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
    let file = Name::Plain(name.to_owned());
    match chance.below(8) {
        // All have one length, so a write is the whole content.
        0..5 => world.write(directory, name, 0, format!("{number:08}").as_bytes()),
        5 => world.mount.unlink(world.at(directory)?, &file),
        6 => {
            let to = chance.of(&PATHS);
            let (to_directory, to) = to.rsplit_once('/').unwrap_or(("", to));
            let to = Name::Plain(to.to_owned());
            world.mount.rename(world.at(directory)?, &file, world.at(to_directory)?, &to, RenameMode::Replace)
        }
        _ => {
            let rights = 0o600 + chance.below(0o100) as u32;
            let change = AttributeChange { rights: Some(rights), ..AttributeChange::default() };
            world.mount.set_attributes(world.mount.lookup(world.at(directory)?, &file)?.ino, &change).map(drop)
        }
    }
}

fn ordered(seed: u64) {
    println!("seed {seed} with syncs");
    let (store, mut target) = runtime().block_on(Store::start());
    let mut chance = Chance::by(seed);
    let mut cache = Cache::local(seed);
    let mut world = cache.open(&target, "");
    world.mount.make_directory(world.mount.root(), &Name::Plain("d".to_owned()), &NEW).unwrap();
    world.mount.sync_directory().unwrap();
    let mut history = History(vec![Epoch::new()]);
    history.note(&world);
    store.record();
    store.fail([0, 20, 5][(seed % 3) as usize], seed);
    for round in 0..40 {
        for number in 0..chance.below(5) {
            let _ = change(&world, &mut chance, round * 10 + number);
            history.note(&world);
        }
        match chance.below(12) {
            0..6 => {
                world.mount.sync_directory().unwrap();
                history.end_epoch(&world);
            }
            6 if chance.below(3) == 0 => {
                target = cache.end(world, &store);
                world = cache.open(&target, "");
                history.end_epoch(&world);
            }
            7 if chance.below(3) == 0 => {
                target = cache.cut_power(world, &store, seed + round);
                world = cache.open(&target, "");
                history.end_epoch(&world);
            }
            8 => world.reclaim(),
            9 => world.flush(),
            _ => std::thread::sleep(Duration::from_millis(chance.below(40))),
        }
    }
    world.flush();
    world.reclaim();
    let (here, there) = (world.shown(), in_bucket(&store));
    assert!(here == there, "seed {seed}: here {:#?}\nthere {:#?}", keys(&here), keys(&there));
    history.check(seed, &store.recorded());
    let backlog = world.far.backlog();
    assert!(backlog.files == 0 && backlog.conflicts.is_empty(), "seed {seed}: {backlog:?}");
    world.far.evict_sent(u64::MAX).unwrap();
    wait("kept bytes go", || world.mount.volume().own_bytes().unwrap() == 0);
}

#[test]
fn the_bucket_shows_the_order_of_syncs() {
    let seeds = number("MARGAY_TEST_SEEDS", 24);
    let first = number("MARGAY_TEST_FIRST", 1);
    (first..first + seeds).for_each(ordered);
    println!("evidence: far mounts with fsync=local: {seeds} seeds");
}

/// As with syncs that wait for the bucket, of larger files, directories and attributes.
#[test]
fn a_bucket_gets_what_a_mount_with_local_syncs_changes() {
    let seeds = number("MARGAY_TEST_SEEDS", 24);
    let first = number("MARGAY_TEST_FIRST", 1);
    (first..first + seeds).for_each(|seed| mirrored(seed, Cache::local(seed)));
}

/// A sync needs no bucket, what it synced is there after a power cut, and goes up in its order.
#[test]
fn a_sync_returns_while_the_bucket_is_silent() {
    let (store, target) = runtime().block_on(Store::start());
    let mut cache = Cache::local(77);
    let world = cache.open(&target, "");
    world.shown();
    store.wait_probed();
    store.set_reachable(false);
    for number in 0..20 {
        for name in ["journal", "data"] {
            let handle = world.create("", name).unwrap();
            world.mount.write(&handle, 0, format!("{number:08}").as_bytes(), false).unwrap();
            world.mount.sync(&handle).unwrap();
            world.mount.release(handle).unwrap();
        }
    }
    assert!(world.far.backlog().epochs >= 39, "{:?}", world.far.backlog());
    let target = cache.cut_power(world, &store, 7);
    store.record();
    store.set_reachable(true);
    let world = cache.open(&target, "");
    assert_eq!(world.shown()["data"].1, b"00000019");
    world.flush();
    let states = store.recorded();
    let both: Vec<(u64, u64)> = states
        .iter()
        .map(|state| {
            let number = |key: &str| {
                state.get(key).map_or(0, |body| 1 + std::str::from_utf8(body).unwrap().parse::<u64>().unwrap())
            };
            (number("journal"), number("data"))
        })
        .collect();
    let expected: Vec<(u64, u64)> = (1..=20).flat_map(|number| [(number, number - 1), (number, number)]).collect();
    let both: Vec<(u64, u64)> = both.into_iter().filter(|(journal, _)| *journal > 0).collect();
    assert_eq!(both, expected, "one after the other");
}

/// Answers to requests of this method are lost from the first one on.
fn lose_answers(store: &Store, lost: Method) {
    store.script(move |method, _, _| (*method == lost).then_some(Fault::Unanswered));
}

fn synced(world: &World, name: &str, content: &[u8]) {
    world.write("", name, 0, content).unwrap();
    world.mount.sync_directory().unwrap();
}

/// A bucket with these objects, which are listed, by a mount with `fsync=local`.
fn listed_locally(seed: u64, objects: &[(&'static str, &'static [u8])]) -> (Arc<Store>, World, Cache) {
    let (store, target) = runtime().block_on(Store::start());
    objects.iter().for_each(|(key, body)| store.put(key, body));
    let cache = Cache::local(seed);
    let world = cache.open(&target, "");
    world.shown();
    (store, world, cache)
}

/// The power is cut and all is sent. The contents that `c` had until the bucket had `later`.
fn contents_of_c_after_a_cut(mut cache: Cache, world: World, store: &Arc<Store>) -> Vec<String> {
    let target = cache.cut_power(world, store, 9);
    store.script(|_, _, _| None);
    let world = cache.open(&target, "");
    world.flush();
    let states = store.recorded();
    let until = states.iter().position(|state| state.contains_key("later")).unwrap();
    let text = |body: &Bytes| String::from_utf8(body.to_vec()).unwrap();
    let mut bodies: Vec<String> =
        states[..=until].iter().map(|state| state.get("c").map(text).unwrap_or_default()).collect();
    bodies.dedup();
    bodies
}

#[test]
fn the_order_stays_when_the_answer_to_a_copy_is_lost() {
    let (store, world, cache) = listed_locally(78, &[]);
    synced(&world, "b", b"first");
    world.flush();
    store.set_reachable(false);
    world.rename("b", "c", RenameMode::Replace).unwrap();
    world.mount.sync_directory().unwrap();
    for (name, content) in [("c", "other"), ("c", "final"), ("later", "x")] {
        synced(&world, name, content.as_bytes());
    }
    store.record();
    lose_answers(&store, Method::PUT);
    wait("it is copied", || store.objects().contains_key("c"));
    assert_eq!(contents_of_c_after_a_cut(cache, world, &store), ["first", "other", "final"]);
}

#[test]
fn the_order_stays_when_the_answer_to_a_removal_is_lost() {
    let (store, world, cache) = listed_locally(79, &[]);
    synced(&world, "c", b"first");
    world.flush();
    lose_answers(&store, Method::POST);
    world.mount.unlink(world.mount.root(), &Name::Plain("c".to_owned())).unwrap();
    cache.clock().jump(Duration::from_secs(5));
    store.record();
    wait("it is removed", || !store.objects().contains_key("c"));
    for (name, content) in [("c", "again"), ("c", "final"), ("later", "x")] {
        synced(&world, name, content.as_bytes());
    }
    assert_eq!(contents_of_c_after_a_cut(cache, world, &store), ["", "again", "final"]);
}

/// A bucket with `a`, which is listed; what is done now is not sent yet.
fn listed_and_silent(seed: u64) -> (Arc<Store>, World, Cache) {
    let (store, world, cache) = listed_locally(seed, &[("a", b"first")]);
    store.wait_probed();
    store.set_reachable(false);
    (store, world, cache)
}

fn texts(store: &Store) -> Vec<(String, String)> {
    let text = |(key, (_, body)): (String, (u32, Vec<u8>))| {
        let short = key.split(".conflict-").next().unwrap().to_owned();
        (if short == key { key } else { short + " aside" }, String::from_utf8(body).unwrap())
    };
    in_bucket(store).into_iter().map(text).collect()
}

#[test]
fn what_was_synced_and_changed_by_somebody_else_is_kept_once() {
    let (store, world, _cache) = listed_and_silent(80);
    synced(&world, "a", b"mine!");
    store.put("a", b"theirs");
    store.set_reachable(true);
    world.flush();
    assert_eq!(texts(&store), pairs(&[("a", "theirs"), ("a aside", "mine!")]));
    synced(&world, "a", b"second");
    world.flush();
    assert_eq!(texts(&store), pairs(&[("a", "second"), ("a aside", "mine!")]));
}

#[test]
fn a_file_whose_new_name_was_synced_has_there_the_content_of_who_replaced_it() {
    let (store, world, _cache) = listed_and_silent(81);
    world.rename("a", "b", RenameMode::Replace).unwrap();
    world.mount.sync_directory().unwrap();
    store.put("a", b"theirs");
    store.set_reachable(true);
    world.flush();
    assert_eq!(texts(&store), pairs(&[("b", "theirs")]));
}

/// What was moved away again, and went since, is of the later epoch; whether it ever arrived is asked before the first one ends.
#[test]
fn a_removal_waits_for_no_question_of_a_later_epoch() {
    let (store, world, cache) = listed_locally(82, &[("a", b"1"), ("b", b"2")]);
    store.wait_probed();
    store.script(|method, key, _| (*method == Method::PUT && key == "a").then_some(Fault::Refused(503, "SlowDown")));
    world.rename("b", "a", RenameMode::Replace).unwrap();
    world.mount.sync_directory().unwrap();
    world.rename("a", "b", RenameMode::Replace).unwrap();
    cache.clock().jump(Duration::from_secs(5));
    wait("it fails", || world.far.backlog().failing > 0);
    store.remove("b");
    store.script(|_, _, _| None);
    cache.clock().jump(Duration::from_secs(60));
    world.flush();
    assert_eq!((texts(&store), world.far.backlog().files), (pairs(&[]), 0));
}
