//! A standby takes the place of a server that lives on: nothing old is read, nothing waits without an end.
//!
//! Why: Patroni alone is killed, or a machine stands still, and the old server goes on as if nothing had happened.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]
#![allow(clippy::disallowed_methods, reason = "a real server is waited for")]

mod server;

use std::time::{Duration, Instant};

use margay_meta::{Batch, CommitError, CommitOutcome, CommitToken, Engine, EngineError, Write};
use margay_postgres::{PostgresEngine, PostgresOptions};

use crate::server::Server;

/// As long as a process waits before it uses a server that has taken the place of another one.
const OTHERS_WAIT: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(90);

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
    let old = PostgresEngine::open(&options).unwrap();
    commit(&old, b"1");
    // Through each of its connections, which stay open.
    (0..2 * options.readers).for_each(|_| assert_eq!(read(&old).unwrap(), b"1"));
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
    let new = PostgresEngine::open(&options).unwrap();
    assert_eq!(until("it is read", || read(&new)), b"3");
    drop(server);
}

#[test]
fn a_server_that_stands_still_is_left_and_its_answers_are_not_believed_later() {
    let Some((server, standby, options)) = pair() else { return };
    let engine = PostgresEngine::open(&options).unwrap();
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
    let engine = PostgresEngine::open(&options).unwrap();
    commit(&engine, b"1");
    standby.kill();
    until("who commits is told", || match engine.commit(put(b"2")) {
        Err(CommitError::Unknown(_) | CommitError::Failed(EngineError::Unavailable(_))) => Some(()),
        other => panic!("{other:?}"),
    });
    // The server shows what no standby has only once one has it.
    let refused = PostgresEngine::open(&options).map(drop);
    assert!(refused.is_err(), "a server without standbys is not used");
    standby.begin();
    commit(&engine, b"3");
    assert_eq!(until("it is read", || read(&engine)), b"3");
    drop(server);
}
