//! What PostgreSQL does that a program above it easily takes for something else, one test each. Others are in `contract`: transaction numbers
//! before a wait and lost ones after a fail-over, a server set back, settings that lose commits.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops at the first thing that it does not expect"
)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use margay_meta::*;

mod server;

use server::Server;

/// A process that waits for a standby that does not exist.
const WAITING: &str = "select coalesce(min(pid), 0) from pg_stat_activity where wait_event = 'SyncRep'";

fn put(key: &str) -> Batch {
    Batch { writes: vec![Write::Put { key: key.into(), value: b"1".to_vec() }], ..Batch::default() }
}

fn new(key: &str) -> Batch {
    Batch { preconditions: vec![Precondition::Absent { key: key.into() }], ..put(key) }
}

fn number(server: &Server, question: &str) -> u64 {
    let told = server.told(question);
    told.parse().unwrap_or_else(|_| panic!("{question}: {told:?}"))
}

fn wait_for(server: &Server, question: &str, is_it: impl Fn(u64) -> bool) -> u64 {
    let begun = Instant::now();
    loop {
        let told = number(server, question);
        if is_it(told) {
            return told;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{question}: {told}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lets commits go on without a standby.
struct Reset<'a>(&'a Server, &'a AtomicBool);

impl Drop for Reset<'_> {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        self.0.sql("alter system reset synchronous_standby_names");
        self.0.sql("select pg_reload_conf()");
    }
}

/// A wait for a standby that is cancelled ends as a success with a warning: the row is visible, and may be nowhere else.
#[test]
fn a_cancelled_wait_for_a_standby_is_no_answer() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    server.sql("alter system set synchronous_standby_names = 'nobody'");
    server.sql("select pg_reload_conf()");
    let (done, is_reset) = (AtomicU64::new(0), AtomicBool::new(false));
    let answered = std::thread::scope(|scope| {
        // The server takes the setting at its own time: one of these commits is the first that waits.
        let commits = scope.spawn(|| {
            let token = loop {
                match engine.commit(new(&format!("key{}", done.load(Ordering::Relaxed)))) {
                    Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                    Err(CommitError::Unknown(token)) => break token,
                    Err(error) => panic!("{error}"),
                }
                assert!(!is_reset.load(Ordering::Relaxed), "no commit told that its outcome is not known");
            };
            let outcome = engine.outcome(token).unwrap();
            assert!(is_reset.load(Ordering::Relaxed), "it is told before a standby can have it: {outcome:?}");
            outcome
        });
        // Also when something below fails, since the other thread is waited for.
        let reset = Reset(&server, &is_reset);
        let waiting = wait_for(&server, WAITING, |pid| pid != 0);
        server.sql(&format!("select pg_cancel_backend({waiting})"));
        // Who asks what became of it writes, and so waits as well.
        wait_for(&server, WAITING, |pid| pid != 0 && pid != waiting);
        let answered = done.load(Ordering::Relaxed);
        let visible = number(&server, "select count(*) from one.rows where key >= 'key' and key < 'kez'");
        assert_eq!(visible, answered + 1, "others see what is not answered");
        drop(reset);
        assert!(matches!(commits.join().unwrap(), CommitOutcome::Committed(_)));
        answered
    });
    let again = engine.commit(new(&format!("key{answered}")));
    assert!(matches!(again, Err(CommitError::Conflict { precondition: 0 })), "it is there once: {again:?}");
}

/// One lock of the server is taken by all commits that notify.
#[test]
fn no_commit_notifies() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    engine.commit(put("key")).unwrap();
    let question = "select count(*) from pg_proc join pg_namespace n on n.oid = pronamespace \
                    where nspname = 'one' and prosrc ilike '%notify%'";
    assert_eq!(number(&server, question), 0);
    assert_ne!(number(&server, &question.replace("notify", "advisory")), 0, "the question finds what is there");
}

/// A plan that reads the whole range and sorts it ignores the limit of a page.
#[test]
fn a_page_reads_no_more_than_a_page_whatever_the_server_prefers() {
    let Some(server) = Server::start() else { return };
    let statements = [
        "alter system set jit = on",
        "alter system set jit_above_cost = 0",
        "alter system set plan_cache_mode = auto",
        "alter system set random_page_cost = 1000",
        "select pg_reload_conf()",
    ];
    statements.into_iter().for_each(|statement| server.sql(statement));
    let engine = server.engine("one");
    // In no order, and without statistics.
    server.sql("alter table one.rows set (autovacuum_enabled = off)");
    server.sql(
        "insert into one.rows select convert_to('e' || lpad(((n * 7919) % 50000)::text, 6, '0'), 'UTF8'), 1, '1' \
         from generate_series(0, 49999) n",
    );
    let read = "select coalesce(sum(idx_tup_read), 0)::bigint from pg_stat_all_indexes where schemaname = 'one' and relname = 'rows'";
    let whole = "select coalesce(sum(seq_scan), 0)::bigint from pg_stat_all_tables where schemaname = 'one' and relname = 'rows'";
    let before = (number(&server, read), number(&server, whole));
    let pages = 20;
    for page in 0..pages {
        let (mut rows, start) = (0, format!("e{:06}", page * 100));
        engine
            .scan(start.as_bytes(), b"f", &mut |_| {
                rows += 1;
                if rows < 100 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .unwrap();
        assert_eq!(rows, 100);
        let asks: Vec<_> =
            (0..100).map(|at| Ask::Get { key: format!("e{:06}", page * 100 + at).into_bytes() }).collect();
        let answers = engine.read(&asks, ReadLimit::default()).unwrap().answers;
        assert!(answers.iter().all(|answer| matches!(answer, ReadAnswer::Row(Some(_)))));
    }
    // What a connection has counted is told when it is closed.
    drop(engine);
    let told = wait_for(&server, read, |now| now > before.0) - before.0;
    assert!(told < pages * 5000, "{told} rows of 50,000 were read for {pages} pages of 100");
    assert_eq!(number(&server, whole), before.1, "nothing reads the whole table");
}

/// A backup reads for hours, and servers of the next version begin meanwhile.
#[test]
fn a_function_that_is_added_waits_for_nobody_who_reads() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    engine.commit(put("key")).unwrap();
    let snapshot = engine.snapshot().unwrap();
    assert!(snapshot.get(b"key").unwrap().value.is_some());
    server.sql("drop function one.commit_one_v1");
    let newer = server.engine("one");
    newer.commit(put("other")).unwrap();
    assert!(snapshot.get(b"other").unwrap().value.is_none());
}

/// Serializable transactions retry nine of ten commits of names in order, and row locks use up numbers of multixacts.
#[test]
fn names_in_order_are_committed_once_and_take_no_multixacts() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (server.engine("one"), server.engine("one"));
    let multixacts = || {
        server.sql("checkpoint");
        number(&server, "select next_multixact_id::text::bigint from pg_control_checkpoint()")
    };
    one.commit(put("directory")).unwrap();
    let before = multixacts();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let engine = if thread % 2 == 0 { &one } else { &two };
            scope.spawn(move || {
                for count in 0..50 {
                    let key = format!("name{:06}", count * 8 + thread);
                    let mut batch = new(&key);
                    batch.preconditions.push(Precondition::Exists { key: b"directory".to_vec() });
                    engine.commit(batch).unwrap();
                }
            });
        }
    });
    assert_eq!(number(&server, "select count(*) from one.rows where key >= 'name' and key < 'namf'"), 400);
    assert_eq!(multixacts(), before);
}

/// A counter that is one row makes all commits wait for each other.
#[test]
fn a_counter_is_several_rows_and_its_sum_is_right() {
    let Some(server) = Server::start() else { return };
    let (one, two) = (server.engine("one"), server.engine("one"));
    // The first byte says that it is a counter.
    let key = b"l-key".to_vec();
    std::thread::scope(|scope| {
        for engine in [&one, &two] {
            let key = key.clone();
            scope.spawn(move || {
                for _ in 0..20 {
                    let add = Write::Add { key: key.clone(), delta: 3 };
                    engine.commit(Batch { writes: vec![add], ..Batch::default() }).unwrap();
                }
            });
        }
    });
    assert!(number(&server, "select count(*) from one.counters") > 1);
    let sum = one.get(&key).unwrap().value.unwrap().value;
    assert_eq!(i64::from_le_bytes(sum.as_ref().try_into().unwrap()), 120);
}

/// While an old snapshot is open no dead row can go, and each listing passes them all: none is left open between two calls.
#[test]
fn no_snapshot_stays_open_between_two_calls() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    for count in 0..50 {
        engine.commit(put(&format!("key{count:03}"))).unwrap();
    }
    let mut rows = 0;
    engine
        .scan(b"key", b"kez", &mut |_| {
            rows += 1;
            if rows < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .unwrap();
    let open = "select count(*) from pg_stat_activity where application_name = 'margay' and state <> 'active' \
                and (backend_xmin is not null or xact_start is not null)";
    assert_eq!(number(&server, open), 0);
    let snapshot = engine.snapshot().unwrap();
    assert_ne!(number(&server, open), 0, "the question finds one that is open");
    drop(snapshot);
    wait_for(&server, open, |open| open == 0);
}

/// Lets processes that stand still go on.
struct GoOn<'a>(&'a Server, String);

impl Drop for GoOn<'_> {
    fn drop(&mut self) {
        self.0.signal("CONT", &self.1);
    }
}

/// It would have the fewest calls, so all that come next would wait for it.
#[test]
fn a_connection_whose_caller_gave_up_is_not_asked_again() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    engine.commit(put("key")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = |seconds| {
        let asks = vec![Ask::Get { key: b"key".to_vec() }];
        let read = async {
            let read = engine.begin_read(asks, ReadLimit::default());
            tokio::time::timeout(Duration::from_secs(seconds), read).await
        };
        runtime.block_on(read)
    };
    read(60).unwrap().unwrap();
    let reading = "select string_agg(pid::text, ' ') from pg_stat_activity where application_name = 'margay' \
                   and query like 'select one.ask,%'";
    let pids = server.told(reading);
    server.signal("STOP", &pids);
    let _go_on = GoOn(&server, pids);
    assert!(read(1).is_err(), "its process stands still");
    read(10).expect("another connection is asked").unwrap();
}

/// One process of the server may stand still while all others answer, and so while the server is not lost.
#[test]
fn a_read_whose_process_stands_still_ends_and_the_next_one_is_answered() {
    let Some(server) = Server::start() else { return };
    let engine = server.engine("one");
    engine.commit(put("key")).unwrap();
    let asks = || vec![Ask::Get { key: b"key".to_vec() }];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // By a thread that blocks, by one of a runtime, and by the feed: each has connections of its own.
    let blocked = || engine.get(b"key").map(|_| ());
    let near = || runtime.block_on(engine.begin_read(asks(), ReadLimit::default())).map(|_| ());
    let fed = || match engine.changes(Cursor(0), 1) {
        Ok(_) | Err(FeedError::TooOld { .. }) => Ok(()),
        Err(FeedError::Failed(error)) => Err(error),
    };
    let all: [&dyn Fn() -> Result<(), EngineError>; 3] = [&blocked, &near, &fed];
    all.iter().for_each(|read| read().unwrap());
    let reading = "select string_agg(pid::text, ' ') from pg_stat_activity where application_name = 'margay' \
                   and (query like 'select one.ask,%' or query like '%changes_v1%')";
    let pids = server.told(reading);
    assert_eq!(pids.split(' ').count(), 3, "{pids}");
    server.signal("STOP", &pids);
    let _go_on = GoOn(&server, pids);
    for read in all {
        let begun = Instant::now();
        assert!(matches!(read(), Err(EngineError::Unavailable(why)) if why.contains("has not answered")));
        assert!(begun.elapsed() >= Duration::from_secs(10), "a process that is only slow is waited for");
        read().unwrap();
    }
}
