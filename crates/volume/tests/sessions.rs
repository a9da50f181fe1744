//! Sessions and leases of volumes that share an engine: who is taken for dead, and what the dead may still do.

#![allow(clippy::unwrap_used, reason = "a failed test should stop here")]

mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use margay_env::{Env, Timestamp};
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
    let given = Given { upload: String::new(), versions: Vec::new() };
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
        let interposed = Arc::new(Interposed::on_both_sides(Arc::clone(&memory)));
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
        let interposed = Arc::new(Interposed::on_both_sides(Arc::clone(&memory)));
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
    // The first that was opened drained the orphans, and has the lease since.
    assert_eq!(other.reclaim_once(&budget, &KeepLogs).unwrap(), Reclaimed::default());
    // The other session's last beat is from before the deletion, so it may still read the segment.
    let done = one.reclaim_once(&budget, &KeepLogs).unwrap();
    assert_eq!(done.removed_segments, 0, "{done:?}");
    other.beat().unwrap();
    let done = one.reclaim_once(&budget, &KeepLogs).unwrap();
    assert_eq!(done.removed_segments, 1, "{done:?}");
}
