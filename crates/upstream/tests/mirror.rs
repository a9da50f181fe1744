//! A far volume and a simulated bucket: any changes of a mount, with requests and answers lost, ends of the process, power cuts
//! and another client, and at the end the bucket has what the tree has, and a new mount shows it.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

#[path = "mirror/attributes.rs"]
mod attributes;
#[path = "mirror/cache.rs"]
mod cache;
#[path = "mirror/chance.rs"]
mod chance;
#[path = "mirror/documents.rs"]
mod documents;
#[path = "mirror/encoded.rs"]
mod encoded;
#[path = "mirror/epochs.rs"]
mod epochs;
#[path = "mirror/faults.rs"]
mod faults;
#[path = "mirror/fresh.rs"]
mod fresh;
#[path = "mirror/headers.rs"]
mod headers;
#[path = "../../client/tests/upstream/listen.rs"]
mod listen;
#[path = "mirror/missed.rs"]
mod missed;
#[path = "mirror/multipart.rs"]
mod multipart;
#[path = "mirror/parts.rs"]
mod parts;
#[path = "mirror/refused.rs"]
mod refused;
#[path = "mirror/removals.rs"]
mod removals;
#[path = "mirror/store.rs"]
mod store;
#[path = "mirror/told.rs"]
mod told;
#[path = "mirror/world.rs"]
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use chance::{Chance, number};
use margay_env::Clock;
use margay_env::real::RealClock;
use margay_volume::posix::*;
use store::{Lists, Store};
use world::*;

/// Changes, losses and ends of the process; then the bucket has what is here, and a new cache shows it.
fn mirrored(seed: u64, mut cache: Cache) {
    let (store, mut target) = runtime().block_on(Store::start());
    println!("seed {seed}");
    let mut chance = Chance::by(seed);
    let mut world = cache.open(&target, "");
    store.fail([0, 20, 5][(seed % 3) as usize], seed);
    store.slow([0, 0, 0, 50, 200][(seed % 5) as usize]);
    store.set_lists([Lists::Metadata, Lists::Nothing, Lists::Refusal, Lists::Metadata][(seed / 3 % 4) as usize]);
    for round in 0..6 {
        for number in 0..12 {
            // Refusals are part of it.
            let _ = world.change(&mut chance, round * 100 + number, &store, &cache.id());
            if cache.is_local() && number % 3 == 0 {
                world.mount.sync_directory().unwrap();
            }
        }
        if chance.below(3) == 0 {
            world.far.evict_sent(u64::MAX).unwrap();
        }
        // It makes rows durable.
        if chance.below(2) == 0 {
            world.reclaim();
        }
        match chance.below(4) {
            0 => world.flush(),
            1 => {
                target = cache.end(world, &store);
                world = cache.open(&target, "");
            }
            2 => {
                std::thread::sleep(Duration::from_millis(chance.below(600)));
                target = cache.cut_power(world, &store, seed + round);
                world = cache.open(&target, "");
            }
            _ => std::thread::sleep(Duration::from_millis(chance.below(300))),
        }
    }
    world.close();
    world.flush();
    world.reclaim();
    store.assert_nothing_was_missing();
    let (here, there) = (world.shown(), in_bucket(&store));
    assert!(here == there, "seed {seed}: here {:#?}\nthere {:#?}", keys(&here), keys(&there));
    world.far.evict_sent(u64::MAX).unwrap();
    assert_eq!(world.mount.volume().own_bytes().unwrap(), 0, "seed {seed}: the bucket has all of it");
    world.reclaim();
    let here = world.shown();
    assert!(here == there, "seed {seed}: after eviction here {:#?}\nthere {:#?}", keys(&here), keys(&there));
    let backlog = world.far.backlog();
    assert!(backlog.files == 0 && backlog.conflicts.is_empty(), "seed {seed}: nobody else was there: {backlog:?}");
    store.fail(0, 0);
    let fresh = Cache::new(seed + 1).open(&target, "");
    let shown = fresh.shown();
    assert!(shown == there, "seed {seed}: fresh {:#?}\nthere {:#?}", keys(&shown), keys(&there));
    for key in shown.keys() {
        let path = key.trim_end_matches('/');
        // Which of the two is wrong: the object or what is read of it.
        let headers = store.objects().get(key).map(|object| object.headers.clone());
        assert_eq!(
            fresh.xattrs(path),
            world.xattrs(path),
            "seed {seed}: attributes of {key}, in the bucket {headers:?}"
        );
    }
    assert_eq!(fresh.far.backlog().files, 0, "what was read is not dirty");
    // What was begun and has not ended ends with the next process.
    drop(fresh);
    target = cache.end(world, &store);
    let world = cache.open(&target, "");
    wait_for_ends(seed, &store, &world);
}

/// Uploads that were begun end.
fn wait_for_ends(seed: u64, store: &Store, world: &World) {
    for tries in 0.. {
        if store.uploads().is_empty() {
            break;
        }
        assert!(tries < 60_000, "seed {seed}: {:?} {:?}", store.uploads(), world.far.honoured());
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_bucket_gets_what_a_mount_changes() {
    let seeds = number("MARGAY_TEST_SEEDS", 24);
    let first = number("MARGAY_TEST_FIRST", 1);
    (first..first + seeds).for_each(|seed| mirrored(seed, Cache::new(seed)));
    println!("evidence: far mounts: {seeds} seeds");
}

/// Somebody else writes and removes objects while the mount does; nobody's content is lost.
fn shared_with_another(seed: u64) {
    println!("seed {seed} with another client");
    let (store, mut target) = runtime().block_on(Store::start());
    let mut chance = Chance::by(seed);
    let mut cache = Cache::new(seed);
    let mut world = cache.open(&target, "");
    store.fail([0, 10][(seed % 2) as usize], seed);
    store.set_lists([Lists::Metadata, Lists::Nothing, Lists::Refusal, Lists::Metadata][(seed / 2 % 4) as usize]);
    for round in 0..6 {
        for number in 0..8 {
            let _ = world.change(&mut chance, round * 100 + number, &store, &cache.id());
        }
        if chance.below(3) == 0 {
            world.far.evict_sent(u64::MAX).unwrap();
        }
        // Nothing here has seen it, so it is there whatever was changed here before.
        let key = format!("{}{}", chance.of(&["", "d/", "e/"]), chance.of(&["a", "b"]));
        let theirs = (chance.below(3) > 0).then(|| -> &'static [u8] { format!("theirs {round}").leak().as_bytes() });
        match theirs {
            Some(body) => store.put(&key, body),
            None => store.remove(&key),
        }
        match chance.below(4) {
            1 => {
                target = cache.end(world, &store);
                world = cache.open(&target, "");
            }
            2 => cache.clock().jump(Duration::from_secs(chance.below(30))),
            _ => {
                world.flush();
                // It moves along with a file that was only renamed here.
                let there = in_bucket(&store);
                let is_kept = |body: &[u8]| there.values().any(|(_, bytes)| bytes == body);
                assert!(theirs.is_none_or(is_kept), "seed {seed}: what is put at {key} is somewhere");
            }
        }
    }
    world.close();
    world.flush();
    // What they did is seen here, and nothing else is.
    store.fail(0, 0);
    let files = |tree: BTreeMap<String, (u32, Vec<u8>)>| {
        let files = tree.into_iter().filter(|(key, _)| !key.ends_with('/'));
        files.map(|(key, (_, body))| (key, body)).collect::<BTreeMap<_, _>>()
    };
    let there = files(in_bucket(&store));
    for tries in 1.. {
        cache.clock().jump(Duration::from_secs(61));
        let here = files(world.try_shown().unwrap_or_default());
        if here == there {
            break;
        }
        let names = |tree: &BTreeMap<String, Vec<u8>>| format!("{:?}", tree.keys());
        assert!(tries < 100, "seed {seed}: here {}, there {}", names(&here), names(&there));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(world.far.backlog().files, 0, "seed {seed}");
    assert_eq!(files(in_bucket(&store)), there, "seed {seed}: looking changes nothing");
}

#[test]
fn what_another_client_writes_stays() {
    let seeds = number("MARGAY_TEST_SEEDS", 24);
    let first = number("MARGAY_TEST_FIRST", 1);
    (first..first + seeds).for_each(shared_with_another);
    println!("evidence: far mounts beside another client: {seeds} seeds");
}

#[test]
fn both_contents_of_a_conflict_are_kept() {
    let (store, target) = runtime().block_on(Store::start());
    store.put("dir/file.txt", b"first");
    store.put("dir/gone", b"first");
    let cache = Cache::new(7);
    let world = cache.open(&target, "dir/");
    assert_eq!(keys(&world.shown()), ["file.txt 644 5", "gone 644 5"]);
    store.put("dir/file.txt", b"theirs");
    world.write("", "file.txt", 5, b" and mine").unwrap();
    store.remove("dir/gone");
    world.write("", "gone", 0, b"mine").unwrap();
    world.flush();
    let backlog = world.far.backlog();
    let [conflict] = backlog.conflicts.as_slice() else { panic!("{backlog:?}") };
    assert!(conflict.starts_with("file.txt.conflict-20") && conflict.ends_with("Z-here"), "{conflict}");
    let there = in_bucket(&store);
    let content = |key: &str| there.get(key).map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(content("dir/file.txt").as_deref(), Some("theirs"));
    assert_eq!(content(&format!("dir/{conflict}")).as_deref(), Some("first and mine"));
    assert_eq!(content("dir/gone").as_deref(), Some("minet"), "removed there, changed here: made again");
    let here = world.shown();
    assert_eq!(here["file.txt"].1, b"theirs");
    assert_eq!(here[conflict.as_str()].1, b"first and mine");
    // Removed here, changed there: what is there stays, and is shown.
    store.put("dir/file.txt", b"again");
    world.mount.unlink(world.mount.root(), &Name::Plain("file.txt".to_owned())).unwrap();
    world.flush();
    assert_eq!(store.objects()["dir/file.txt"].body, "again");
    assert_eq!(world.shown()["file.txt"].1, b"again");
}

#[test]
fn a_created_file_costs_one_request_and_a_thousand_removed_ones_few() {
    let (store, target) = runtime().block_on(Store::start());
    let world = Cache::new(3).open(&target, "");
    world.shown();
    store.wait_probed();
    let (before, clock) = (store.requests(), RealClock::new());
    for number in 0..1000 {
        world.write("", &format!("f{number}"), 0, b"content").unwrap();
    }
    world.flush();
    let (made, listings) = (store.requests() - before, store.listings());
    // A slow machine sends some files before they have their bytes, and again.
    let seconds = clock.monotonic().as_secs();
    assert!(made <= 1020 + 40 * seconds, "{made} requests for 1000 files");
    for number in 0..1000 {
        world.mount.attributes(world.at(&format!("f{number}")).unwrap()).unwrap();
    }
    // On a slow machine the directory is compared with the bucket meanwhile.
    assert_eq!(store.requests() - before - (store.listings() - listings), made, "a stat costs none");
    for number in 0..1000 {
        let name = Name::Plain(format!("f{number}"));
        store.may_lose("3", world.mount.lookup(world.mount.root(), &name).unwrap().ino.0);
        world.mount.unlink(world.mount.root(), &name).unwrap();
    }
    world.flush();
    let removed = store.requests() - before - made - (store.listings() - listings);
    println!("evidence: far mounts: {made} requests for 1000 files made, {removed} for 1000 removed");
    // Removals wait a second for others, so a slow machine makes more of them.
    let seconds = clock.monotonic().as_secs();
    assert!(removed <= 3 + seconds && store.objects().is_empty(), "{removed} requests, {:?}", store.objects().keys());
}
