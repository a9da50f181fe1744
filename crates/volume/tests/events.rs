//! Events: one for each change that the rules name, in the commit of the change.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::sync::Arc;

use margay_meta::{Batch, Engine, Write};
use margay_volume::*;
use parking_lot::Mutex;
use world::interposed::Interposed;
use world::shared::{Routed, Two, open, two};
use world::{World, wait};

/// Everything but keys with `quiet` goes to the target `t`.
fn targets(key: &str) -> Vec<&'static str> {
    if key.contains("quiet") { Vec::new() } else { vec!["t"] }
}

fn options(events_max: u64) -> Options {
    Options { events: Some(Arc::new(Routed(targets))), events_max, ..Options::default() }
}

fn world(events_max: u64) -> World {
    let world = World::with_options(64 << 10, options(events_max));
    wait(world.volume.create_bucket("b")).unwrap();
    wait(world.volume.set_bucket_setting("b", Setting::Notification, b"rules")).unwrap();
    world
}

fn put(world: &World, key: &str) -> Result<PutOutcome, Error> {
    put_as(world, key, ETag { digest: [7; 16], parts: 0 })
}

fn put_as(world: &World, key: &str, etag: ETag) -> Result<PutOutcome, Error> {
    let staged = world.stage("b", b"hello");
    wait(world.volume.put_object(PutRequest { bucket: "b", key, etag, ..PutRequest::default() }, staged))
}

fn told(volume: &Volume) -> Vec<(EventKind, String)> {
    let queued = wait(volume.queued_events("t", 1000)).unwrap();
    assert!(queued.is_sorted_by(|before, after| before.number < after.number));
    queued.into_iter().map(|queued| (queued.event.kind, queued.event.key)).collect()
}

fn one(kind: EventKind, key: &str) -> (EventKind, String) {
    (kind, key.to_owned())
}

#[test]
fn each_change_is_told_once_and_survives_a_restart() {
    let world = world(100);
    put(&world, "a/b").unwrap();
    put(&world, "quiet").unwrap();
    let copy = CopyRequest { source_bucket: "b", source_key: "a/b", bucket: "b", key: "c", ..Default::default() };
    wait(world.volume.copy_object(copy)).unwrap();
    wait(world.volume.rename("b", "c", "d", &WriteCondition::None)).unwrap();
    world.delete("b", "a/b").unwrap();
    world.delete("b", "a/b").unwrap();
    let expected = [
        one(EventKind::Put, "a/b"),
        one(EventKind::Copy, "c"),
        one(EventKind::Copy, "d"),
        one(EventKind::Delete, "c"),
        one(EventKind::Delete, "a/b"),
    ];
    assert_eq!(told(&world.volume), expected);
    let again =
        Volume::open(margay_env::Env::real(), Arc::clone(&world.engine), Arc::clone(&world.store), options(100));
    let again = again.unwrap();
    assert_eq!((told(&again), again.events_waiting()), (expected.to_vec(), 5));
    let numbers: Vec<EventNumber> =
        wait(again.queued_events("t", 2)).unwrap().iter().map(|queued| queued.number).collect();
    wait(again.forget_events("t", &numbers, &Lease::alone())).unwrap();
    assert_eq!((told(&again), again.events_waiting()), (expected[2..].to_vec(), 3));
    assert_eq!(wait(again.queued_events("other", 9)).unwrap(), []);
    assert!(again.fsck(FsckOptions::default()).unwrap().findings.is_empty());
}

#[test]
fn an_event_says_what_the_object_was() {
    let world = world(100);
    put(&world, "k").unwrap();
    let queued = wait(world.volume.queued_events("t", 9)).unwrap().remove(0);
    assert_eq!((queued.event.bucket.as_str(), queued.event.size, queued.rule.as_str()), ("b", 5, "r"));
    assert_eq!(queued.event.etag, ETag { digest: [7; 16], parts: 0 });
}

#[test]
fn without_rules_nothing_is_told() {
    let world = world(100);
    wait(world.volume.remove_bucket_setting("b", Setting::Notification)).unwrap();
    put(&world, "k").unwrap();
    assert_eq!(told(&world.volume), []);
}

#[test]
fn when_too_many_wait_changes_are_refused_and_nothing_is_half_done() {
    let world = world(2);
    put(&world, "a").unwrap();
    put(&world, "b").unwrap();
    assert!(matches!(put(&world, "c"), Err(Error::Busy)));
    assert!(matches!(wait(world.volume.head_object("b", "c", &Default::default())), Err(Error::NoSuchKey)));
    put(&world, "quiet").unwrap();
    let numbers: Vec<EventNumber> =
        wait(world.volume.queued_events("t", 1)).unwrap().iter().map(|queued| queued.number).collect();
    wait(world.volume.forget_events("t", &numbers, &Lease::alone())).unwrap();
    put(&world, "c").unwrap();
    assert_eq!(told(&world.volume), [one(EventKind::Put, "b"), one(EventKind::Put, "c")]);
}

#[test]
fn writers_side_by_side_are_told_in_the_order_of_their_commits() {
    let world = world(100_000);
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let world = &world;
            scope.spawn(move || {
                for turn in 0..50u8 {
                    let mut digest = [0; 16];
                    (digest[0], digest[1]) = (writer, turn);
                    put_as(world, "k", ETag { digest, parts: 0 }).unwrap();
                }
            });
        }
    });
    let queued = wait(world.volume.queued_events("t", 1000)).unwrap();
    assert_eq!(queued.len(), 200);
    let current = wait(world.volume.head_object("b", "k", &Default::default())).unwrap().etag;
    assert_eq!(queued.last().unwrap().event.etag, current);
    for writer in 0..4u8 {
        let of_one: Vec<u8> =
            queued.iter().map(|one| one.event.etag.digest).filter(|one| one[0] == writer).map(|one| one[1]).collect();
        assert!(of_one.is_sorted());
    }
}

#[test]
fn an_append_is_told_with_the_whole_size() {
    let world = world(100);
    put(&world, "k").unwrap();
    let append = |bucket: &'static str, offset| {
        let etag = ETag { digest: [8; 16], parts: 0 };
        let condition = WriteCondition::None;
        let request = AppendRequest { bucket, key: "k", offset, etag, encryption: None, condition };
        wait(world.volume.append_object(request, world.stage(bucket, b"more")))
    };
    assert!(matches!(append("b", 4), Err(Error::WrongOffset(5))));
    let grown = append("b", 5).unwrap();
    let queued = wait(world.volume.queued_events("t", 9)).unwrap();
    let told: Vec<_> = queued.iter().map(|queued| (queued.event.kind, queued.event.size, queued.event.etag)).collect();
    assert_eq!(told[1..], [(EventKind::Put, 9, grown.etag)]);
    for versioning in [Versioning::Enabled, Versioning::Suspended] {
        wait(world.volume.set_versioning("b", versioning)).unwrap();
        assert!(matches!(append("b", 9), Err(Error::KeepsVersions)));
    }
}

#[test]
fn versions_and_delete_markers_are_told_with_their_ids() {
    let world = world(100);
    wait(world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
    let made = put(&world, "k").unwrap().version.unwrap();
    let deleted = |request: DeleteRequest<'_>| wait(world.volume.delete_object("b", &request)).unwrap();
    let marker = deleted(DeleteRequest::of("k")).version.unwrap();
    for version in [marker, made, made] {
        deleted(DeleteRequest { version: Some(version), ..DeleteRequest::of("k") });
    }
    let queued = wait(world.volume.queued_events("t", 9)).unwrap();
    let told: Vec<_> = queued.into_iter().map(|queued| (queued.event.kind, queued.event.version)).collect();
    let one = |kind, version: VersionId| (kind, version.to_string());
    assert_eq!(
        told,
        [
            one(EventKind::Put, made),
            one(EventKind::DeleteMarkerCreated, marker),
            one(EventKind::Delete, marker),
            one(EventKind::Delete, made),
        ]
    );
}

#[test]
fn expiry_of_a_kept_object_makes_a_delete_marker() {
    let world = world(100);
    put(&world, "plain").unwrap();
    let modified = |key| wait(world.volume.head_object("b", key, &Default::default())).unwrap().modified;
    let expire = |key, modified| wait(world.volume.expire_object("b", key, modified, &Lease::alone()));
    assert!(expire("plain", modified("plain")).unwrap());
    wait(world.volume.set_versioning("b", Versioning::Enabled)).unwrap();
    let made = put(&world, "k").unwrap().version;
    let judged = modified("k");
    assert!(!expire("k", margay_env::Timestamp(judged.0 - 1)).unwrap());
    assert!(expire("k", judged).unwrap());
    assert!(!expire("k", judged).unwrap());
    let find = |version| wait(world.volume.head_version("b", "k", version, &Default::default()));
    assert!(find(None).is_err() && find(made).is_ok());
    let expected = [
        one(EventKind::Put, "plain"),
        one(EventKind::Expired, "plain"),
        one(EventKind::Put, "k"),
        one(EventKind::ExpiredToMarker, "k"),
    ];
    assert_eq!(told(&world.volume), expected);
}

/// Two processes over one engine, as two volumes; the first one's calls can be interrupted.
fn two_worlds() -> (Arc<Interposed>, World, World) {
    let Two { one, other, interposed, store, folder, .. } = two(false, &options(1000));
    wait(one.set_bucket_setting("b", Setting::Notification, b"rules")).unwrap();
    let world = |volume: Arc<Volume>, folder| {
        let engine = Arc::clone(volume.engine());
        World { volume, engine, store: Arc::clone(&store), folder }
    };
    (interposed, world(one, folder), world(other, tempfile::tempdir().unwrap()))
}

#[test]
fn two_processes_that_change_at_once_lose_no_event() {
    // The other one's change lies whole between two calls of the first one's, each of them.
    for moment in 0..40 {
        let (engine, one, other) = two_worlds();
        put(&one, "warm").unwrap();
        put(&other, "warm").unwrap();
        let between = Arc::clone(&other.volume);
        let staged = other.stage("b", b"hello");
        let beside = move || {
            let request = PutRequest { bucket: "b", key: "b/other", ..PutRequest::default() };
            wait(between.put_object(request, staged)).unwrap();
        };
        engine.arm(moment, Box::new(beside));
        put(&one, "a/one").unwrap();
        if engine.disarm() {
            assert!(moment > 2, "hardly a moment between");
            return;
        }
        let mut keys: Vec<String> = told(&one.volume).into_iter().map(|(_, key)| key).collect();
        keys.sort();
        assert_eq!(keys, ["a/one", "b/other", "warm", "warm"], "at moment {moment}");
        assert_eq!(told(&other.volume), told(&one.volume));
        assert!(one.volume.fsck(FsckOptions::default()).unwrap().clean());
    }
    panic!("a put makes fewer calls");
}

#[test]
fn two_processes_that_change_one_key_in_turns_are_told_in_order() {
    let (_, one, other) = two_worlds();
    for turn in 0..100u8 {
        // One of them queues more for other keys, so that what it counted last says nothing.
        for more in 0..turn % 3 {
            put(&one, &format!("other/{more}")).unwrap();
        }
        let world = if turn % 2 == 0 { &one } else { &other };
        put_as(world, "k", ETag { digest: [turn; 16], parts: 0 }).unwrap();
    }
    let queued = wait(one.volume.queued_events("t", 1000)).unwrap();
    let of_key: Vec<u8> =
        queued.iter().filter(|one| one.event.key == "k").map(|one| one.event.etag.digest[0]).collect();
    assert_eq!(of_key, (0..100).collect::<Vec<u8>>());
}

/// As an earlier version wrote the one queued event, in a volume that had made a million commits and was restored into this one;
/// gives its order.
fn restore(volume: &Volume) -> u64 {
    let queued = wait(volume.queued_events("t", 9)).unwrap().remove(0);
    let order: u64 = 256 * 1_000_000 + 77;
    let key = |end: &[&[u8]]| [&[&b"qt\0\x01"[..]], end].concat().concat();
    let old = key(&[&((queued.number >> 64) as u64).to_be_bytes(), &(queued.number as u64).to_be_bytes()]);
    let value = volume.engine().get(&old).unwrap().value.unwrap().value.to_vec();
    let writes = vec![Write::Delete { key: old }, Write::Put { key: key(&[&order.to_be_bytes()]), value }];
    volume.engine().commit(Batch { writes, ..Batch::default() }).unwrap();
    order
}

#[test]
fn events_of_before_and_of_a_volume_that_counted_further_go_first() {
    let world = world(100);
    put(&world, "old").unwrap();
    let order = restore(&world.volume);
    let reopen = || {
        let again =
            Volume::open(margay_env::Env::real(), Arc::clone(&world.engine), Arc::clone(&world.store), options(100));
        again.unwrap()
    };
    // The second one does not raise what the first one raised.
    let volumes = [reopen(), reopen()];
    for (turn, key) in ["a", "b", "a", "b"].into_iter().enumerate() {
        let staged = world.stage("b", b"hello");
        let etag = ETag { digest: [turn as u8; 16], parts: 0 };
        wait(volumes[turn % 2].put_object(PutRequest { bucket: "b", key, etag, ..PutRequest::default() }, staged))
            .unwrap();
    }
    let queued = wait(volumes[1].queued_events("t", 9)).unwrap();
    let keys: Vec<&str> = queued.iter().map(|one| one.event.key.as_str()).collect();
    assert_eq!(keys, ["old", "a", "b", "a", "b"]);
    assert_eq!(queued[0].number, EventNumber::from(order) << 64);
    let numbers: Vec<EventNumber> = queued.iter().map(|one| one.number).collect();
    wait(volumes[0].forget_events("t", &numbers, &Lease::alone())).unwrap();
    assert_eq!(told(&volumes[0]), []);
}

fn put_turn(volume: &Arc<Volume>, turn: u8) {
    let staged = wait(async {
        let mut upload = volume.begin_upload("b", 1).await.unwrap();
        upload.write(vec![turn].into()).await.unwrap();
        upload.finish().await.unwrap()
    });
    let etag = ETag { digest: [turn; 16], parts: 0 };
    wait(volume.put_object(PutRequest { bucket: "b", key: "k", etag, ..PutRequest::default() }, staged)).unwrap();
}

/// While one process opens a restored volume, at this moment, another one opens it, makes a change, and sends all events or
/// none. False when opening has fewer moments.
fn opened_at_once(sends: bool, at: usize) -> bool {
    let two = two(false, &options(100));
    wait(two.one.set_bucket_setting("b", Setting::Notification, b"rules")).unwrap();
    put_turn(&two.one, 0);
    restore(&two.one);
    let (memory, store, opened) = (Arc::clone(&two.memory), Arc::clone(&two.store), Arc::new(Mutex::new(None)));
    let slot = Arc::clone(&opened);
    let beside = move || {
        let other = open(memory, &store, options(100));
        put_turn(&other, 1);
        if sends {
            let queued = wait(other.queued_events("t", 9)).unwrap();
            let numbers: Vec<EventNumber> = queued.iter().map(|one| one.number).collect();
            wait(other.forget_events("t", &numbers, &Lease::alone())).unwrap();
        }
        *slot.lock() = Some(other);
    };
    two.interposed.arm(at, Box::new(beside));
    let one = open(Arc::clone(&two.interposed) as Arc<dyn Engine>, &two.store, options(100));
    if two.interposed.disarm() {
        return false;
    }
    let other = opened.lock().take().unwrap();
    [(&one, 2), (&other, 3), (&one, 4), (&other, 5)].into_iter().for_each(|(volume, turn)| put_turn(volume, turn));
    let queued = wait(one.queued_events("t", 9)).unwrap();
    let turns: Vec<u8> = queued.iter().map(|one| one.event.etag.digest[0]).collect();
    let first = if sends { 2 } else { 0 };
    assert_eq!(turns, (first..6).collect::<Vec<u8>>(), "moment {at}, the other one sends: {sends}");
    true
}

#[test]
fn two_processes_that_open_a_restored_volume_at_once_count_from_one_place() {
    for sends in [false, true] {
        let moments = (0..).take_while(|at| opened_at_once(sends, *at)).count();
        assert!(moments > 5, "{moments}");
    }
}
