//! Sessions and leases of volumes that share an engine: who is taken for dead, and what the dead may still do.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use margay_env::real::RealClock;
use margay_env::{Clock, Env, Timestamp};
use margay_meta::Engine;
use margay_meta::counted::CountedEngine;
use margay_meta::memory::Memory;
use margay_segment::Store;
use margay_volume::*;
use parking_lot::Mutex;
use world::actions::{self, Action, Given};
use world::interposed::Interposed;
use world::shared::{engine, fence, open, pair};
use world::*;

fn run(volume: &Volume, action: Action) {
    let given = Given::default();
    actions::run(volume, &given, action);
}

fn modified(volume: &Volume, key: &str) -> Option<Timestamp> {
    wait(volume.head_object("b", key, &ReadCondition::default())).ok().map(|info| info.modified)
}

fn lease(volume: &Volume) -> Option<Lease> {
    wait(volume.lease("job")).unwrap()
}

#[test]
fn an_engine_that_nobody_shares_has_no_rows_of_sessions_and_no_calls_for_leases() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Env::real(), segment_options(folder.path())).unwrap();
    let memory = Arc::new(Memory::new());
    let counted = Arc::new(CountedEngine::new(Arc::clone(&memory) as Arc<dyn Engine>));
    let volume = open(Arc::clone(&counted) as Arc<dyn Engine>, &store, Options::default());
    let calls = counted.of(|| {
        assert_eq!(lease(&volume), Some(Lease::alone()));
        assert_eq!(volume.beat().unwrap(), Beat::default());
        assert!(volume.follow_once().unwrap().is_newest);
        assert_eq!((volume.oldest_reader().unwrap(), volume.session()), (None, None));
    });
    assert_eq!(calls, (0, 0));
    assert!(memory.rows().keys().all(|key| key[0] != b'j'));
}

#[test]
fn a_row_of_another_session_that_cannot_be_read_keeps_nobody_from_living() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    let strange = margay_meta::Write::Put {
        key: margay_rows::key::session(margay_rows::Ino(1 << 40)),
        value: b"of a later version".to_vec(),
    };
    one.engine().commit(margay_meta::Batch { writes: vec![strange], ..Default::default() }).unwrap();
    for _ in 0..3 * STILL_BEATS_MAX {
        one.beat().unwrap();
        other.beat().unwrap();
    }
    assert!(one.session_fault().is_none() && other.session_fault().is_none());
}

#[test]
fn a_session_whose_beat_stands_still_is_fenced_and_commits_nothing_until_it_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    for _ in 0..3 * STILL_BEATS_MAX {
        assert_eq!(one.beat().unwrap(), Beat { others: 1, fenced: Vec::new() });
        assert_eq!(other.beat().unwrap(), Beat { others: 1, fenced: Vec::new() });
    }
    let number = other.session().unwrap();
    for _ in 0..STILL_BEATS_MAX {
        assert_eq!(one.beat().unwrap().fenced, Vec::<u64>::new(), "a beat less is not enough");
    }
    assert_eq!(one.beat().unwrap(), Beat { others: 0, fenced: vec![number] });
    // It does not know yet.
    run(&other, Action::Put("a/x", 200));
    assert!(matches!(other.beat(), Err(Error::Fenced)));
    assert!(other.session_fault().is_some() && other.session().is_none());
    let refused = wait(other.create_bucket("c"));
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    assert!(matches!(wait(other.lease("job")), Err(Error::Fenced)));
    other.open_session().unwrap();
    wait(other.create_bucket("c")).unwrap();
    assert!(other.session_fault().is_none() && other.session().unwrap() > number, "a number is never used twice");
    assert_eq!(one.beat().unwrap(), Beat { others: 1, fenced: Vec::new() });
}

#[test]
fn a_change_of_identities_is_known_when_every_session_that_announced_itself_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &named());
    let change = || {
        let before = wait(one.identities_generation()).unwrap();
        let row = IdentityChange { kind: b'u', name: "ann".to_owned(), content: Some(b"x".to_vec()) };
        wait(one.change_identities(before, &[row])).unwrap()
    };
    let behind = |generation| behind(&one, generation);
    let rows = || {
        let (start, end) = margay_rows::key::all_known_identities();
        let mut count = 0;
        one.engine()
            .scan(&start, &end, &mut |_| {
                count += 1;
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        count
    };
    assert_eq!(behind(change()), Vec::<u64>::new(), "nobody is waited for who has not announced it");
    wait(one.announce_identities()).unwrap();
    wait(other.announce_identities()).unwrap();
    let generation = change();
    assert_eq!(behind(generation), [other.session().unwrap()]);
    wait(other.know_identities(generation)).unwrap();
    assert_eq!(behind(generation), Vec::<u64>::new());
    let newer = change();
    assert!(newer > generation && behind(newer).len() == 1);
    // A session that is taken for dead is waited for no more, and says nothing; the next one of its process begins anew.
    let noticed = other.identities_changed();
    fence(&one, &other);
    assert_eq!((behind(newer), rows()), (Vec::new(), 1));
    assert!(matches!(wait(other.know_identities(newer)), Err(Error::Fenced)));
    assert!(matches!(other.beat(), Err(Error::Fenced)));
    other.open_session().unwrap();
    assert_eq!((behind(newer), rows()), (vec![other.session().unwrap()], 2));
    wait(noticed);
    wait(other.know_identities(newer)).unwrap();
    assert_eq!(behind(newer), Vec::<u64>::new());
    // Programs of before these rows leave one behind; a later one may write it in a way of its own.
    let number = other.session().unwrap();
    for (session, found) in [(number + 1000, Vec::new()), (number, vec![number])] {
        let key = margay_rows::key::known_identities(margay_rows::Ino(session));
        let strange = margay_meta::Write::Put { key, value: b"of a later version".to_vec() };
        one.engine().commit(margay_meta::Batch { writes: vec![strange], ..Default::default() }).unwrap();
        assert_eq!((behind(newer), rows()), (found, 2));
    }
    other.close_session().unwrap();
    assert_eq!(rows(), 1);
}

/// Processes that say where they run.
fn named() -> Options {
    Options {
        session_name: SessionName { host: "here".to_owned(), pid: 7, ..SessionName::default() },
        ..Options::default()
    }
}

/// Each is named by its process.
fn behind(one: &Volume, generation: u64) -> Vec<u64> {
    let behind = wait(one.behind_identities(generation)).unwrap();
    assert!(behind.iter().all(|one| one.process == "here (pid 7)"), "{behind:?}");
    behind.into_iter().map(|one| one.session).collect()
}

#[test]
fn a_start_that_took_too_long_announces_itself_under_a_new_session() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &named());
    let number = other.session().unwrap();
    fence(&one, &other);
    wait(other.announce_identities()).unwrap();
    assert!(other.session().unwrap() > number);
    assert_eq!(behind(&one, 1), [other.session().unwrap()]);
}

#[test]
fn a_lease_goes_to_another_session_only_when_its_holder_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    let first = lease(&one).unwrap();
    assert_eq!((lease(&one), lease(&other)), (Some(first.clone()), None));
    fence(&other, &one);
    let second = lease(&other).unwrap();
    assert!(second.epoch() > first.epoch());
    assert!(!wait(one.still_holds(&first)).unwrap() && wait(other.still_holds(&second)).unwrap());
    assert!(matches!(one.beat(), Err(Error::Fenced)));
    one.open_session().unwrap();
    assert_eq!(lease(&one), None);
    other.close_session().unwrap();
    assert!(lease(&one).unwrap().epoch() > second.epoch());
    assert!(matches!(other.beat(), Err(Error::Fenced)));
}

#[test]
fn a_holder_that_was_stopped_past_its_lease_and_goes_on_removes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    run(&one, Action::Put("a/x", 200));
    let (held, judged) = (lease(&one).unwrap(), modified(&one, "a/x").unwrap());
    fence(&other, &one);
    let taken = lease(&other).unwrap();
    let late = wait(one.expire_object("b", "a/x", judged, &held));
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");
    let late = wait(one.forget_events("t", &[1], &held));
    assert!(matches!(late, Err(Error::LeaseLost)), "{late:?}");
    assert_eq!(modified(&other, "a/x"), Some(judged));
    assert!(wait(other.expire_object("b", "a/x", judged, &taken)).unwrap());
    assert!(other.check(5, &Arc::default()).unwrap().clean());
}

/// The holder is stopped at every moment of an act; meanwhile another one takes over, and sees what is there.
#[test]
fn of_an_act_and_a_taking_over_the_act_comes_first_or_not_at_all() {
    let (mut acts, mut refusals) = (0, 0);
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let (memory, store) = engine(folder.path(), 1000);
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let one = open(Arc::clone(&interposed) as Arc<dyn Engine>, &store, Options::default());
        let other = open(memory, &store, Options::default());
        wait(one.create_bucket("b")).unwrap();
        run(&one, Action::Put("a/x", 200));
        let (held, judged) = (lease(&one).unwrap(), modified(&one, "a/x").unwrap());
        let found = Arc::new(Mutex::new(None));
        let (noted, by, dead) = (Arc::clone(&found), Arc::clone(&other), Arc::clone(&one));
        interposed.arm(
            at,
            Box::new(move || {
                fence(&by, &dead);
                assert!(lease(&by).is_some());
                *noted.lock() = Some(modified(&by, "a/x").is_some());
            }),
        );
        let done = wait(one.expire_object("b", "a/x", judged, &held));
        if interposed.disarm() {
            break;
        }
        let was_there = found.lock().unwrap();
        match done {
            Ok(true) => acts += 1,
            Err(Error::LeaseLost) => refusals += 1,
            other => panic!("moment {at}: {other:?}"),
        }
        assert_eq!(was_there, modified(&other, "a/x").is_some(), "moment {at}: nothing happened after the taking");
        assert!(other.check(5, &Arc::default()).unwrap().clean());
    }
    println!("evidence: {acts} acts before the taking, {refusals} refused behind it");
    assert!(acts > 0 && refusals > 0);
}

#[test]
fn of_two_that_want_a_lease_at_once_one_has_it() {
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let (memory, store) = engine(folder.path(), 1000);
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let one = open(Arc::clone(&interposed) as Arc<dyn Engine>, &store, Options::default());
        let other = open(memory, &store, Options::default());
        let others = Arc::new(AtomicBool::new(false));
        let (noted, by) = (Arc::clone(&others), Arc::clone(&other));
        interposed.arm(at, Box::new(move || noted.store(by.lease_here("job").unwrap().is_some(), Ordering::SeqCst)));
        let mine = one.lease_here("job").unwrap();
        if interposed.disarm() {
            break;
        }
        assert!(mine.is_some() != others.load(Ordering::SeqCst), "moment {at}");
    }
}

#[test]
fn readers_of_other_sessions_are_known_by_their_beats() {
    let stores = two_stores::stores();
    let engine: Arc<dyn Engine> = Arc::new(Memory::new().shared(1000));
    let [one, other] = two_stores::in_sessions(&engine, &stores);
    wait(one.create_bucket("b")).unwrap();
    run(&one, Action::Put("a/x", 2000));
    other.beat().unwrap();
    // Its bytes are in the first one's store.
    let reader = wait(other.get_object("b", "a/x", &ReadCondition::default())).unwrap();
    let began = other.engine().last_cursor();
    run(&one, Action::Put("a/x", 200));
    other.beat().unwrap();
    let oldest = one.oldest_reader().unwrap().unwrap();
    assert!(oldest <= began, "{oldest:?} is behind {began:?}");
    let before = other.engine().last_cursor();
    drop(reader);
    other.beat().unwrap();
    assert!(one.oldest_reader().unwrap().unwrap() >= before);
    other.close_session().unwrap();
    assert_eq!(one.oldest_reader().unwrap(), None);
}

#[test]
fn one_process_gives_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = pair(folder.path(), 1000, &Options::default());
    run(&one, Action::Put("a/x", 60_000));
    run(&one, Action::Delete("a/x"));
    let budget = world::maintenance::ALL;
    // The other session's last beat is from before the deletion, so it may still read the segment.
    let done = one.reclaim_once(&budget, &KeepLogs).unwrap();
    assert_eq!(done.removed_segments, 0, "{done:?}");
    // The first one has the lease of the store that both have open here.
    assert_eq!(other.reclaim_once(&budget, &KeepLogs).unwrap(), Reclaimed::default());
    other.beat().unwrap();
    let done = one.reclaim_once(&budget, &KeepLogs).unwrap();
    assert_eq!(done.removed_segments, 1, "{done:?}");
}

/// Dead and mostly dead segments, and an orphan: each kind of batch that a pass makes is due.
fn fill(volume: &Volume, engine: &Interposed, other: &Volume) {
    for (key, length) in [("a/x", 60_000), ("a/y", 20_000), ("a/z", 400)] {
        run(volume, Action::Put(key, length));
    }
    run(volume, Action::Put("a/x", 300));
    run(volume, Action::Delete("a/y"));
    for at in 0.. {
        let upload = wait(volume.create_multipart("b", "a/m", Headers::new(), Documents::new())).unwrap().upload;
        let given = Given { upload, ..Given::default() };
        assert_eq!(actions::run(volume, &given, Action::PutPart), "done");
        engine.arm(at, Box::new(|| std::panic::resume_unwind(Box::new(()))));
        let aborted = catch_unwind(AssertUnwindSafe(|| wait(volume.abort_multipart("b", "a/m", &given.upload))));
        assert!(!engine.disarm() && aborted.is_err());
        if other.fsck(FsckOptions::default()).unwrap().orphans == 1 {
            return;
        }
        wait(volume.abort_multipart("b", "a/m", &given.upload)).unwrap();
    }
}

/// The holder of a store's lease is stopped at every moment of a pass, past its lease, and goes on when another one has done the
/// job: what it does late is refused, and nothing is lost.
#[test]
fn a_reclaim_that_was_stopped_past_its_lease_commits_nothing_late() {
    let (mut finished, mut refused) = (0, 0);
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let (memory, store) = engine(folder.path(), 1000);
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let one = open(Arc::clone(&interposed) as Arc<dyn Engine>, &store, Options::default());
        let other = open(Arc::clone(&memory) as Arc<dyn Engine>, &store, Options::default());
        wait(one.create_bucket("b")).unwrap();
        fill(&one, &interposed, &other);
        one.beat().unwrap();
        other.beat().unwrap();
        let resumed_at = Arc::new(Mutex::new(None));
        let (noted, by, dead, rows) =
            (Arc::clone(&resumed_at), Arc::clone(&other), Arc::clone(&one), Arc::clone(&memory));
        interposed.arm(
            at,
            Box::new(move || {
                fence(&by, &dead);
                by.reclaim_once(&world::maintenance::ALL, &KeepLogs).unwrap();
                *noted.lock() = Some(rows.last_cursor());
            }),
        );
        let done = one.reclaim_once(&world::maintenance::ALL, &KeepLogs);
        if interposed.disarm() {
            break;
        }
        let resumed_at = resumed_at.lock().unwrap();
        assert_eq!(memory.last_cursor(), resumed_at, "moment {at}: {done:?} committed behind the taking");
        match done {
            Ok(_) => finished += 1,
            Err(Error::LeaseLost | Error::Fenced) => refused += 1,
            Err(error) => panic!("moment {at}: {error:?}"),
        }
        for (key, length) in [("a/x", 300), ("a/z", 400)] {
            let reader = wait(other.get_object("b", key, &ReadCondition::default())).unwrap();
            assert_eq!(read_all(&reader).len(), length, "moment {at}");
        }
        let report = other.fsck(FsckOptions::default()).unwrap();
        assert!(report.clean() && report.orphans == 0, "moment {at}: {report:#?}");
    }
    println!("evidence: {finished} passes had nothing left to commit, {refused} were refused");
    assert!(refused > 10, "{refused}");
}

/// Opens a store's folder as another process does.
fn open_folder(engine: &Arc<dyn Engine>, env: &Env, beat_every: Duration) -> Result<Arc<Volume>, OpenError> {
    let store = Store::open(env.clone(), margay_segment::Options::new(Path::new("/segments"))).unwrap();
    let options = Options { beat_every, ..Options::default() };
    Volume::open(env.clone(), Arc::clone(engine), store, options)
}

/// A clock that beats for another process whenever this one pauses: a thread that beats by time stands still with a busy machine.
#[derive(Debug)]
struct Beating(RealClock, Arc<Volume>);

impl Clock for Beating {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, _length: Duration) {
        self.1.beat().unwrap();
    }
}

#[test]
fn a_folder_is_refused_while_its_session_lives_and_taken_over_when_it_is_dead() {
    let env = two_stores::sim_env(1);
    let memory = Arc::new(Memory::new().shared(1000));
    let engine = Arc::clone(&memory) as Arc<dyn Engine>;
    let one = open_folder(&engine, &env, Duration::ZERO).unwrap();
    wait(one.create_bucket("b")).unwrap();
    run(&one, Action::Put("a/x", 300));
    let sessions = || memory.rows().keys().filter(|key| key.starts_with(b"js")).count();
    let beating = Env { clock: Arc::new(Beating(RealClock::new(), Arc::clone(&one))), ..env.clone() };
    let refused = open_folder(&engine, &beating, Duration::ZERO);
    assert!(matches!(refused, Err(OpenError::StoreInUse { number: 0 })), "{refused:?}");
    assert_eq!(sessions(), 1, "the refused one left nothing");
    // It was killed, or it is stopped: nobody can tell.
    let other = open_folder(&engine, &env, Duration::ZERO).unwrap();
    assert_eq!(wait(other.head_object("b", "a/x", &ReadCondition::default())).unwrap().size, 300);
    assert!(other.reclaim_once(&world::maintenance::ALL, &KeepLogs).is_ok());
    // It goes on: the folder is no longer its own, so it gets no new session.
    assert!(matches!(one.beat(), Err(Error::Fenced)));
    assert!(matches!(one.open_session(), Err(Error::Fenced)));
    assert!(matches!(one.reclaim_once(&world::maintenance::ALL, &KeepLogs), Err(Error::Fenced)));
    assert!(matches!(wait(one.create_bucket("c")), Err(Error::Fenced)));
    other.close_session().unwrap();
    // A process that ended is not waited for.
    open_folder(&engine, &env, Duration::MAX).unwrap();
}

#[test]
fn a_session_that_was_fenced_keeps_its_folder_in_a_new_one() {
    let stores = two_stores::stores();
    let engine: Arc<dyn Engine> = Arc::new(Memory::new().shared(1000));
    let [one, other] = two_stores::in_sessions(&engine, &stores);
    wait(one.create_bucket("b")).unwrap();
    run(&one, Action::Put("a/x", 300));
    fence(&other, &one);
    assert!(matches!(one.beat(), Err(Error::Fenced)));
    one.open_session().unwrap();
    run(&one, Action::Put("a/x", 400));
    for _ in 0..2 {
        one.beat().unwrap();
        other.beat().unwrap();
        one.reclaim_once(&world::maintenance::ALL, &SealedLogs).unwrap();
    }
    let done = one.reclaim_once(&world::maintenance::ALL, &SealedLogs).unwrap();
    assert_eq!(done.disputed_segments, 0);
    assert_eq!(wait(other.head_object("b", "a/x", &ReadCondition::default())).unwrap().size, 400);
    let row = engine.get(&[&b"St"[..], &0u16.to_be_bytes()].concat()).unwrap().value.unwrap();
    // A varint of one byte.
    assert_eq!(row.value.last().map(|last| u64::from(*last)), one.session(), "{row:?}");
}

#[test]
fn a_session_that_beats_while_it_is_judged_lives() {
    let (mut beaten, mut late) = (0, 0);
    for at in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let (memory, store) = engine(folder.path(), 1000);
        let interposed = Arc::new(Interposed::on_both_sides(Arc::<Memory>::clone(&memory)));
        let one = open(Arc::clone(&interposed) as Arc<dyn Engine>, &store, Options::default());
        let other = open(memory, &store, Options::default());
        (0..STILL_BEATS_MAX).for_each(|_| drop(one.beat().unwrap()));
        let lives = Arc::new(AtomicBool::new(false));
        let (noted, by) = (Arc::clone(&lives), Arc::clone(&other));
        interposed.arm(at, Box::new(move || noted.store(by.beat().is_ok(), Ordering::SeqCst)));
        let fenced = one.beat().unwrap().fenced;
        if interposed.disarm() {
            break;
        }
        let lives = lives.load(Ordering::SeqCst);
        assert_eq!(other.beat().is_ok(), lives, "moment {at}: no beat that was taken is behind a death");
        assert_eq!(fenced.is_empty(), lives, "moment {at}");
        beaten += usize::from(lives);
        late += usize::from(!lives);
    }
    assert!(beaten > 0 && late > 0);
}
