//! Sessions end, are counted, and never outnumber their limits; guesses are slowed down.

#![allow(clippy::unwrap_used, reason = "a test stops at the first thing that it does not expect")]

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use margay_console::{
    FAILURES_PER_KEY_MAX, FAILURES_PER_PAIR_MAX, FAILURES_PER_PEER_MAX, IDLE_TIME_MAX, LIFE_TIME_MAX, PER_KEY_MAX,
    SESSIONS_MAX, Session, Sessions, Throttle, WINDOW,
};
use margay_env::sim::SimRandom;

const SECOND: Duration = Duration::from_secs(1);

fn session(key: &str) -> Session {
    Session { access_key: key.to_owned(), token: None }
}

#[test]
fn an_id_finds_its_session_and_no_other() {
    let (sessions, random) = (Sessions::default(), SimRandom::new(1));
    let ids: Vec<String> = ["a", "b"].iter().map(|key| sessions.begin(session(key), &random, SECOND)).collect();
    assert!(ids.iter().all(|id| id.len() == 64) && ids[0] != ids[1]);
    assert_eq!(sessions.find(&ids[0], SECOND), Some(session("a")));
    assert_eq!(sessions.find(&ids[1], SECOND), Some(session("b")));
    for wrong in ["", "0", &ids[0].to_uppercase(), &ids[0][..63]] {
        assert_eq!(sessions.find(wrong, SECOND), None);
    }
    sessions.end(&ids[0]);
    assert_eq!((sessions.find(&ids[0], SECOND), sessions.count()), (None, 1));
}

#[test]
fn a_session_ends_when_it_is_idle_and_when_it_is_old() {
    let (sessions, random) = (Sessions::default(), SimRandom::new(2));
    let id = sessions.begin(session("a"), &random, SECOND);
    assert!(sessions.find(&id, SECOND + IDLE_TIME_MAX).is_some(), "at the limit");
    assert!(sessions.find(&id, SECOND * 2 + IDLE_TIME_MAX * 2).is_none(), "idle for too long");
    assert_eq!(sessions.count(), 0);

    let id = sessions.begin(session("a"), &random, SECOND);
    let mut now = SECOND;
    while now < LIFE_TIME_MAX {
        assert!(sessions.find(&id, now).is_some(), "used all the time");
        now += IDLE_TIME_MAX / 2;
    }
    assert!(sessions.find(&id, LIFE_TIME_MAX + SECOND * 2).is_none(), "however much it is used");
}

#[test]
fn the_session_that_was_idle_longest_makes_room() {
    let (sessions, random) = (Sessions::default(), SimRandom::new(3));
    let ids: Vec<String> = (0..PER_KEY_MAX).map(|_| sessions.begin(session("a"), &random, SECOND)).collect();
    for id in &ids[1..] {
        assert!(sessions.find(id, SECOND * 2).is_some());
    }
    sessions.begin(session("a"), &random, SECOND * 3);
    assert_eq!(sessions.count(), PER_KEY_MAX);
    assert!(sessions.find(&ids[0], SECOND * 3).is_none(), "it was not used since it began");
    assert!(ids[1..].iter().all(|id| sessions.find(id, SECOND * 3).is_some()));

    for index in 0..SESSIONS_MAX * 2 {
        sessions.begin(session(&format!("key {index}")), &random, SECOND * 4);
    }
    assert_eq!(sessions.count(), SESSIONS_MAX);
}

#[test]
fn ids_do_not_come_again() {
    let (sessions, random) = (Sessions::default(), SimRandom::new(4));
    let ids: HashSet<String> =
        (0..500).map(|index| sessions.begin(session(&index.to_string()), &random, SECOND)).collect();
    assert_eq!(ids.len(), 500);
}

#[test]
fn a_peer_that_guesses_waits_and_others_do_not() {
    let throttle = Throttle::default();
    let peer = |last: u8| Some(IpAddr::from([10, 0, 0, last]));
    for _ in 0..FAILURES_PER_PAIR_MAX {
        assert_eq!(throttle.check(peer(1), "a", SECOND), Ok(()));
        throttle.failed(peer(1), "a", SECOND);
    }
    assert_eq!(throttle.check(peer(1), "a", SECOND * 2), Err(WINDOW - SECOND));
    assert_eq!(throttle.check(peer(1), "another", SECOND * 2), Ok(()), "others may sit behind the same proxy");
    assert_eq!(throttle.check(peer(2), "a", SECOND * 2), Ok(()), "the key's owner is somewhere else");
    assert_eq!(throttle.check(peer(1), "a", SECOND + WINDOW), Ok(()));
}

#[test]
fn a_peer_that_guesses_many_keys_waits() {
    let throttle = Throttle::default();
    for index in 0..FAILURES_PER_PEER_MAX {
        assert_eq!(throttle.check(None, &index.to_string(), SECOND), Ok(()));
        throttle.failed(None, &index.to_string(), SECOND);
    }
    assert!(throttle.check(None, "another", SECOND * 2).is_err(), "whatever it guesses");
}

#[test]
fn a_key_that_many_peers_guess_is_closed_for_a_while() {
    let throttle = Throttle::default();
    for index in 0..FAILURES_PER_KEY_MAX {
        throttle.failed(Some(IpAddr::from([10, 1, (index >> 8) as u8, index as u8])), "a", SECOND);
    }
    assert!(throttle.check(None, "a", SECOND).is_err());
    assert_eq!(throttle.check(None, "b", SECOND), Ok(()));
}

#[test]
fn what_was_right_does_not_count() {
    let throttle = Throttle::default();
    for _ in 0..FAILURES_PER_PAIR_MAX * 3 {
        assert_eq!(throttle.check(None, "a", SECOND), Ok(()));
        throttle.failed(None, "a", SECOND);
        throttle.was_right(None, "a");
    }
}
