//! The contract test suite: the same random batches on an engine and on the reference must give the same answers.
//!
//! Why: an engine is whatever passes this; tiny colliding keys make intervals, counters and conflicts meet often. The engines of
//!      other crates use it too.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use margay_meta::*;
use proptest::prelude::*;

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Commit { conditions: Vec<(u8, Vec<u8>, Vec<u8>, bool)>, writes: Vec<(u8, Vec<u8>, u8)> },
    Checkpoint,
    Reopen,
}

pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![b'a', b'b', b'/', 0, 255]), 1..4)
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let conditions = prop::collection::vec((0u8..4, key(), key(), any::<bool>()), 0..3);
    let writes = prop::collection::vec((0u8..10, key(), any::<u8>()), 1..6);
    prop_oneof![
        20 => (conditions, writes).prop_map(|(conditions, writes)| Step::Commit { conditions, writes }),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
    ]
}

/// A version that holds, or one that cannot.
pub(crate) fn version_of(engine: &dyn Engine, key: &[u8], right: bool) -> RowVersion {
    let row = engine.get(key).expect("readable").value;
    row.filter(|_| right).map_or(RowVersion::from_bits(u64::MAX), |row| row.version)
}

pub(crate) fn batch(
    engine: &dyn Engine,
    conditions: &[(u8, Vec<u8>, Vec<u8>, bool)],
    writes: &[(u8, Vec<u8>, u8)],
) -> Batch {
    let preconditions = conditions.iter().map(|(kind, key, other, right)| match kind {
        0 => Precondition::Version { key: key.clone(), version: version_of(engine, key, *right) },
        1 => Precondition::Exists { key: key.clone() },
        2 => Precondition::Absent { key: key.clone() },
        _ => {
            // All counters are behind these keys.
            let end = if has_counters(key, other) { b"c".to_vec() } else { other.clone() };
            Precondition::RangeEmpty { start: key.clone(), end, guard: Guard::Written }
        }
    });
    let mut batch = Batch { preconditions: preconditions.collect(), ..Batch::default() };
    for (kind, key, value) in writes {
        let counter = |table: u8| [&[table][..], key].concat();
        let write = match kind {
            0..3 => Write::Put { key: key.clone(), value: vec![*value; usize::from(*value % 50)] },
            3..6 => Write::Delete { key: key.clone() },
            6 => Write::Add { key: counter(b'c'), delta: i64::from(*value) - 128 },
            7 => Write::Max { key: counter(b't'), at_least: u64::from(*value) },
            8 => Write::Set { key: counter(b"ct"[usize::from(value % 2)]), value: i64::from(*value).to_le_bytes() },
            _ => Write::Delete { key: counter(b"ct"[usize::from(value % 2)]) },
        };
        if !batch.writes.iter().any(|other| other.key() == write.key()) {
            batch.writes.push(write);
        }
    }
    batch
}

pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>, RowVersion)>;

pub(crate) fn rows(engine: &dyn Engine, start: &[u8], end: &[u8], limit: usize) -> Rows {
    let mut rows = Vec::new();
    engine
        .scan(start, end, &mut |row| {
            rows.push((row.key.to_vec(), row.value.to_vec(), row.version));
            if rows.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("scan");
    rows
}

/// Versions of two engines: all that is promised of them is which are equal.
#[derive(Default)]
pub(crate) struct Classes {
    mine: HashMap<RowVersion, RowVersion>,
    theirs: HashMap<RowVersion, RowVersion>,
}

impl Classes {
    /// The same rows; of their versions those are equal in one engine that are in the other, except for counters.
    fn check(&mut self, mine: &Rows, theirs: &Rows, what: &dyn std::fmt::Debug) {
        let plain = |rows: &Rows| rows.iter().map(|(key, value, _)| (key.clone(), value.clone())).collect::<Vec<_>>();
        assert_eq!(plain(mine), plain(theirs), "{what:?}");
        for ((key, _, mine), (_, _, theirs)) in mine.iter().zip(theirs).filter(|((key, ..), _)| is_plain(key)) {
            let known = (*self.mine.entry(*mine).or_insert(*theirs), *self.theirs.entry(*theirs).or_insert(*mine));
            assert_eq!(known, (*theirs, *mine), "the version of {key:?}, {what:?}");
        }
    }
}

pub(crate) fn rows_of(answer: &ReadAnswer, ask: &Ask) -> (Rows, bool) {
    match (answer, ask) {
        (ReadAnswer::Row(row), Ask::Get { key }) => {
            (row.iter().map(|row| (key.clone(), row.value.to_vec(), row.version)).collect(), false)
        }
        (ReadAnswer::Rows(rows), Ask::Scan { .. }) => {
            (rows.iter().map(|row| (row.key.to_vec(), row.value.to_vec(), row.version)).collect(), rows.more)
        }
        _ => panic!("{answer:?} is no answer to {ask:?}"),
    }
}

pub(crate) fn compare(engine: &dyn Engine, model: &dyn Engine, probes: &[Vec<u8>], classes: &mut Classes) {
    let all = |engine| rows(engine, b"", b"\xff\xff\xff\xff\xff", usize::MAX);
    classes.check(&all(engine), &all(model), &"all rows");
    for pair in probes.windows(2) {
        let one = |engine: &dyn Engine| {
            rows_of(&ReadAnswer::Row(engine.get(&pair[0]).unwrap().value), &Ask::Get { key: pair[0].clone() }).0
        };
        classes.check(&one(engine), &one(model), &pair[0]);
        let (start, end) = (pair[0].as_slice(), pair[1].as_slice());
        classes.check(&rows(engine, start, end, 3), &rows(model, start, end, 3), &pair);
    }
    // All together, each alone, without the ranges, and without the counters: an engine may answer them in ways of their own.
    let asks = asks_of(probes);
    let gets: Vec<_> = asks.iter().filter(|ask| matches!(ask, Ask::Get { .. })).cloned().collect();
    compare_reads(engine, model, &gets, classes);
    let is_plain = |ask: &&Ask| matches!(ask, Ask::Get { key } if RowKind::of(key) == RowKind::Plain);
    let plain: Vec<_> = gets.iter().filter(is_plain).cloned().collect();
    compare_reads(engine, model, &plain, classes);
    compare_reads(engine, model, &asks, classes);
    asks.iter().for_each(|ask| compare_reads(engine, model, std::slice::from_ref(ask), classes));
}

fn compare_reads(engine: &dyn Engine, model: &dyn Engine, asks: &[Ask], classes: &mut Classes) {
    for limit in [ReadLimit::default(), ReadLimit { rows: 3, bytes: 1 << 20 }, ReadLimit { rows: 100, bytes: 40 }] {
        let (mine, theirs) = (engine.read(asks, limit).unwrap(), model.read(asks, limit).unwrap());
        assert_eq!(mine.answers.len(), theirs.answers.len());
        for (ask, (mine, theirs)) in asks.iter().zip(mine.answers.iter().zip(&theirs.answers)) {
            let ((mine, mine_more), (theirs, theirs_more)) = (rows_of(mine, ask), rows_of(theirs, ask));
            classes.check(&mine, &theirs, &(ask, limit));
            assert_eq!(mine_more, theirs_more, "{ask:?} within {limit:?}");
        }
        assert!(mine.one_moment || limit.rows < 9, "nobody commits meanwhile, and there are few rows");
    }
}

/// Both commit, or both refuse for the same precondition.
pub(crate) fn check_outcomes(mine: &Result<Committed, CommitError>, theirs: &Result<Committed, CommitError>) {
    match (mine, theirs) {
        (Ok(_), Ok(_)) => {}
        (Err(CommitError::Conflict { precondition: mine }), Err(CommitError::Conflict { precondition: theirs })) => {
            assert_eq!(mine, theirs);
        }
        (mine, theirs) => panic!("{mine:?} against {theirs:?}"),
    }
}

/// As a caller that waits, or one whose request is cancelled at once: what it is told is the outcome.
pub(crate) fn commit_told(engine: &dyn Engine, batch: Batch, waits: bool) -> Result<Committed, CommitError> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let told: CommitTold = Box::new(move |done| {
        let done = match done {
            Ok(done) => Ok(*done),
            Err(CommitError::Conflict { precondition }) => Err(CommitError::Conflict { precondition: *precondition }),
            Err(error) => panic!("{error}"),
        };
        sender.send(done).expect("told once, while somebody listens");
    });
    let future = engine.begin_commit(batch, told);
    if waits {
        drop(wait(future));
    } else {
        drop(future);
    }
    receiver.recv_timeout(std::time::Duration::from_secs(60)).expect("the outcome is told")
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn wait<T>(mut future: EngineFuture<'_, T>) -> T {
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => return value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Gets and scans of all kinds, some of them of nothing.
pub(crate) fn asks_of(probes: &[Vec<u8>]) -> Vec<Ask> {
    let ask = |(index, pair): (usize, &[Vec<u8>])| match index % 3 {
        0 => Ask::Get { key: pair[0].clone() },
        kind => Ask::Scan {
            start: pair[0].clone(),
            end: pair[1].clone(),
            rows_max: [2, 100][kind - 1],
            keys_only: index % 2 == 0,
        },
    };
    let whole = Ask::Scan { start: Vec::new(), end: vec![0xff; 5], rows_max: 1000, keys_only: false };
    probes.windows(2).enumerate().map(ask).chain([whole]).collect()
}
