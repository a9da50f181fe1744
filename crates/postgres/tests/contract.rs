//! PostgreSQL against the contract test suite, several processes that meet, and a server that is killed under them.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that it does not expect"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use margay_env::Env;
use margay_meta::memory::Memory;
use margay_meta::patient::{Patience, PatientEngine};
use margay_meta::*;
use margay_postgres::{OpenError, PostgresEngine, Verdict};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

#[path = "../../meta/tests/contract/suite.rs"]
mod suite;

mod server;

use server::Server;
use suite::*;

fn put(key: &str, value: &[u8]) -> Write {
    Write::Put { key: key.into(), value: value.to_vec() }
}

fn of(writes: Vec<Write>) -> Batch {
    Batch { writes, ..Batch::default() }
}

#[test]
fn postgres_behaves_like_the_reference() {
    let Some(server) = Server::start() else { return };
    let (next, cases) = (AtomicU64::new(0), 24);
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let steps = (prop::collection::vec(step(), 1..60), prop::collection::vec(key(), 8));
    let done = runner.run(&steps, |(steps, probes)| {
        let schema = format!("case{}", next.fetch_add(1, Ordering::Relaxed));
        let mut engine = server.engine(&schema);
        let (model, mut classes) = (Memory::new().without_guards(), Classes::default());
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Commit { conditions, writes } => {
                    let mine = batch(&engine, &conditions, &writes);
                    let done = match index % 3 {
                        0 => engine.commit(mine),
                        kind => commit_told(&engine, mine, kind == 1),
                    };
                    check_outcomes(&done, &model.commit(batch(&model, &conditions, &writes)));
                }
                Step::Checkpoint => {
                    let snapshot = engine.snapshot().unwrap();
                    engine.commit(of(vec![put("b", b"behind")])).unwrap();
                    compare(&*snapshot, &model, &probes, &mut classes);
                    model.commit(of(vec![put("b", b"behind")])).unwrap();
                }
                Step::Reopen => engine = server.engine(&schema),
            }
            compare(&engine, &model, &probes, &mut classes);
        }
        Ok(())
    });
    done.unwrap();
    println!("evidence: metadata in PostgreSQL: {cases} histories as the reference");
}

#[test]
fn a_name_that_is_no_schema_and_a_server_that_loses_commits_are_refused() {
    let Some(server) = Server::start() else { return };
    let options = server.options("a-b");
    assert!(matches!(PostgresEngine::open(&options), Err(OpenError::Schema(_))));
    server.sql("alter role margay set synchronous_commit = off");
    let refused = PostgresEngine::open(&server.options("a")).unwrap_err();
    assert!(matches!(&refused, OpenError::Setting(advice) if advice.contains("set it to on")), "{refused}");
    server.sql("alter role margay set synchronous_commit = on");
    drop(server.engine("a"));
}

/// Whatever the defaults of the server are, and of which of several servers.
#[test]
fn a_standby_is_not_asked_and_a_default_of_isolation_does_not_count() {
    let Some(server) = Server::start() else { return };
    let (engine, standby) = (server.engine("one"), server.standby());
    server.sql("alter role margay set default_transaction_isolation = 'serializable'");
    let mut options = server.options("one");
    options.config = options.config.replace("host=", &format!("host={},", standby.place().display()));
    let other = PostgresEngine::open(&options).unwrap();
    for number in 0..50u8 {
        engine.commit(of(vec![put("k", &[number])])).unwrap();
        assert_eq!(other.get(b"k").unwrap().value.unwrap().value.as_ref(), [number]);
    }
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let engine = if thread % 2 == 0 { &engine } else { &other };
            let one = move |number| put(&format!("k{}", (thread + number) % 3), b"");
            scope.spawn(move || {
                (0..50).for_each(|number| {
                    engine.commit(of(vec![one(number)])).unwrap();
                })
            });
        }
    });
    let settings = other.settings().unwrap();
    let verdict = |name: &str| settings.iter().find(|one| one.name == name).unwrap().verdict;
    assert_eq!((verdict("fsync"), verdict("synchronous_standby_names")), (Verdict::Fine, Verdict::Weak));
}

/// Numbers of transactions that the lost server had given are given again: what is remembered under them is forgotten first.
#[test]
fn after_a_fail_over_all_is_forgotten_before_anything_is_committed() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    let standby = server.standby();
    let mut options = server.options("one");
    options.config = options.config.replace("host=", &format!("host={},", standby.place().display()));
    let both = PostgresEngine::open(&options).unwrap();
    let at = both.commit(of(vec![put("k", b"1")])).unwrap().cursor;
    assert!(both.changes(at, 10).unwrap().changes.is_empty());
    drop(engine);
    let begun = Instant::now();
    // A standby without a slot gets all before it is promoted, as nothing is written any more.
    while server.lag(&standby) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the standby gets what is written");
        std::thread::sleep(Duration::from_millis(50));
    }
    server.kill();
    standby.sql("select pg_promote()");
    let refused = loop {
        match both.commit(of(vec![put("k", b"2")])) {
            // Its answer is lost, or no server is there.
            Err(CommitError::Unknown(token)) => drop(both.outcome(token)),
            Err(CommitError::Failed(EngineError::Unavailable(why))) if why.contains("forgotten") => break why,
            Err(CommitError::Failed(EngineError::Unavailable(_))) => {}
            other => panic!("{other:?}"),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "the new server is found");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(refused.contains("failed over"), "{refused}");
    assert!(matches!(both.changes(at, 10), Err(FeedError::TooOld { .. })));
    both.commit(of(vec![put("k", b"2")])).unwrap();
    // Until it goes on from another cursor.
    assert!(matches!(both.changes(at, 10), Err(FeedError::TooOld { .. })));
    let next = both.feed_start().unwrap();
    assert!(next != at && both.changes(next, 10).unwrap().changes.is_empty());
    both.commit(of(vec![put("k", b"2")])).unwrap();
    assert_eq!(both.changes(next, 10).unwrap().changes.len(), 1);
    assert_eq!(both.get(b"k").unwrap().value.unwrap().value.as_ref(), b"2");
}

/// Who asks what another process did to a row that is gone gets all that a read has seen.
#[test]
fn the_feed_is_waited_for_while_a_transaction_is_under_way() {
    let Some(server) = Server::start() else { return };
    let (engine, other) = (server.engine("one"), server.engine("one"));
    let held = "begin; select pg_current_xact_id(); select pg_sleep(1.5); commit";
    std::thread::scope(|scope| {
        scope.spawn(|| server.sql(held));
        let begun = Instant::now();
        loop {
            let done = engine.commit(of(vec![put("k", b"1")])).unwrap();
            let page = other.changes(Cursor(0), 10_000).unwrap();
            // Visible, and not in the feed.
            if page.changes.last().is_none_or(|last| last.cursor < done.cursor) {
                other.wait_feed().unwrap();
                let page = other.changes(Cursor(0), 10_000).unwrap();
                assert_eq!(page.changes.last().unwrap().cursor, done.cursor);
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "a transaction under way was never met");
        }
    });
}

/// A follower that began behind the newest own commit would miss what is under way.
#[test]
fn a_follower_begins_before_a_transaction_under_way() {
    let Some(server) = Server::start() else { return };
    let (engine, other) = (server.engine("one"), server.engine("one"));
    let held = "begin; insert into one.changes(version, keys) values (pg_current_xact_id()::text::bigint, '\\x000161'); \
                select pg_sleep(1.5); commit";
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| server.sql(held));
        let begun = Instant::now();
        let start = loop {
            let done = other.commit(of(vec![put("k", b"1")])).unwrap();
            let start = other.feed_start().unwrap();
            if start < done.cursor {
                assert!(start < other.last_cursor());
                break start;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "a transaction under way was never met");
        };
        sender.join().unwrap();
        let mut keys = engine.changes(start, 10_000).unwrap().changes.into_iter().flat_map(|change| change.keys);
        assert!(keys.any(|key| key == b"a"), "what was under way is followed");
    });
}

/// What another process did, and this one has read, is not ahead of what it says that it has seen: orders of events are made of it.
#[test]
fn what_was_read_is_seen_removals_too() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (server.engine("one"), server.engine("one"));
    two.commit(of(vec![put("other", b"")])).unwrap();
    for round in 0..3 {
        let made = one.commit(of(vec![put("k", &[round])])).unwrap();
        assert!(two.get(b"k").unwrap().value.is_some() && two.seen_cursor() >= made.cursor);
        let removed = one.commit(of(vec![Write::Delete { key: b"k".to_vec() }])).unwrap();
        assert!(two.last_cursor() < removed.cursor && two.get(b"k").unwrap().value.is_none());
        let seen = two.seen_cursor();
        assert!(seen >= removed.cursor, "an absent row has no version");
        let next = two.commit(of(vec![other(round)])).unwrap();
        assert!(next.cursor > seen, "an own commit is behind what was seen before");
    }
}

fn other(round: u8) -> Write {
    put("other", &[round])
}

/// A dump goes on while another process begins.
#[test]
fn a_snapshot_keeps_no_process_from_beginning() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    engine.commit(of(vec![put("k", b"1")])).unwrap();
    let snapshot = engine.snapshot().unwrap();
    assert!(snapshot.get(b"k").unwrap().value.is_some());
    let other = server.engine("one");
    other.commit(of(vec![put("k", b"2")])).unwrap();
    assert_eq!(snapshot.get(b"k").unwrap().value.unwrap().value.as_ref(), b"1");
    assert_eq!(engine.get(b"k").unwrap().value.unwrap().value.as_ref(), b"2");
}

/// The rule that no name is left in a directory that was removed, by 16 threads over two processes.
#[test]
fn no_row_comes_into_a_range_that_was_found_empty() {
    let Some(server) = Server::start() else { return };
    let engines = [server.engine("one"), server.engine("one")];
    let (rounds, made, removed) = (60u64, AtomicU64::new(0), AtomicU64::new(0));
    for round in 0..rounds {
        let directory = format!("d{round}");
        engines[0].commit(of(vec![put(&directory, b"")])).unwrap();
        std::thread::scope(|scope| {
            for at in 0..16 {
                // Those that remove begin first in every other round.
                let thread = if round % 2 == 0 { at } else { 15 - at };
                let (engine, directory, made, removed) = (&engines[thread % 2], &directory, &made, &removed);
                scope.spawn(move || {
                    let parent = directory.clone().into_bytes();
                    let (preconditions, writes, count) = if thread < 4 {
                        let (start, end) = (format!("{directory}/").into(), format!("{directory}0").into());
                        let empty = Precondition::RangeEmpty { start, end, guard: Guard::Written };
                        let exists = Precondition::Exists { key: parent.clone() };
                        (vec![exists, empty], vec![Write::Delete { key: parent }], removed)
                    } else {
                        let exists = Precondition::Exists { key: parent };
                        (vec![exists], vec![put(&format!("{directory}/{thread}"), b"entry")], made)
                    };
                    match engine.commit(Batch { preconditions, writes, payload: None }) {
                        Ok(_) => drop(count.fetch_add(1, Ordering::Relaxed)),
                        Err(CommitError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        let is_there = engines[1].get(directory.as_bytes()).unwrap().value.is_some();
        let entries = rows(&engines[0], format!("{directory}/").as_bytes(), format!("{directory}0").as_bytes(), 100);
        assert!(is_there || entries.is_empty(), "orphans in {directory}: {entries:?}");
    }
    let (made, removed) = (made.into_inner(), removed.into_inner());
    assert!(made > 0, "some are made");
    println!("evidence: metadata in PostgreSQL: create against rmdir: {made} made, {removed} removed, 0 orphans");
}

/// Each change is in the feed once, in the order of its key's versions, also for who reads while others commit.
#[test]
fn a_follower_sees_every_commit_of_two_processes() {
    let Some(server) = Server::start() else { return };
    let engines = [server.engine("one"), server.engine("one")];
    let (threads, each) = (6u64, 40u64);
    let follower = server.engine("one");
    let mut seen: Vec<Change> = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let engine = &engines[thread as usize % 2];
            scope.spawn(move || {
                for number in 0..each {
                    let count = Write::Add { key: b"count".to_vec(), delta: 1 };
                    engine
                        .commit(of(vec![put(&format!("k{thread}-{number}"), b""), put("newest", b""), count]))
                        .unwrap();
                }
            });
        }
        let (mut after, begun) = (Cursor(0), Instant::now());
        while (seen.len() as u64) < threads * each {
            assert!(begun.elapsed() < Duration::from_secs(120), "{} changes are seen", seen.len());
            let page = follower.changes(after, 7).unwrap();
            after = page.next;
            seen.extend(page.changes);
        }
    });
    // Who waits behind the last one wakes with the next.
    let (waits, last) =
        (follower.wait_changes(seen[seen.len() - 1].cursor), engines[0].commit(of(vec![put("x", b"")])).unwrap());
    wait(waits).unwrap();
    assert_eq!(follower.changes(seen[seen.len() - 1].cursor, 9).unwrap().next, last.cursor);
    assert!(seen.is_sorted_by(|one, other| one.cursor < other.cursor));
    let mut keys: Vec<_> = seen.iter().map(|change| change.keys[0].clone()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len() as u64, threads * each);
    let last = follower.get(b"newest").unwrap().value.unwrap().version;
    assert_eq!(seen.last().unwrap().cursor.0, last.bits(), "the newest is that of the row that all put");
    let count = follower.get(b"count").unwrap().value.unwrap().value;
    assert_eq!(i64::from_le_bytes(count[..].try_into().unwrap()), (threads * each) as i64);
    assert!(matches!(follower.changes(Cursor(u64::MAX >> 1), 1), Err(FeedError::TooOld { .. })));
}

/// One that changes nothing: what it requires is never there.
fn refused(key: &str) -> Batch {
    let preconditions = vec![Precondition::Exists { key: b"nothing".to_vec() }];
    let count = Write::Add { key: b"count".to_vec(), delta: 1 << 40 };
    Batch { preconditions, writes: vec![put(key, b"refused"), count], payload: None }
}

/// Commits that wait share calls of the server, and each has its own outcome.
#[test]
fn commits_that_share_a_call_have_each_their_outcome() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    let (rounds, threads) = (50, 64usize);
    let outcomes: Vec<Vec<Result<Committed, CommitError>>> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|thread| {
                let engine = &engine;
                let one = move |round: usize| match thread % 8 {
                    0 => engine.commit(refused(&format!("r{thread}"))),
                    1 => engine.commit(of(vec![Write::Add { key: b"cfull".to_vec(), delta: i64::MAX }])),
                    // One of them gets it.
                    2 => engine.commit(Batch {
                        preconditions: vec![Precondition::Absent { key: format!("one{round}").into_bytes() }],
                        ..of(vec![put(&format!("one{round}"), &[thread as u8])])
                    }),
                    _ => engine.commit(of(vec![
                        put(&format!("k{round}-{thread}"), b""),
                        Write::Add { key: b"count".to_vec(), delta: 1 },
                    ])),
                };
                scope.spawn(move || (0..rounds).map(one).collect())
            })
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (mut winners, mut full) = (0, 0);
    for (thread, outcomes) in outcomes.iter().enumerate() {
        for outcome in outcomes {
            match (thread % 8, outcome) {
                (0, Err(CommitError::Conflict { precondition: 0 }))
                | (1, Err(CommitError::Invalid(_)))
                | (3.., Ok(_)) => {}
                // Once for each lane, which adds to a shard of its own.
                (1, Ok(_)) => full += 1,
                (2, Ok(_)) => winners += 1,
                (2, Err(CommitError::Conflict { precondition: 0 })) => {}
                (_, other) => panic!("thread {thread}: {other:?}"),
            }
        }
    }
    assert_eq!(winners, rounds);
    // Four that are shared, and the one of threads that block.
    assert!((1..=5).contains(&full), "{full} additions of the largest number");
    let done = (rounds * threads * 5 / 8) as i64;
    let count = engine.get(b"count").unwrap().value.unwrap().value;
    assert_eq!(i64::from_le_bytes(count[..].try_into().unwrap()), done);
    assert_eq!(rows(&engine, b"k", b"l", usize::MAX).len() as i64, done);
    assert_eq!(rows(&engine, b"r", b"s", usize::MAX).len(), 0);
    let changes = engine.changes(Cursor(0), 100_000).unwrap().changes;
    assert!(changes.iter().all(|change| change.keys.len() == 1), "batches of one call stay apart in the feed");
    assert_eq!(changes.len(), rounds * threads * 5 / 8 + winners);
    let [_, (_, calls), _] = engine.calls();
    println!("evidence: metadata in PostgreSQL: {} commits in {calls} calls, each with its outcome", rounds * threads);
}

/// Kills of the server at random moments: what was answered is there, and nothing was done twice.
#[test]
fn a_killed_server_loses_nothing_and_does_nothing_twice() {
    let Some(server) = Server::start() else { return };
    let patience = Patience { unavailable: Duration::from_secs(60), outcome: Duration::from_secs(60) };
    let engine = || {
        let below: Arc<dyn Engine> = Arc::new(server.engine("one"));
        PatientEngine::new(below, Env::real().clock, patience)
    };
    let (engines, ends, kills) = ([engine(), engine()], AtomicBool::new(false), 4);
    let done: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..32usize)
            .map(|thread| {
                let (engine, ends) = (&engines[thread % 2], &ends);
                scope.spawn(move || {
                    let mut done = 0u64;
                    while !ends.load(Ordering::Acquire) {
                        // Of another outcome than those that share its call.
                        if thread % 4 == 3 {
                            let refused = engine.commit(refused(&format!("k{thread}-{done}"))).unwrap_err();
                            assert!(matches!(refused, CommitError::Conflict { precondition: 0 }), "{refused:?}");
                        }
                        // It fails if it was made already.
                        let key = format!("k{thread}-{done}").into_bytes();
                        let preconditions = vec![Precondition::Absent { key: key.clone() }];
                        let count = Write::Add { key: b"count".to_vec(), delta: 1 };
                        let writes = vec![Write::Put { key, value: b"made".to_vec() }, count];
                        engine.commit(Batch { preconditions, writes, payload: None }).unwrap();
                        done += 1;
                    }
                    done
                })
            })
            .collect();
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(700));
            server.kill();
            server.begin();
        }
        std::thread::sleep(Duration::from_millis(300));
        ends.store(true, Ordering::Release);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let engine = server.engine("one");
    let found = rows(&engine, b"k", b"l", usize::MAX).len() as u64;
    let count = engine.get(b"count").unwrap().value.unwrap().value;
    let total: u64 = done.iter().sum();
    assert_eq!((found, i64::from_le_bytes(count[..].try_into().unwrap())), (total, total as i64));
    println!("evidence: metadata in PostgreSQL: {kills} kills of the server, {total} commits, 0 lost, 0 twice");
}
