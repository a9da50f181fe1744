//! The engines of this crate against the contract test suite, and what is asked of each alone.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and damages files behind the store's back"
)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use margay_env::Env;
use margay_meta::distant::DistantEngine;
use margay_meta::embedded::{EmbeddedEngine, LOG_FILE_BYTES_MIN, Options};
use margay_meta::memory::Memory;
use margay_meta::patient::{Patience, PatientEngine};
use margay_meta::unreliable::{Faults, UnreliableEngine};
use margay_meta::*;
use margay_segment::{Extent, Run, SegmentId, Store};
use proptest::prelude::*;

#[path = "contract/suite.rs"]
mod suite;

use suite::*;

struct Opened {
    store: Arc<Store>,
    engine: EmbeddedEngine,
}

fn open(folder: &Path) -> Opened {
    let env = Env::real();
    let options = margay_segment::Options {
        folder: folder.join("segments"),
        pack_bytes_max: 1 << 20,
        raw_bytes_min: 16 << 20,
        reserve_bytes: 0,
        files_may_be_missing: false,
    };
    let store = Store::open(env.clone(), options).expect("store opens");
    let mut options = Options::new(folder.join("tree"));
    options.tree_cache_bytes = 1 << 20;
    options.log_file_bytes = LOG_FILE_BYTES_MIN;
    let engine = EmbeddedEngine::open(env, store.clone(), options).expect("engine opens");
    Opened { store, engine }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn embedded_behaves_like_the_reference(
        steps in prop::collection::vec(step(), 1..120),
        probes in prop::collection::vec(key(), 8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut opened = Some(open(folder.path()));
        let (model, mut classes) = (Memory::new().without_guards(), Classes::default());
        for step in steps {
            let engine = &opened.as_ref().expect("open between steps").engine;
            match step {
                Step::Commit { conditions, writes } => {
                    let done = engine.commit(batch(engine, &conditions, &writes));
                    check_outcomes(&done, &model.commit(batch(&model, &conditions, &writes)));
                }
                Step::Checkpoint => engine.checkpoint().expect("checkpoint"),
                Step::Reopen => {
                    engine.wait_durable(engine.last_cursor()).expect("durable");
                    drop(opened.take());
                    opened = Some(open(folder.path()));
                }
            }
            let engine = &opened.as_ref().expect("open between steps").engine;
            compare(engine, &model, &probes, &mut classes);
        }
    }

    #[test]
    fn a_patient_engine_over_an_unreliable_one_behaves_like_the_reference(
        steps in prop::collection::vec(step(), 1..80),
        probes in prop::collection::vec(key(), 4),
        seed in any::<u64>(),
        is_far in any::<bool>(),
    ) {
        let unreliable = Arc::new(UnreliableEngine::new(Arc::new(Memory::new().without_guards()), Faults::default(), seed));
        let clock = || Env::real().clock;
        let below: Arc<dyn Engine> = match is_far {
            true => Arc::new(DistantEngine::new(unreliable, clock(), std::time::Duration::ZERO)),
            false => unreliable,
        };
        let engine = PatientEngine::new(below, clock(), Patience::default());
        let (model, mut classes) = (Memory::new().without_guards(), Classes::default());
        for (index, step) in steps.into_iter().enumerate() {
            let Step::Commit { conditions, writes } = step else { continue };
            let mine = batch(&engine, &conditions, &writes);
            let done = if index % 3 == 0 { engine.commit(mine) } else { commit_told(&engine, mine, index % 3 == 1) };
            check_outcomes(&done, &model.commit(batch(&model, &conditions, &writes)));
            compare(&engine, &model, &probes, &mut classes);
        }
    }
}

#[test]
fn many_rows_over_many_logs() {
    let folder = tempfile::tempdir().unwrap();
    let model = Memory::new().without_guards();
    {
        let opened = open(folder.path());
        for number in 0..5_000u64 {
            let key = format!("k{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes();
            let batch = Batch { writes: vec![Write::Put { key, value: vec![7; 60] }], ..Batch::default() };
            model.commit(batch.clone()).unwrap();
            opened.engine.commit(batch).unwrap();
        }
        let statistics = opened.engine.statistics();
        assert!(statistics.checkpoints > 3, "the small log was folded several times");
        assert_eq!(statistics.checkpoints_by_time.iter().sum::<u64>(), statistics.checkpoints, "none took 30 s");
        compare(&opened.engine, &model, &[], &mut Classes::default());
        let first = rows(&model, b"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", usize::MAX);
        for (number, (key, ..)) in first.iter().enumerate().filter(|(number, _)| number % 7 != 0) {
            let batch = Batch { writes: vec![Write::Delete { key: key.clone() }], ..Batch::default() };
            model.commit(batch.clone()).unwrap();
            opened.engine.commit(batch).unwrap();
            if number % 500 == 0 {
                compare(&opened.engine, &model, &[], &mut Classes::default());
            }
        }
        opened.engine.wait_durable(opened.engine.last_cursor()).unwrap();
    }
    compare(&open(folder.path()).engine, &model, &[], &mut Classes::default());
}

#[test]
fn a_payload_lies_where_its_batch_says() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    {
        let opened = open(folder.path());
        for number in 0..40u8 {
            let bytes = Bytes::from(vec![number; 3000 + usize::from(number)]);
            let place = |field, at, what| PositionField { write: 0, field, at, what };
            let payload = Payload {
                bytes: bytes.clone(),
                places: vec![place(Field::Value, 0, Position::Segment), place(Field::Value, 8, Position::Offset)],
            };
            let writes = vec![Write::Put { key: vec![b'k', number], value: vec![0; 16] }];
            let done = opened.engine.commit(Batch { writes, payload: Some(payload), ..Batch::default() }).unwrap();
            opened.engine.wait_durable(done.cursor).unwrap();
            expected.push((vec![b'k', number], bytes, done.payload.expect("it had a payload")));
        }
        opened.engine.checkpoint().unwrap();
    }
    let opened = open(folder.path());
    for (key, bytes, told) in expected {
        let value = opened.engine.get(&key).unwrap().value.expect("there").value;
        let word = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().unwrap());
        assert_eq!(told, PayloadLocation { segment: SegmentId(word(0)), offset: word(8) });
        let run =
            Run { segment: SegmentId(word(0)), offset: word(8), len: bytes.len() as u64, crc: crc32c::crc32c(&bytes) };
        assert_eq!(opened.store.read(&Extent::whole(run), 0, run.len).unwrap(), bytes);
    }
}

#[test]
fn syncs_are_shared() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let (threads, each) = (32u64, 50u64);
    // All commit before anybody waits, so that it does not depend on how long a sync takes.
    let committed = std::sync::Barrier::new(threads as usize);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (engine, committed) = (&opened.engine, &committed);
            scope.spawn(move || {
                for number in 0..each {
                    let key = [thread.to_be_bytes(), number.to_be_bytes()].concat();
                    let writes =
                        vec![Write::Put { key, value: vec![1; 100] }, Write::Add { key: b"count".to_vec(), delta: 1 }];
                    let seq = engine.commit(Batch { writes, ..Batch::default() }).unwrap().cursor;
                    committed.wait();
                    engine.wait_durable(seq).unwrap();
                    assert!(engine.durable_cursor() >= seq);
                }
            });
        }
    });
    let count = opened.engine.get(b"count").unwrap().value.expect("counted").value;
    assert_eq!(i64::from_le_bytes(count[..].try_into().unwrap()), (threads * each) as i64);
    let syncs = opened.engine.statistics().log_syncs;
    assert!(syncs * 4 < threads * each, "{syncs} syncs for {} commits", threads * each);
}

#[test]
fn a_row_with_a_key_of_before_the_limit_opens_and_changes() {
    let folder = tempfile::tempdir().unwrap();
    let key = vec![b'k'; OLD_KEY_BYTES_MAX];
    let put = |engine: &dyn Engine, key: &[u8]| {
        let writes = vec![Write::Put { key: key.to_vec(), value: b"value".to_vec() }];
        engine.commit(Batch { writes, ..Batch::default() })
    };
    for _ in 0..3 {
        let opened = open(folder.path());
        let done = put(&opened.engine, &key).unwrap();
        opened.engine.wait_durable(done.cursor).unwrap();
        opened.engine.checkpoint().unwrap();
        put(&opened.engine, &key).unwrap();
    }
    let opened = open(folder.path());
    assert!(opened.engine.get(&key).unwrap().value.is_some());
    assert!(matches!(put(&opened.engine, &[key.as_slice(), b"k"].concat()), Err(CommitError::Invalid(_))));
    assert!(matches!(put(&Memory::new(), &[b'k'; KEY_BYTES_MAX + 1]), Err(CommitError::Invalid(_))));
    let writes = vec![Write::Delete { key }];
    opened.engine.commit(Batch { writes, ..Batch::default() }).unwrap();
}

/// Batches that take a counter for a plain row, or a plain row for a counter.
fn batches_of_wrong_kinds() -> Vec<Batch> {
    let (plain, sum, highest) = (|| b"k".to_vec(), || b"c".to_vec(), || b"t".to_vec());
    let put = |key| Write::Put { key, value: vec![0; 8] };
    let set = |key| Write::Set { key, value: [0; 8] };
    let add = |key| Write::Add { key, delta: 1 };
    let max = |key| Write::Max { key, at_least: 1 };
    let writes = [put(sum()), put(highest()), set(plain()), add(plain()), add(highest()), max(plain()), max(sum())];
    let version = RowVersion::from_bits(1);
    let empty = |start: &[u8], end: &[u8]| {
        let (start, end) = (start.to_vec(), end.to_vec());
        Precondition::RangeEmpty { start, end, guard: Guard::Written }
    };
    let preconditions = [
        Precondition::Version { key: sum(), version },
        Precondition::Exists { key: highest() },
        Precondition::Absent { key: sum() },
        empty(b"c", b"d"),
        empty(b"a", b"z"),
    ];
    let places = vec![PositionField { write: 0, field: Field::Key, at: 0, what: Position::Segment }];
    let payload = Some(Payload { bytes: Bytes::from_static(b"payload"), places });
    let moved = Batch { writes: vec![put(b"k1234567".to_vec())], payload, ..Batch::default() };
    let writes = writes.into_iter().map(|write| Batch { writes: vec![write], ..Batch::default() });
    let preconditions = preconditions.into_iter().map(|one| Batch {
        preconditions: vec![one],
        writes: vec![put(plain())],
        payload: None,
    });
    writes.chain(preconditions).chain([moved]).collect()
}

/// An engine that keeps counters elsewhere would not find these rows where such a batch looks for them.
#[test]
fn a_row_that_is_taken_for_one_of_another_kind_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let opened = open(folder.path());
    let clock = || Env::real().clock;
    let memory: Arc<dyn Engine> = Arc::new(Memory::with_payloads(Arc::clone(&opened.store), 1 << 10));
    let far = Arc::new(DistantEngine::new(Arc::clone(&memory), clock(), std::time::Duration::ZERO));
    let patient = PatientEngine::new(far, clock(), Patience::default());
    for engine in [&opened.engine as &dyn Engine, &*memory, &patient] {
        let counters = vec![
            Write::Add { key: b"c".to_vec(), delta: 5 },
            Write::Max { key: b"t".to_vec(), at_least: 5 },
            Write::Set { key: b"l".to_vec(), value: [5; 8] },
        ];
        engine.commit(Batch { writes: counters, ..Batch::default() }).unwrap();
        let before = rows(engine, b"", b"\xff", usize::MAX);
        for batch in batches_of_wrong_kinds() {
            let done = engine.commit(batch.clone());
            assert!(matches!(done, Err(CommitError::Invalid(_))), "{batch:?}: {done:?}");
        }
        assert_eq!(rows(engine, b"", b"\xff", usize::MAX), before);
    }
}

/// Behind a checkpoint and a restart, which replays what was set as a put.
#[test]
fn a_counter_is_set_whatever_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let value_of = |engine: &dyn Engine, key: &[u8]| {
        let row = engine.get(key).unwrap().value.expect("counted");
        u64::from_le_bytes(row.value[..].try_into().unwrap())
    };
    for value in [7_u64, 3, 900] {
        let opened = open(folder.path());
        let set = |key: &[u8]| Write::Set { key: key.to_vec(), value: value.to_le_bytes() };
        let commit = |writes| opened.engine.commit(Batch { writes, ..Batch::default() }).unwrap();
        commit(vec![set(b"c"), set(b"t")]);
        let raised = Write::Max { key: b"t".to_vec(), at_least: 5 };
        let last = commit(vec![raised, Write::Add { key: b"c".to_vec(), delta: 2 }]).cursor;
        opened.engine.wait_durable(last).unwrap();
        if value == 3 {
            opened.engine.checkpoint().unwrap();
        }
        let read = |engine: &dyn Engine| (value_of(engine, b"c"), value_of(engine, b"t"));
        assert_eq!(read(&opened.engine), (value + 2, value.max(5)));
        drop(opened);
        assert_eq!(read(&open(folder.path()).engine), (value + 2, value.max(5)));
    }
}
