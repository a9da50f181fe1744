//! What a process remembers of the way to a key counts only in a commit that asserts it.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::posix::*;
use margay_volume::*;
use world::actions::{self, Action, Given, lines};
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
    let given = Given { upload: String::new(), versions: Vec::new() };
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
    let expired = wait(one.expire_version("b", ("a/x", id, judged.unwrap()), DueVersion::LoneMarker));
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
