//! What the cache keeps, and what it lets go.

use std::sync::Arc;
use std::time::Duration;

use margay_upstream::Far;
use margay_volume::posix::*;

use crate::store::Store;
use crate::world::*;

const LARGE: usize = 3 << 20;

fn body() -> Vec<u8> {
    (0..LARGE).map(|at| (at * 7 + at / 1000) as u8).collect()
}

fn written(seed: u64) -> (Arc<Store>, World, Cache) {
    let (store, target) = runtime().block_on(Store::start());
    let cache = Cache::new(seed);
    let world = cache.open(&target, "");
    world.write("", "file", 0, &body()).unwrap();
    (store, world, cache)
}

fn evict(world: &World) -> u64 {
    world.far.evict_sent(u64::MAX).unwrap()
}

fn own_bytes(world: &World) -> u64 {
    world.mount.volume().own_bytes().unwrap()
}

/// Blocks are written to disk after the reader has them.
fn wait_kept(far: &Far) {
    wait("blocks on disk", || far.fetched_bytes() >= LARGE as u64);
}

#[test]
fn what_was_sent_is_let_go_and_read_again_once() {
    let (store, world, mut cache) = written(41);
    assert_eq!((evict(&world), own_bytes(&world)), (0, LARGE as u64), "it is only here");
    world.flush();
    assert_eq!((evict(&world), own_bytes(&world)), (LARGE as u64, 0));
    assert_eq!(evict(&world), 0, "once");
    world.reclaim();
    let sent = store.requests();
    assert!(world.shown()["file"].1 == body());
    let fetched = store.requests() - sent;
    assert!((1..=4).contains(&fetched), "a request for each MiB at most, and perhaps a listing: {fetched}");
    wait_kept(&world.far);
    // The next process finds the blocks on disk.
    let target = cache.end(world, &store);
    let world = cache.open(&target, "");
    store.wait_probed();
    store.script(|method, key, _| {
        assert!(*method != http::Method::GET || key.is_empty(), "{key} is read again");
        None
    });
    assert!(world.shown()["file"].1 == body());
}

#[test]
fn a_file_that_is_open_or_dirty_keeps_its_bytes() {
    let (_store, world, _cache) = written(47);
    world.flush();
    let handle = world.create("", "file").unwrap();
    assert_eq!(evict(&world), 0, "it is open");
    world.mount.release(handle).unwrap();
    world.rename("file", "other", RenameMode::Replace).unwrap();
    assert_eq!(evict(&world), 0, "it has another name in the bucket");
    world.flush();
    assert_eq!(evict(&world), LARGE as u64);
    // What is written into it afterwards has all of it.
    world.write("", "other", 5, b"new").unwrap();
    world.flush();
    let mut wanted = body();
    wanted[5..8].copy_from_slice(b"new");
    assert!(world.shown()["other"].1 == wanted);
    assert_eq!(evict(&world), LARGE as u64, "again");
    assert!(world.shown()["other"].1 == wanted, "blocks of the older content are not its bytes");
}

#[test]
fn the_cache_stays_within_its_size() {
    let (_store, world, _cache) = written(43);
    for number in 0..6 {
        world.write("", &format!("f{number}"), 0, &body()).unwrap();
        // What is not sent is limited.
        world.flush();
    }
    // Its half is 16 MiB.
    wait("within its size", || own_bytes(&world) <= 16 << 20);
    assert!(own_bytes(&world) > 0, "no more than is needed");
}

#[test]
fn what_is_not_sent_is_limited_and_writers_wait_while_something_is_sent() {
    let (store, world, cache) = written(44);
    world.flush();
    store.set_reachable(false);
    let write = |number: usize| world.write("", &format!("f{number}"), 0, &body());
    let taken = (0..20).take_while(|number| write(*number).is_ok()).count();
    // A write does not wait for the lock of what is counted, so a few more may pass.
    assert!((6..20).contains(&taken), "half of the cache is 16 MiB, and a file has 3: {taken}");
    let volume = Arc::clone(world.mount.volume());
    let waiting = std::thread::spawn(move || volume.make_room());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "it waits for the bucket");
    cache.clock().jump(Duration::from_secs(61));
    assert!(!waiting.join().unwrap(), "nothing was sent for a minute");
    cache.clock().jump(Duration::from_secs(10));
    assert!(!world.mount.volume().make_room(), "at once, since nothing was sent meanwhile");
    store.set_reachable(true);
    // Sending is tried again by itself.
    wait("what is not sent becomes less", || {
        cache.clock().jump(Duration::from_secs(5));
        world.mount.volume().make_room()
    });
    write(20).unwrap();
    world.flush();
}
