//! What one process remembers is not stale once its follower has run behind the commits of another.
//!
//! Each test sees the stale fact first: without the follower it would stay.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use margay_env::Timestamp;
use margay_meta::Engine;
use margay_volume::posix::*;
use margay_volume::*;
use world::shared::{engine, open, pair};
use world::tree::{NEW, plain};
use world::*;

fn follow(volume: &Volume) -> Followed {
    let mut all = Followed::default();
    loop {
        let followed = volume.follow_once().unwrap();
        all = Followed {
            commits: all.commits + followed.commits,
            everything: all.everything | followed.everything,
            is_newest: followed.is_newest,
        };
        if followed.is_newest {
            return all;
        }
    }
}

fn put(volume: &Arc<Volume>, key: &str, len: usize) -> Result<PutOutcome, Error> {
    let body = body_of(1, len);
    let staged = wait(async {
        let mut upload = volume.begin_upload("b", len as u64).await?;
        upload.write(body.clone().into()).await?;
        upload.finish().await
    })?;
    wait(volume.put_object(PutRequest { bucket: "b", key, etag: etag_of(&body), ..PutRequest::default() }, staged))
}

/// All notices that wait.
fn notices(watcher: &Watcher) -> Vec<Notice> {
    watcher.close();
    std::iter::from_fn(|| watcher.next()).collect()
}

#[test]
fn a_kernel_is_told_of_what_another_process_changed_and_only_of_that() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    follow(&other);
    let mount = Mount::open(Arc::clone(&other), "b", "", MountOptions::default()).unwrap();
    mount.make_directory(mount.root(), &plain("d"), &NEW).unwrap();
    mount.lookup(mount.root(), &plain("d")).unwrap();
    assert_eq!(follow(&other).commits, 0, "its own commits are none of its business");
    let watcher = mount.watch();
    put(&one, "d/x", 200).unwrap();
    assert_eq!(notices(&watcher), [], "nobody has told it yet");
    let watcher = mount.watch();
    assert_eq!(follow(&other), Followed { commits: 1, everything: false, is_newest: true });
    let told: Vec<String> = notices(&watcher).into_iter().flat_map(|one| one.entries).map(|(_, name)| name).collect();
    assert_eq!(told, ["x"]);
    assert_eq!(follow(&other).commits, 0);
}

#[test]
fn a_quota_of_another_process_holds_with_the_bucket_s_row_and_for_open_files_behind_the_follower() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    let set = |objects, bytes| wait(one.set_quota("b", Quota { objects, bytes })).unwrap();
    let over = |done: Result<PutOutcome, Error>| assert!(matches!(done, Err(Error::QuotaExceeded)), "{done:?}");
    put(&other, "d/x", 10).unwrap();
    // What is cached is of another version of the row, which each commit and each refusal asserts.
    set(Some(1), None);
    over(put(&other, "d/y", 10));
    set(None, Some(25));
    put(&other, "d/y", 10).unwrap();
    over(put(&other, "d/z", 10));
    set(None, None);
    put(&other, "d/z", 10).unwrap();
    assert_eq!(wait(other.usage("b")).unwrap().objects, 3);

    let mount = Mount::open(Arc::clone(&other), "b", "", MountOptions::default()).unwrap();
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let is_over = |error: PosixError| matches!(error, PosixError::Failed(Error::QuotaExceeded));
    let (_, handle) = mount.create(mount.root(), &plain("file"), &NEW, flags).unwrap();
    mount.write(&handle, 0, b"0123456789", false).unwrap();
    set(Some(4), Some(35));
    assert!(is_over(mount.create(mount.root(), &plain("another"), &NEW, flags).map(drop).unwrap_err()));
    set(None, None);
    follow(&other);
    mount.write(&handle, 10, b"0123456789", false).unwrap();
    set(None, Some(35));
    mount.write(&handle, 20, b"0123456789", false).expect("the quota that it knows is stale");
    follow(&other);
    assert!(is_over(mount.write(&handle, 30, b"0123456789", false).unwrap_err()));
    mount.release(handle).unwrap();
}

#[test]
fn kept_attributes_of_a_directory_are_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, store) = engine(folder.path(), 1000);
    let one = open(Arc::clone(&memory) as Arc<dyn Engine>, &store, Options::default());
    wait(one.create_bucket("b")).unwrap();
    let distant = Arc::new(far(memory));
    let other = open(distant, &store, Options::default());
    let mount = Mount::open(Arc::clone(&other), "b", "", MountOptions::default()).unwrap();
    let made = mount.make_directory(mount.root(), &plain("d"), &NEW).unwrap().ino;
    let look = || {
        let found = mount.attributes(made).unwrap();
        (found.modified, found.links)
    };
    let first: (Timestamp, _) = look();
    assert_eq!(look(), first);
    std::thread::sleep(std::time::Duration::from_millis(2));
    wait(one.make_directory("b", "d/e/")).unwrap();
    assert_eq!(look(), first, "stale");
    follow(&other);
    assert!(look().0 > first.0);
}

#[test]
fn a_bucket_that_keeps_versions_since_then_keeps_them_here_too() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    put(&other, "a/x", 10).unwrap();
    wait(one.set_versioning("b", Versioning::Enabled)).unwrap();
    follow(&other);
    assert!(put(&other, "a/x", 11).unwrap().version.is_some());
    wait(one.rename("b", "a/", "c/", &WriteCondition::None)).unwrap_err();
    let mount = Mount::open(Arc::clone(&other), "b", "", MountOptions::default()).unwrap();
    let directory = mount.lookup(mount.root(), &plain("a")).unwrap().ino;
    mount.unlink(directory, &plain("x")).unwrap();
    assert!(wait(one.head_version("b", "a/x", None, &ReadCondition::default())).is_err());
}

#[test]
fn a_change_of_identities_and_a_queued_event_wake_whoever_waits() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    let mut changed = pin!(other.identities_changed());
    let mut context = Context::from_waker(Waker::noop());
    let change = IdentityChange { kind: 1, name: "n".to_owned(), content: Some(vec![1]) };
    wait(one.change_identities(0, &[change])).unwrap();
    assert!(changed.as_mut().poll(&mut context).is_pending());
    follow(&other);
    assert!(changed.as_mut().poll(&mut context).is_ready());
    let mut waiting = pin!(other.wait_to_follow());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    put(&one, "x", 10).unwrap();
    assert!(waiting.as_mut().poll(&mut context).is_ready());
}

#[test]
fn a_follower_that_fell_behind_forgets_everything() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 5, &Options::default());
    follow(&other);
    let mount = Mount::open(Arc::clone(&other), "b", "", MountOptions::default()).unwrap();
    let mut changed = pin!(other.identities_changed());
    let watcher = mount.watch();
    (0..10).for_each(|number| drop(put(&one, &format!("k{number}"), 10)));
    wait(one.set_quota("b", Quota { objects: Some(3), bytes: None })).unwrap();
    let followed = follow(&other);
    assert!(followed.everything, "{followed:?}");
    assert!(notices(&watcher).iter().any(|notice| notice.everything));
    assert!(matches!(put(&other, "still more", 10), Err(Error::QuotaExceeded)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(changed.as_mut().poll(&mut context).is_ready());
    assert!(wait(one.delete_object("b", &DeleteRequest::of("k0"))).unwrap().removed);
    assert_eq!(follow(&other), Followed { commits: 1, everything: false, is_newest: true }, "and goes on");
}
