//! What a store refuses of one key is no fault of another, and passes where the answer says so.

use std::time::Duration;

use http::Method;
use margay_volume::posix::*;

use crate::store::{Fault, Lists, Store};
use crate::world::*;
use crate::{in_bucket, keys};

fn fresh(seed: u64, lists: Lists, of: &[(&str, &'static [u8])]) -> (std::sync::Arc<Store>, World) {
    let (store, target) = runtime().block_on(Store::start());
    store.set_lists(lists);
    of.iter().for_each(|(key, body)| store.put(key, body));
    (store, Cache::new(seed).open(&target, ""))
}

fn kind(world: &World, path: &str) -> (FileKind, u32, u64) {
    let found = world.mount.attributes(world.at(path).unwrap()).unwrap();
    (found.kind, found.rights, if found.kind == FileKind::Directory { 0 } else { found.size })
}

/// MinIO answers so for the marker of a name of 248 bytes and more, and AWS for an object with a customer's key.
#[test]
fn a_key_that_may_not_be_asked_for_costs_its_own_attributes() {
    for (status, code) in [(400, "InvalidArgument"), (403, "AccessDenied"), (414, "KeyTooLongError"), (405, "No")] {
        let (store, world) = fresh(91, Lists::Nothing, &[("d/odd/x", b"x"), ("d/file", b"12"), ("d/other", b"123")]);
        store.set_header("d/other", "x-amz-meta-mode", "0100600");
        let is_odd = |key: &str| key == "d/odd/" || key == "d/file";
        store.script(move |method, key, _| {
            (*method == Method::HEAD && is_odd(key)).then_some(Fault::Refused(status, code))
        });
        assert_eq!(kind(&world, "d/other"), (FileKind::Regular, 0o600, 3), "{status}");
        assert_eq!(kind(&world, "d/file"), (FileKind::Regular, 0o644, 2), "{status}");
        assert_eq!(kind(&world, "d/odd"), (FileKind::Directory, 0o755, 0), "{status}");
        assert_eq!(kind(&world, "d/odd/x").2, 1, "{status}");
    }
}

/// Nothing is entered without its attributes because keys have expired, and nobody is told that there was no answer.
#[test]
fn a_listing_that_is_refused_says_so() {
    let of: &[(&str, &[u8])] = &[("file", b"12")];
    let (store, world) = fresh(92, Lists::Nothing, of);
    let errno = |done: Done<_>| match done.map(|_: margay_rows::Ino| ()) {
        Err(PosixError::Failed(margay_volume::Error::Io(error))) => error.raw_os_error(),
        other => panic!("{other:?}"),
    };
    store.script(|method, key, _| {
        (*method == Method::GET && key.is_empty()).then_some(Fault::Refused(403, "AccessDenied"))
    });
    assert_eq!(errno(world.at("file")), Some(13));
    let mut is_expired = false;
    store.script(move |method, _, _| {
        is_expired |= *method == Method::HEAD;
        is_expired.then_some(Fault::Refused(400, "ExpiredToken"))
    });
    assert_eq!(errno(world.at("file")), Some(13));
    store.script(|_, _, _| None);
    store.set_header("file", "x-amz-meta-mode", "0100600");
    assert_eq!(kind(&world, "file"), (FileKind::Regular, 0o600, 2));
}

#[test]
fn bytes_that_did_not_arrive_whole_are_sent_again_soon() {
    for code in ["BadDigest", "IncompleteBody", "RequestTimeout", "XAmzContentSHA256Mismatch"] {
        let (store, world, cache) = listed(93, &[]);
        store.script(move |method, key, _| (*method == Method::PUT && key == "a").then_some(Fault::Refused(400, code)));
        world.write("", "a", 0, b"content").unwrap();
        cache.clock().jump(Duration::from_secs(5));
        wait("it has failed", || world.far.backlog().failing > 0);
        let failure = world.far.backlog().failures.remove(0);
        assert!(!failure.is_refused && failure.again_after <= Duration::from_secs(60), "{failure:?}");
        store.script(|_, _, _| None);
        cache.clock().jump(Duration::from_secs(60));
        world.flush();
        assert_eq!(keys(&in_bucket(&store)), ["a 644 7"]);
    }
}
