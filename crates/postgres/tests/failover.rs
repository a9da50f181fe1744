//! A standby takes the place of a server that lives on: nothing old is read, nothing waits without an end.
//!
//! Why: Patroni alone is killed, or a machine stands still, and the old server goes on as if nothing had happened.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "a real server is waited for")]

mod server;

use std::collections::BTreeSet;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use margay_meta::{Batch, CommitError, CommitOutcome, CommitToken, Engine, EngineError, Write};
use margay_postgres::{OpenError, PostgresEngine, PostgresOptions};

use crate::server::Server;

/// As long as a process waits before it uses a server that has taken the place of another one.
const OTHERS_WAIT: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(90);
const SOCKET: &str = ".s.PGSQL.5432";
/// Longer than the others are waited for once a server that takes writes has answered.
const SLOW: Duration = Duration::from_millis(1500);

/// The connections whose beats wait for a standby.
const BEATS: &str = "select pid from pg_stat_activity where wait_event = 'SyncRep' and query like '%emit_message%'";

fn put(value: &[u8]) -> Batch {
    let writes = vec![Write::Put { key: b"k".to_vec(), value: value.to_vec() }];
    Batch { preconditions: Vec::new(), writes, payload: None }
}

/// A server whose commits wait for its standby, and how to reach both: the server first.
fn pair() -> Option<(Server, Server, PostgresOptions)> {
    let server = Server::start()?;
    drop(server.engine("one"));
    let standby = server.standby();
    server.sql("alter system set synchronous_standby_names = '*'");
    server.sql("select pg_reload_conf()");
    let mut options = server.options("one");
    options.config = options.config.replace(" user=", &format!(",{} user=", standby.place().display()));
    Some((server, standby, options))
}

fn until<T>(what: &str, mut tried: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(done) = tried() {
            return done;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A machine that is busy may let a standby answer late.
fn opened(options: &PostgresOptions) -> PostgresEngine {
    until("it is opened", || match PostgresEngine::open(options) {
        Ok(engine) => Some(engine),
        Err(OpenError::Failed(EngineError::Unavailable(_))) => None,
        Err(error) => panic!("{error:?}"),
    })
}

/// Another way to a server, through which each connection takes a while.
fn slow_way(to: &Server) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
    let socket = to.place().join(SOCKET);
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let (near, socket) = (near.unwrap(), socket.clone());
            std::thread::spawn(move || {
                std::thread::sleep(SLOW);
                let Ok(far) = UnixStream::connect(&socket) else { return };
                let (near_too, far_too) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || pass(&far_too, &near_too));
                pass(&near, &far);
            });
        }
    });
    folder
}

fn pass(mut from: &UnixStream, mut to: &UnixStream) {
    drop(std::io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Both));
}

/// The value, unless the engine cannot say.
fn read(engine: &PostgresEngine) -> Option<Vec<u8>> {
    match engine.get(b"k") {
        Ok(found) => Some(found.value.unwrap().value.to_vec()),
        Err(EngineError::Unavailable(_)) => None,
        Err(error) => panic!("{error:?}"),
    }
}

/// Whether it was committed, once that is known.
fn settled(engine: &PostgresEngine, token: CommitToken) -> bool {
    until("the outcome becomes known", || match engine.outcome(token) {
        Ok(outcome) => Some(outcome != CommitOutcome::Void),
        Err(EngineError::Unavailable(_)) => None,
        Err(error) => panic!("{error:?}"),
    })
}

fn commit(engine: &PostgresEngine, value: &[u8]) {
    until("it is committed", || match engine.commit(put(value)) {
        Ok(_) => Some(()),
        Err(CommitError::Unknown(token)) => settled(engine, token).then_some(()),
        Err(CommitError::Failed(EngineError::Unavailable(_))) => {
            // As the follower does: what was remembered is forgotten.
            drop(engine.changes(engine.last_cursor(), 1));
            None
        }
        Err(error) => panic!("{error:?}"),
    });
}

#[test]
fn a_server_whose_place_was_taken_is_not_read_any_more() {
    let Some((server, standby, options)) = pair() else { return };
    let old = opened(&options);
    commit(&old, b"1");
    // Through each of its connections, which stay open.
    (0..2 * options.readers).for_each(|_| assert_eq!(until("it is read", || read(&old)), b"1"));
    // The server is not told.
    standby.sql("select pg_promote(false)");
    until("the standby confirms no more", || {
        (server.told("select count(*) from pg_stat_replication") == "0").then_some(())
    });
    let left = Instant::now();
    until("the standby is promoted", || (standby.told("select pg_is_in_recovery()") == "f").then_some(()));
    // With one host in its URL it waits for nobody: as who has waited already.
    let at_new = standby.engine("one");
    std::thread::sleep(OTHERS_WAIT.saturating_sub(left.elapsed()));
    commit(&at_new, b"2");
    // From here on the first value is an old one, though the server that `old` is connected to knows no other.
    until("the new server is found", || {
        let found = read(&old);
        assert!(found.is_none() || found.as_deref() == Some(b"2"), "{found:?}");
        found
    });
    commit(&old, b"3");
    let new = opened(&options);
    assert_eq!(until("it is read", || read(&new)), b"3");
    drop(server);
}

#[test]
fn a_server_that_stands_still_is_left_and_its_answers_are_not_believed_later() {
    let Some((server, standby, options)) = pair() else { return };
    let engine = opened(&options);
    commit(&engine, b"1");
    server.pause(true);
    // It takes connections and bytes, and answers nothing.
    until("who commits is told", || match engine.commit(put(b"2")) {
        Err(CommitError::Unknown(_) | CommitError::Failed(EngineError::Unavailable(_))) => Some(()),
        other => panic!("{other:?}"),
    });
    assert!(read(&engine).is_none());
    standby.sql("select pg_promote()");
    commit(&engine, b"3");
    server.pause(false);
    for number in 0..20u8 {
        commit(&engine, &[number]);
        let found = until("it is read", || read(&engine));
        assert_eq!(found, [number]);
    }
}

#[test]
fn without_a_standby_nothing_is_answered() {
    let Some((server, standby, options)) = pair() else { return };
    let engine = opened(&options);
    commit(&engine, b"1");
    standby.kill();
    until("who commits is told", || match engine.commit(put(b"2")) {
        Err(CommitError::Unknown(_) | CommitError::Failed(EngineError::Unavailable(_))) => Some(()),
        other => panic!("{other:?}"),
    });
    // The server shows what no standby has only once one has it.
    let refused = PostgresEngine::open(&options).map(drop);
    assert!(refused.is_err(), "a server without standbys is not used");
    // Who looks for a server again and again leaves no connections that wait for a standby: the server would refuse others in the end.
    let mut seen = BTreeSet::new();
    let waiting = || -> BTreeSet<String> { server.told(BEATS).split_whitespace().map(str::to_owned).collect() };
    until("it is looked for several times", || {
        seen.extend(waiting());
        (seen.len() >= 4).then_some(())
    });
    until("those that were given up end", || (waiting().len() <= 1).then_some(()));
    standby.begin();
    commit(&engine, b"3");
    assert_eq!(until("it is read", || read(&engine)), b"3");
    drop(server);
}

#[test]
fn a_server_that_answers_later_than_its_standby_is_found() {
    let Some((server, standby, mut options)) = pair() else { return };
    let way = slow_way(&server);
    let direct = server.place().display().to_string();
    assert!(options.config.contains(&direct), "{}", options.config);
    options.config = options.config.replace(&direct, &way.path().display().to_string()) + " connect_timeout=60";
    let engine = opened(&options);
    commit(&engine, b"1");
    assert_eq!(until("it is read", || read(&engine)), b"1");
    drop(standby);
}
