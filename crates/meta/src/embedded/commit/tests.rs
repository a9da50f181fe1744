//! A commit between the facts of another one and its decision.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use margay_env::Env;
use margay_segment::Store;

use super::super::{EmbeddedEngine, Options};
use super::*;
use crate::Engine;

fn delete(key: &[u8]) -> Write {
    Write::Delete { key: key.to_vec() }
}

fn put(key: &[u8]) -> Write {
    Write::Put { key: key.to_vec(), value: vec![1] }
}

fn commit(engine: &EmbeddedEngine, writes: Vec<Write>) -> Committed {
    engine.commit(Batch { writes, ..Batch::default() }).unwrap()
}

#[test]
fn what_another_commit_changed_since_the_facts_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = margay_segment::Options::new(folder.path().join("segments"));
    options.reserve_bytes = 0;
    let store = Store::open(Env::real(), options).unwrap();
    let engine = EmbeddedEngine::open(Env::real(), store, Options::new(folder.path().join("tree"))).unwrap();
    let row = commit(&engine, vec![put(b"row"), put(b"a1"), put(b"a2"), put(b"a3")]).version;
    engine.checkpoint().unwrap();
    let add = |delta| Write::Add { key: b"count".to_vec(), delta };
    commit(&engine, vec![add(5), delete(b"a1")]);
    let batch = Batch {
        preconditions: vec![
            Precondition::Version { key: b"row".to_vec(), version: row },
            Precondition::Absent { key: b"new".to_vec() },
        ],
        writes: vec![add(1), delete(b"a3"), delete(b"a2")],
        payload: None,
    };
    let lower = engine.shared.lower.load_full();
    let facts = engine.shared.facts(&batch, &lower).unwrap();
    let told = |facts: &Facts| {
        let active = engine.shared.active.read();
        let view = View::new(&active, &lower, facts);
        let hold = batch.preconditions.iter().zip(&facts.conditions);
        let hold: Vec<bool> = hold.map(|(condition, fact)| view.holds(condition, fact).unwrap()).collect();
        let resolved = view.resolve(&batch.writes, &facts.writes).unwrap();
        let resolved = resolved.iter().map(|write| match write {
            Resolved::Counter { value, .. } => (i64::from_le_bytes(*value), None),
            Resolved::Delete { bury, .. } => (0, *bury),
            Resolved::Put { .. } => panic!("nothing is put"),
        });
        (hold, resolved.collect::<Vec<_>>())
    };
    let joins = |before, after| (0, Some((before, after)));
    assert_eq!(told(&facts), (vec![true, true], vec![(6, None), joins(false, false), joins(true, false)]));
    commit(&engine, vec![put(b"row"), put(b"new"), add(10), delete(b"a3")]);
    let now = (vec![false, false], vec![(16, None), (0, None), joins(true, true)]);
    assert_eq!(told(&facts), now, "with the facts of before");
    assert_eq!(told(&engine.shared.facts(&batch, &lower).unwrap()), now);
    assert!(matches!(engine.commit(batch), Err(CommitError::Conflict { precondition: 0 })));
}
