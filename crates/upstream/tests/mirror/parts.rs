//! Large files: parts that are sent while they are written, copied parts, and uploads that did not end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::Method;
use margay_volume::posix::*;

use crate::in_bucket;
use crate::store::{Fault, Store};
use crate::world::*;

const PART: usize = 64 << 10;
const PARTS: usize = 30;

fn body(of: u64) -> Vec<u8> {
    (0..(PARTS * PART) as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 16 ^ of) as u8).collect()
}

/// A file of `PARTS` parts that is open, and whose parts, but for the last one perhaps, were sent.
fn sent_ahead(seed: u64) -> (Arc<Store>, World, Cache, Handle) {
    let (store, world, cache) = listed(seed, &[]);
    let handle = world.create("", "big").unwrap();
    write(&world, &handle, 0, &body(0));
    wait("parts", || store.parts().0 >= ((PARTS - 4) * PART) as u64);
    assert!(in_bucket(&store).is_empty(), "nobody sees it");
    (store, world, cache, handle)
}

fn write(world: &World, handle: &Handle, offset: usize, body: &[u8]) {
    for (start, some) in (offset..).step_by(50_000).zip(body.chunks(50_000)) {
        world.mount.write(handle, start as u64, some, false).unwrap();
    }
}

fn there(store: &Store, key: &str) -> Vec<u8> {
    in_bucket(store).remove(key).unwrap().1
}

#[test]
fn a_large_file_is_sent_while_it_is_written() {
    let (store, world, _cache, handle) = sent_ahead(62);
    // It gets its name and its rights at the end.
    world.rename("big", "named", RenameMode::Replace).unwrap();
    let before = store.parts().0;
    world.mount.release(handle).unwrap();
    world.flush();
    assert!(there(&store, "named") == body(0));
    let sent = store.parts().0;
    assert!(sent - before <= 5 * PART as u64 && sent == (PARTS * PART) as u64, "each byte once: {before} {sent}");
    assert_eq!(store.objects().len(), 1, "{:?}", store.objects().keys());
    assert!(store.uploads().is_empty());
    assert!(store.objects()["named"].headers.contains_key("x-amz-meta-mtime"));
}

#[test]
fn a_part_that_is_written_again_is_sent_again() {
    let (store, world, _cache, handle) = sent_ahead(64);
    write(&world, &handle, 3 * PART + 5, &[9; 200_000]);
    world.mount.release(handle).unwrap();
    world.flush();
    let mut wanted = body(0);
    wanted[3 * PART + 5..][..200_000].fill(9);
    assert!(there(&store, "big") == wanted);
}

#[test]
fn a_file_that_is_removed_or_emptied_leaves_no_upload() {
    for is_removed in [true, false] {
        let (store, world, _cache, handle) = sent_ahead(66);
        if is_removed {
            store.may_lose("42", world.at("big").unwrap().0);
            world.mount.unlink(world.mount.root(), &Name::Plain("big".to_owned())).unwrap();
        } else {
            let change = AttributeChange { size: Some(10), ..AttributeChange::default() };
            world.mount.set_attributes(handle.ino(), &change).unwrap();
        }
        world.mount.release(handle).unwrap();
        world.flush();
        wait("no upload", || store.uploads().is_empty());
        let there: Vec<usize> = in_bucket(&store).values().map(|(_, body)| body.len()).collect();
        assert_eq!(there, if is_removed { vec![] } else { vec![10] });
    }
}

#[test]
fn what_a_kill_leaves_is_aborted_and_the_file_is_sent() {
    let (store, world, mut cache, handle) = sent_ahead(68);
    assert_eq!(store.uploads().len(), 1);
    let target = cache.end(world, &store);
    drop(handle);
    let world = cache.open(&target, "");
    world.write("", "big", 0, &body(3)).unwrap();
    world.flush();
    assert!(there(&store, "big") == body(3));
    wait("no upload", || store.uploads().is_empty());
    wait("no temporary object", || store.objects().len() == 1);
}

#[test]
fn parts_that_did_not_change_are_copied() {
    let (store, world, _cache) = listed(70, &[]);
    world.write("", "big", 0, &body(0)).unwrap();
    world.flush();
    assert!(there(&store, "big") == body(0));
    let (sent, copied) = store.parts();
    world.write("", "big", 10 * PART as u64 + 7, &[1; 100]).unwrap();
    world.flush();
    let mut wanted = body(0);
    wanted[10 * PART + 7..][..100].fill(1);
    assert!(there(&store, "big") == wanted);
    let (sent, copied) = (store.parts().0 - sent, store.parts().1 - copied);
    assert_eq!((sent, copied), (PART as u64, PARTS as u64 - 1));
    // Somebody else's object is no source.
    store.put("big", b"theirs");
    world.write("", "big", 0, &[2; 10]).unwrap();
    world.flush();
    assert_eq!(there(&store, "big"), b"theirs");
    wanted[..10].fill(2);
    let kept = in_bucket(&store).into_iter().find(|(key, _)| key.starts_with("big.conflict"));
    assert!(kept.unwrap().1.1 == wanted);
}

#[test]
fn a_large_object_is_renamed_and_exchanged_by_copies_of_parts() {
    let (store, world, _cache) = listed(72, &[]);
    for (name, of) in [("one", 1), ("two", 2)] {
        world.write("", name, 0, &body(of)).unwrap();
    }
    world.flush();
    let sent = store.parts().0;
    // One copy takes a MiB at most.
    store.script(|method, _, headers| {
        let is_copy = *method == Method::PUT && headers.contains_key("x-amz-copy-source");
        (is_copy && !headers.contains_key("x-amz-copy-source-range")).then_some(Fault::Refused(400, "InvalidRequest"))
    });
    world.rename("one", "three", RenameMode::Replace).unwrap();
    world.flush();
    world.rename("three", "two", RenameMode::Exchange).unwrap();
    world.flush();
    assert!(there(&store, "three") == body(2) && there(&store, "two") == body(1));
    assert_eq!((store.parts().0, store.objects().len()), (sent, 2), "nothing is sent again");
}

#[test]
fn an_upload_goes_on_after_a_failure() {
    let (store, world, _cache) = listed(74, &[]);
    let parts = Arc::new(AtomicU32::new(0));
    let asked = Arc::clone(&parts);
    store.script(move |method, key, _| {
        let is_part = *method == Method::PUT && key == "big";
        // More than the client's own tries.
        let number = asked.fetch_add(u32::from(is_part), Ordering::SeqCst);
        (is_part && (20..200).contains(&number)).then_some(Fault::Refused(503, "SlowDown"))
    });
    world.write("", "big", 0, &body(0)).unwrap();
    wait("parts are refused", || parts.load(Ordering::SeqCst) > 40);
    let sent = store.parts().0;
    store.set_reachable(true);
    world.flush();
    assert!(there(&store, "big") == body(0));
    let again = store.parts().0 - sent;
    assert!(again <= ((PARTS - 10) * PART) as u64, "what was sent is not sent again: {sent} and {again}");
}

#[test]
fn a_store_whose_completions_know_no_conditions_is_asked_first() {
    let (store, target) = runtime().block_on(Store::start());
    store.complete_always();
    let cache = Cache::new(76);
    let world = cache.open(&target, "");
    world.shown();
    store.wait_probed();
    store.put("big", b"theirs");
    world.write("", "big", 0, &body(3)).unwrap();
    world.flush();
    assert_eq!(there(&store, "big"), b"theirs");
    let kept = in_bucket(&store).into_iter().find(|(key, _)| key.starts_with("big.conflict"));
    assert!(kept.unwrap().1.1 == body(3));
    assert!(store.uploads().is_empty());
}
