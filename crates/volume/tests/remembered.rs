//! What a process remembers of the way to a key counts only in a commit that asserts it, and what a read found only while
//! nothing went that it led to.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use world::actions::{self, Action, Given, lines};
use world::interposed::{Hook, Interposed};
use world::maintenance::ALL;
use world::tree::{NEW, plain};
use world::*;

/// Two processes over one store, with a bucket.
fn sides(folder: &std::path::Path) -> [Arc<Volume>; 2] {
    let store = Store::open(Env::real(), segment_options(folder)).unwrap();
    let engine: Arc<dyn Engine> = Arc::new(Memory::with_payloads(Arc::clone(&store), 4096));
    let open = || Volume::open(Env::real(), Arc::clone(&engine), Arc::clone(&store), Options::default()).unwrap();
    let sides = [open(), open()];
    wait(sides[0].create_bucket("b")).unwrap();
    sides
}

fn run(side: &Volume, action: Action) {
    let given = Given::default();
    actions::run(side, &given, action);
}

#[test]
fn an_object_whose_directory_was_renamed_is_not_changed_under_its_old_key() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = sides(folder.path());
    let tag = |text: &str| {
        wait(one.change_documents("b", "a/x", |mut documents| {
            documents.insert(Document::Acl, text.as_bytes().to_vec().into());
            Ok(documents)
        }))
    };
    run(&one, Action::Put("a/x", 200));
    tag("first").unwrap();
    wait(other.rename("b", "a/", "c/", &WriteCondition::None)).unwrap();
    assert!(matches!(tag("second"), Err(Error::NoSuchKey)));
    let found = wait(other.head_object("b", "c/x", &ReadCondition::default())).unwrap();
    assert_eq!(found.documents.get(&Document::Acl).map(|text| text.as_ref()), Some(&b"first"[..]));
}

#[test]
fn a_directory_that_was_renamed_takes_no_attributes_under_its_old_name() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = sides(folder.path());
    let tree = |side: &Arc<Volume>| Mount::open(Arc::clone(side), "b", "", MountOptions::default()).unwrap();
    let (here, there) = (tree(&one), tree(&other));
    let made = here.make_directory(here.root(), &plain("a"), &NEW).unwrap();
    let adopt = |value: &str| {
        let xattrs = [(b"user.x".to_vec(), value.as_bytes().to_vec())];
        wait(one.adopt_attributes("b", "a/", made.ino, &xattrs)).unwrap();
    };
    adopt("first");
    wait(other.rename("b", "a/", "c/", &WriteCondition::None)).unwrap();
    adopt("second");
    assert!(matches!(there.lookup(there.root(), &plain("a")), Err(PosixError::NotFound)));
    assert_eq!(there.lookup(there.root(), &plain("c")).unwrap().ino, made.ino);
}

#[test]
fn a_delete_marker_below_an_object_in_a_new_directory_is_not_the_only_one() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = sides(folder.path());
    for action in [Action::Set(Versioning::Enabled), Action::Put("a/y", 9), Action::Delete("a/x")] {
        run(&one, action);
    }
    let (_, id, ..) = lines(&one).into_iter().find(|(key, ..)| key == "a/x").unwrap();
    let request = ListVersionsRequest { bucket: "b", prefix: "a/x", delimiter: None, after: None, max: 10 };
    let mut judged = None;
    wait(one.list_versions(&request, &mut |item| {
        if let VersionItem::DeleteMarker { modified, .. } = item {
            judged = Some(modified);
        }
    }))
    .unwrap();
    // The directory goes with its last object, and comes anew.
    run(&other, Action::Delete("a/y"));
    run(&other, Action::Put("a/x", 200));
    let expired = wait(one.expire_version("b", ("a/x", id, judged.unwrap()), DueVersion::LoneMarker, &Lease::alone()));
    assert!(matches!(expired, Ok(false)), "{expired:?}");
    assert_eq!(lines(&other).iter().filter(|(key, ..)| key == "a/x").count(), 2);
}

#[test]
fn a_file_is_retained_as_its_bucket_says_when_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = sides(folder.path());
    let days = |days| DefaultRetention { mode: RetentionMode::Compliance, period: RetentionPeriod::Days(days) };
    wait(one.set_versioning("b", Versioning::Enabled)).unwrap();
    wait(one.set_object_lock("b", Some(days(1)))).unwrap();
    let mount = Mount::open(Arc::clone(&one), "b", "", MountOptions::default()).unwrap();
    let retention = |name: &str, changed: bool| {
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (_, handle) = mount.create(mount.root(), &plain(name), &NEW, flags).unwrap();
        mount.write(&handle, 0, b"bytes", false).unwrap();
        mount.sync(&handle).unwrap();
        if changed {
            wait(other.set_object_lock("b", Some(days(4000)))).unwrap();
        }
        mount.release(handle).unwrap();
        let found = wait(other.head_object("b", name, &ReadCondition::default())).unwrap();
        // Its last eight bytes are the time, in nanoseconds.
        let time: [u8; 8] = found.documents[&Document::Retention].last_chunk().copied().unwrap();
        i64::from_be_bytes(time) / (86_400 * 1_000_000_000)
    };
    let (before, after) = (retention("before", false), retention("after", true));
    assert!((3998..=4000).contains(&(after - before)), "{before} {after}");
}

/// A volume over an engine that lets something else run behind one of its answers, with a bucket.
fn interposed(folder: &std::path::Path) -> (Arc<Interposed>, Arc<Volume>) {
    let store = Store::open(Env::real(), segment_options(folder)).unwrap();
    let engine = Arc::new(Interposed::on_both_sides(Arc::new(Memory::with_payloads(Arc::clone(&store), 0))));
    let below: Arc<dyn Engine> = Arc::<Interposed>::clone(&engine);
    let volume = Volume::open(Env::real(), below, store, Options::default()).unwrap();
    wait(volume.create_bucket("b")).unwrap();
    (engine, volume)
}

fn put(volume: &Volume, key: &str, body: &[u8]) {
    let mut upload = wait(volume.begin_upload("b", body.len() as u64)).unwrap();
    wait(upload.write(body.to_vec().into())).unwrap();
    let staged = wait(upload.finish()).unwrap();
    let request = PutRequest { bucket: "b", key, etag: etag_of(body), ..PutRequest::default() };
    wait(volume.put_object(request, staged)).unwrap();
}

#[test]
fn a_reader_whose_bytes_went_before_it_held_them_reads_its_row_again() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, volume) = interposed(folder.path());
    let (old, new, stays) = (body_of(1, 20_000), body_of(2, 300), body_of(3, 9000));
    put(&volume, "k", &old);
    put(&volume, "stays", &stays);
    let get = || read_all(&wait(volume.get_object("b", "k", &ReadCondition::default())).unwrap());
    assert!(get() == old, "the way to the key is kept from here on");
    let punched = Arc::new(AtomicU64::new(0));
    let (beside, body, told) = (Arc::clone(&volume), new.clone(), Arc::clone(&punched));
    let hook: Hook = Box::new(move || {
        put(&beside, "k", &body);
        // Nothing is moved, so the segment stays, with a hole in it.
        let budget = ReclaimBudget { live_percent_min: 0, ..ALL };
        let done = beside.reclaim_once(&budget, &KeepLogs).unwrap();
        told.store(done.punched_bytes, Ordering::SeqCst);
    });
    // Behind the one read that a GET makes, before it pins what that found.
    engine.arm(1, hook);
    assert!(get() == new);
    assert!(punched.load(Ordering::SeqCst) > 0, "the old bytes went meanwhile");
}

#[test]
fn a_file_that_is_renamed_while_it_is_looked_up_is_not_remembered_at_its_old_name() {
    let folder = tempfile::tempdir().unwrap();
    let (engine, volume) = interposed(folder.path());
    put(&volume, "file", b"body");
    let mount = Mount::open(Arc::clone(&volume), "b", "", MountOptions::default()).unwrap();
    let beside = Arc::clone(&volume);
    let hook: Hook = Box::new(move || wait(beside.rename("b", "file", "to", &WriteCondition::None)).unwrap());
    engine.arm(1, hook);
    assert!(matches!(mount.lookup(mount.root(), &plain("file")), Err(PosixError::NotFound)));
    let found = mount.lookup(mount.root(), &plain("to")).unwrap();
    assert_eq!(mount.attributes(found.ino).unwrap().size, 4);
}
