//! Between any two calls of an operation another process does what the operation must notice when it commits.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::cell::Cell;
use std::sync::Arc;

use margay_env::Env;
use margay_meta::Engine;
use margay_meta::memory::Memory;
use margay_segment::{Store, StoreNumber};
use margay_volume::posix::*;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::{self, Action, Given, lines};
use world::interposed::Interposed;
use world::maintenance::ALL;
use world::shared::{Two, engine, fence, open, two};
use world::tree::{NEW, plain};
use world::*;

fn run(volume: &Volume, action: Action) {
    actions::run(volume, &Given::default(), action);
}

/// Runs `act` by one process, at every of its moments `beside` by the other one, and `judge` with what both answered.
fn at_every_moment<S, A, B: Send + 'static>(
    shared: bool,
    prepare: impl Fn(&Two) -> S,
    act: impl Fn(&Two, S) -> A,
    beside: impl Fn(&Volume, &Volume) -> B + Clone + Send + 'static,
    judge: impl Fn(&Two, usize, A, B),
) {
    for at in 0.. {
        let two = two(shared, &Options::default());
        let prepared = prepare(&two);
        let found = Arc::new(Mutex::new(None));
        let (noted, beside) = (Arc::clone(&found), beside.clone());
        let (one, other) = (Arc::clone(&two.one), Arc::clone(&two.other));
        two.interposed.arm(at, Box::new(move || *noted.lock() = Some(beside(&one, &other))));
        let acted = act(&two, prepared);
        if two.interposed.disarm() {
            assert!(at > 1, "hardly a moment between");
            return;
        }
        let found = found.lock().take().unwrap();
        judge(&two, at, acted, found);
    }
}

/// Deletes an object and removes its bytes.
fn remove(_: &Volume, other: &Volume) {
    run(other, Action::Delete("source"));
    other.reclaim_once(&ALL, &KeepLogs).unwrap();
}

fn is_clean(two: &Two, at: usize) {
    let report = two.other.fsck(FsckOptions::default()).unwrap();
    assert!(report.clean(), "moment {at}: {report:#?}");
}

#[test]
fn a_part_that_shares_an_objects_bytes_is_never_of_bytes_that_went() {
    at_every_moment(
        false,
        |two| {
            run(&two.one, Action::Put("source", 60_000));
            wait(two.one.create_multipart("b", "to", Headers::new(), Documents::new())).unwrap().upload
        },
        |two, upload| {
            let source = ("b", "source", None);
            wait(two.one.copy_part("b", "to", &upload, 1, source, None, &ReadCondition::default()))
        },
        remove,
        |two, at, done, ()| {
            assert!(matches!(done, Ok(_) | Err(Error::NoSuchKey)), "moment {at}: {done:?}");
            is_clean(two, at);
        },
    );
}

/// A small body is copied: its ETag and its bytes are of the same object.
#[test]
fn a_part_copied_while_its_source_is_replaced_is_of_either() {
    let is_new = [Cell::new(0), Cell::new(0)];
    at_every_moment(
        false,
        |two| {
            run(&two.one, Action::Put("source", 100));
            wait(two.one.create_multipart("b", "to", Headers::new(), Documents::new())).unwrap().upload
        },
        |two, upload| {
            let (source, all) = (("b", "source", None), ReadCondition::default());
            let part = wait(two.one.copy_part("b", "to", &upload, 1, source, None, &all)).unwrap();
            assert_eq!(part.etag, etag_of(&body_of(part.size as usize, part.size as usize)));
            let (parts, none) = ([PartChoice { number: 1, etag: part.etag }], WriteCondition::None);
            wait(two.one.complete_multipart("b", "to", &upload, &parts, Headers::new(), &none)).unwrap();
            read_all(&wait(two.one.get_object("b", "to", &all)).unwrap())
        },
        |_, other| run(other, Action::Put("source", 90)),
        |two, at, body, ()| {
            assert!(body == body_of(body.len(), body.len()), "moment {at}");
            let is_newer = &is_new[usize::from(body.len() == 90)];
            is_newer.set(is_newer.get() + 1);
            is_clean(two, at);
        },
    );
    assert!(is_new.iter().all(|count| count.get() > 0), "{is_new:?}");
}

#[test]
fn a_part_that_comes_while_its_upload_is_completed_goes_with_it() {
    let part = |volume: &Volume, upload: &str, number| {
        let body = body_of(3, 9000);
        let staged = wait(async {
            let mut upload = volume.begin_upload("b", body.len() as u64).await.unwrap();
            upload.write(body.clone().into()).await.unwrap();
            upload.finish().await.unwrap()
        });
        wait(volume.put_part("b", "to", upload, number, etag_of(&body), Headers::new(), staged))
    };
    at_every_moment(
        false,
        |two| {
            let upload = wait(two.one.create_multipart("b", "to", Headers::new(), Documents::new())).unwrap().upload;
            part(&two.one, &upload, 1).unwrap();
            upload
        },
        |two, upload| {
            let chosen = [PartChoice { number: 1, etag: etag_of(&body_of(3, 9000)) }];
            wait(two.one.complete_multipart("b", "to", &upload, &chosen, Headers::new(), &WriteCondition::None))
                .unwrap()
        },
        move |_, other| {
            let (uploads, _) = wait(other.list_multipart("b", "", None, 10)).unwrap();
            uploads.first().is_some_and(|found| part(other, &found.upload, 2).is_ok())
        },
        |two, at, _, _| {
            // fsck finds parts of no upload.
            assert!(wait(two.other.list_multipart("b", "", None, 10)).unwrap().0.is_empty());
            is_clean(two, at);
        },
    );
}

#[test]
fn a_file_that_shares_another_ones_bytes_is_never_of_bytes_that_went() {
    const BOTH: OpenFlags =
        OpenFlags { read: true, write: true, append: false, truncate: false, exclusive: false, kill_privileges: false };
    at_every_moment(
        false,
        |two| {
            run(&two.one, Action::Put("source", 60_000));
            let mount = Mount::open(Arc::clone(&two.one), "b", "", MountOptions::default()).unwrap();
            let source = mount.lookup(mount.root(), &plain("source")).unwrap().ino;
            let from = mount.open_file(source, BOTH).unwrap();
            let (_, to) = mount.create(mount.root(), &plain("to"), &NEW, BOTH).unwrap();
            assert_eq!(mount.copy_range(&from, 0, &to, 0, 60_000, false).unwrap(), 60_000);
            (mount, from, to)
        },
        |_, (mount, from, to)| {
            drop(from);
            mount.sync(&to).map(|()| mount.read(&to, 0, 60_000).unwrap())
        },
        remove,
        |two, at, done, ()| {
            assert!(done.unwrap() == body_of(60_000, 60_000), "moment {at}");
            is_clean(two, at);
        },
    );
}

fn prints(byte: u8) -> Fingerprints {
    Fingerprints { salt: [byte; 16], of_secrets: Vec::new() }
}

fn keep(volume: &Volume, byte: u8) {
    let known = volume.key_fingerprints(KeyFile::Root).unwrap();
    volume.keep_key_fingerprints(KeyFile::Root, &known, &prints(byte)).unwrap();
}

fn kept(two: &Two) -> Option<Fingerprints> {
    two.other.key_fingerprints(KeyFile::Root).unwrap().fingerprints
}

#[test]
fn fingerprints_that_another_server_kept_meanwhile_stay() {
    for is_known in [false, true] {
        let two = two(false, &Options::default());
        if is_known {
            keep(&two.one, 1);
        }
        let known = two.one.key_fingerprints(KeyFile::Root).unwrap();
        keep(&two.other, 2);
        let late = two.one.keep_key_fingerprints(KeyFile::Root, &known, &prints(3));
        assert!(matches!(late, Err(Error::PreconditionFailed)), "{late:?}");
        assert_eq!(kept(&two), Some(prints(2)));
    }
    at_every_moment(
        false,
        |two| keep(&two.one, 1),
        |two, ()| two.one.forget_key_fingerprints(KeyFile::Root),
        |_, other| keep(other, 2),
        |two, at, done, ()| match done {
            Ok(true) => assert!(at == 0 || kept(two) == Some(prints(2)), "moment {at}"),
            late => {
                assert!(matches!(late, Err(Error::PreconditionFailed)), "moment {at}: {late:?}");
                assert_eq!(kept(two), Some(prints(2)));
            }
        },
    );
}

#[test]
fn of_two_sessions_that_begin_at_once_each_has_a_number() {
    let refused = Cell::new(0);
    at_every_moment(
        true,
        |two| [&two.one, &two.other].map(|volume| volume.close_session().unwrap()),
        // Both are of one store here, whose row names the newest session.
        |two, _| match two.one.open_session() {
            Err(Error::Busy) => {
                refused.set(refused.get() + 1);
                two.one.open_session().unwrap();
            }
            done => done.unwrap(),
        },
        |_, other| other.open_session().unwrap(),
        |two, at, (), ()| {
            assert!(two.one.session().is_some() && two.one.session() != two.other.session(), "moment {at}");
            assert_eq!(two.one.beat().unwrap(), Beat { others: 1, fenced: Vec::new() });
            assert_eq!(two.other.beat().unwrap(), Beat { others: 1, fenced: Vec::new() });
        },
    );
    assert!(refused.get() > 0, "the row of the store was taken from another session");
}

#[test]
fn a_session_that_was_taken_for_dead_attaches_no_folder() {
    let mut refused = 0;
    for at in 0.. {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (memory, store) = engine(folders[0].path(), 1000);
        let other = open(Arc::clone(&memory) as Arc<dyn Engine>, &store, Options::default());
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let fenced_at = Arc::new(Mutex::new(None));
        let (noted, by, rows) = (Arc::clone(&fenced_at), other, Arc::clone(&memory));
        let beside = move || {
            let fenced = (0..=STILL_BEATS_MAX).any(|_| !by.beat().unwrap().fenced.is_empty());
            *noted.lock() = fenced.then(|| rows.last_cursor());
        };
        interposed.arm(at, Box::new(beside));
        let below = Arc::clone(&interposed) as Arc<dyn Engine>;
        let new = Store::open(Env::real(), segment_options(folders[1].path())).unwrap();
        let opened = Volume::open(Env::real(), below, new, Options::default());
        if interposed.disarm() {
            break;
        }
        if let Some(fenced_at) = *fenced_at.lock() {
            match opened {
                Ok(_) => assert_eq!(memory.last_cursor(), fenced_at, "moment {at}: committed behind the fencing"),
                Err(_) => {
                    let (start, end) = margay_rows::key::all_stores();
                    assert_eq!(memory.rows().range(start..end).count(), 1, "moment {at}: attached all the same");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn a_store_that_is_detached_opens_no_session() {
    let refused = [Cell::new(0), Cell::new(0)];
    at_every_moment(
        true,
        |two| [&two.one, &two.other].map(|volume| volume.close_session().unwrap()),
        |two, _| two.one.open_session(),
        |_, other| {
            change_copies(&**other.engine(), &|copies| copies.detached.push(StoreNumber(0))).unwrap();
            other.engine().last_cursor()
        },
        |two, at, opened, detached_at| match opened {
            Ok(()) => assert_eq!(two.memory.last_cursor(), detached_at, "moment {at}: it goes on behind the detaching"),
            Err(error) => {
                let is_known = usize::from(matches!(error, Error::Fenced));
                assert!(is_known == 1 || matches!(error, Error::Busy), "moment {at}: {error:?}");
                refused[is_known].set(refused[is_known].get() + 1);
                assert!(matches!(two.one.open_session(), Err(Error::Fenced)), "moment {at}");
                change_copies(&*two.memory, &|copies| copies.detached.clear()).unwrap();
                two.one.open_session().unwrap();
            }
        },
    );
    assert!(refused.iter().all(|count| count.get() > 0), "{refused:?}");
}

#[test]
fn a_store_that_is_detached_attaches_no_folder() {
    let mut refused = 0;
    for at in 0.. {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let (memory, store) = engine(folders[0].path(), 1000);
        let _other = open(Arc::clone(&memory) as Arc<dyn Engine>, &store, Options::default());
        let folder = || Store::open(Env::real(), segment_options(folders[1].path())).unwrap();
        let first = open(Arc::clone(&memory) as Arc<dyn Engine>, &folder(), Options::default());
        first.close_session().unwrap();
        drop(first);
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let (row, detached) = (Arc::new(Mutex::new(None)), Arc::clone(&memory));
        let version =
            |rows: &Memory| rows.get(&margay_rows::key::store(StoreNumber(1))).unwrap().value.unwrap().version;
        let noted = Arc::clone(&row);
        let beside = move || {
            change_copies(&*detached, &|copies| copies.detached.push(StoreNumber(1))).unwrap();
            *noted.lock() = Some(version(&detached));
        };
        interposed.arm(at, Box::new(beside));
        let opened =
            Volume::open(Env::real(), Arc::clone(&interposed) as Arc<dyn Engine>, folder(), Options::default());
        if interposed.disarm() {
            break;
        }
        assert_eq!(*row.lock(), Some(version(&memory)), "moment {at}: attached behind the detaching");
        if let Err(error) = opened {
            assert!(matches!(error, OpenError::StoreDetached { number: 1 }), "moment {at}: {error}");
            refused += 1;
        }
    }
    assert!(refused > 1);
}

#[test]
fn a_session_that_was_taken_for_dead_takes_no_lease() {
    at_every_moment(
        true,
        |_| (),
        |two, ()| wait(two.one.lease("job")),
        |one, other| {
            fence(other, one);
            one.engine().last_cursor()
        },
        |two, at, done, fenced_at| {
            assert_eq!(two.memory.last_cursor(), fenced_at, "moment {at}: {done:?}");
            assert!(wait(two.other.lease("job")).unwrap().is_some(), "moment {at}");
        },
    );
}

#[test]
fn expiry_by_a_holder_whose_lease_went_removes_no_version() {
    at_every_moment(
        true,
        |two| {
            for action in [Action::Set(Versioning::Enabled), Action::Put("a/x", 9), Action::Put("a/x", 10)] {
                run(&two.one, action);
            }
            let (_, id, ..) = lines(&two.one).into_iter().rfind(|(key, ..)| key == "a/x").unwrap();
            let info = wait(two.one.head_version("b", "a/x", Some(id), &ReadCondition::default())).unwrap();
            (id, info.modified, wait(two.one.lease("job")).unwrap().unwrap())
        },
        |two, (id, judged, lease)| wait(two.one.expire_version("b", ("a/x", id, judged), DueVersion::Replaced, &lease)),
        |one, other| {
            fence(other, one);
            assert!(wait(other.lease("job")).unwrap().is_some());
            one.engine().last_cursor()
        },
        |two, at, done, taken_at| {
            assert_eq!(two.memory.last_cursor(), taken_at, "moment {at}: {done:?} was committed behind the taking");
        },
    );
}

#[test]
fn of_two_folders_that_are_attached_at_once_each_has_a_number() {
    for at in 0.. {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [first, second] =
            folders.each_ref().map(|folder| Store::open(Env::real(), segment_options(folder.path())).unwrap());
        let memory = Arc::new(Memory::new());
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let (by, store) = (Arc::clone(&memory), Arc::clone(&second));
        interposed.arm(at, Box::new(move || drop(open(by, &store, Options::default()))));
        let volume = open(Arc::clone(&interposed) as Arc<dyn Engine>, &first, Options::default());
        if interposed.disarm() {
            break;
        }
        assert!(first.name().number != second.name().number, "moment {at}");
        assert!(volume.fsck(FsckOptions::default()).unwrap().clean());
    }
}

#[test]
fn a_pass_whose_lease_went_moves_no_run_though_nothing_else_changed() {
    let nothing = ReclaimBudget { move_bytes_max: 0, live_percent_min: 0, ..ALL };
    at_every_moment(
        true,
        |two| {
            for (key, length) in [("a/x", 20_000), ("a/y", 20_000), ("a/z", 20_000)] {
                run(&two.one, Action::Put(key, length));
            }
            run(&two.one, Action::Delete("a/x"));
            two.other.beat().unwrap();
        },
        |two, ()| two.one.reclaim_once(&ALL, &KeepLogs),
        move |one, other| {
            fence(other, one);
            other.reclaim_once(&nothing, &KeepLogs).unwrap();
            // It has a live session again: now only the lease binds what its pass still commits.
            assert!(matches!(one.beat(), Err(Error::Fenced)));
            one.open_session().unwrap();
            one.engine().last_cursor()
        },
        |two, at, done, taken_at| {
            assert_eq!(two.memory.last_cursor(), taken_at, "moment {at}: {done:?} committed behind the taking");
            is_clean(two, at);
        },
    );
}
