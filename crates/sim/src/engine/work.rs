//! Random batches against a running engine, by one thread or several.
//!
//! Why:        tiny keys collide, small files end, payloads and runs are named only after they are stored.
//! Invariants: each thread owns the keys that name its data, so it can read back what the engine filled in.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use margay_env::sim::SimRandom;
use margay_meta::embedded::EmbeddedEngine;
use margay_meta::{
    Batch, CommitError, Cursor, Engine, Field, Guard, Payload, Position, PositionField, Precondition, RowVersion, Write,
};
use margay_segment::{Run, RunWriter, SegmentError, SegmentId, Store};
use parking_lot::Mutex;

use super::model::{self, Model, NAMING_KEYS, Rows, apply, naming};
use crate::blob::Blob;
use crate::machine::Fault;
use crate::{Failure, fail};

/// Batches that a thread still tries after an error, to see that nothing is acknowledged any more.
const TRIES_AFTER_ERROR: u32 = 4;

pub(super) struct Work<'a> {
    pub(super) engine: &'a EmbeddedEngine,
    pub(super) store: &'a Store,
    pub(super) fault: Fault,
    pub(super) payload_bytes_max: usize,
    pub(super) threads: u64,
    pub(super) steps: u64,
    pub(super) life: u64,
}

/// What the threads did, by sequence number.
#[derive(Debug, Default)]
pub(super) struct Commits {
    pub(super) known: Mutex<std::collections::BTreeMap<u64, Vec<Write>>>,
    pub(super) acknowledged: AtomicU64,
    count: AtomicU64,
}

pub(super) struct Done {
    pub(super) acknowledged: u64,
    pub(super) commits: Commits,
}

/// How one step ended.
enum Step {
    Fine,
    /// An error that the fault explains.
    Failed,
}

struct Thread<'a> {
    work: &'a Work<'a>,
    commits: &'a Commits,
    random: SimRandom,
    number: u64,
    /// Keys of this thread that name data.
    mine: Vec<Vec<u8>>,
    /// The rows as they must be now; only when nobody else writes.
    rows: Option<Rows>,
    made: u64,
}

impl Work<'_> {
    pub(super) fn run(&self, model: &Model) -> Result<Done, Failure> {
        let commits = Commits::default();
        let left = AtomicI64::new(self.steps as i64);
        let results: Vec<Result<(), Failure>> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..self.threads)
                .map(|number| {
                    let mut thread = Thread {
                        work: self,
                        commits: &commits,
                        random: SimRandom::new(self.life ^ (number << 32)),
                        number,
                        mine: Vec::new(),
                        rows: (self.threads == 1).then(|| model.base.clone()),
                        made: 0,
                    };
                    let prefix = vec![NAMING_KEYS, b'0' + number as u8];
                    thread.mine = model.base.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
                    let left = &left;
                    scope.spawn(move || thread.run(left))
                })
                .collect();
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>| {
                thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
            };
            running.into_iter().map(ended).collect()
        });
        results.into_iter().collect::<Result<(), Failure>>()?;
        Ok(Done { acknowledged: commits.count.load(Ordering::Acquire), commits })
    }
}

impl Thread<'_> {
    fn run(mut self, left: &AtomicI64) -> Result<(), Failure> {
        let mut tries = TRIES_AFTER_ERROR;
        while left.fetch_sub(1, Ordering::AcqRel) > 0 {
            match self.step()? {
                Step::Fine => {}
                // A full disk is an answer; anything else ends the life.
                Step::Failed if matches!(self.work.fault, Fault::Full(_)) => {}
                Step::Failed if tries == 0 => return Ok(()),
                Step::Failed => tries -= 1,
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step, Failure> {
        let kind = self.random.below(100);
        if kind < 3 {
            let checkpoint = self.work.engine.checkpoint();
            return checkpoint.map_or_else(|error| self.excuse(&error.to_string()), |()| Ok(Step::Fine));
        }
        if kind < 6 {
            return self.look();
        }
        // On a full disk only what gives room back goes on.
        let adds = self.work.engine.has_room();
        match kind {
            6..45 => self.plain(adds),
            45..65 if adds => self.payload(),
            65..80 if adds => self.run_of_data(),
            _ => self.forget(),
        }
    }

    fn excuse(&self, error: &str) -> Result<Step, Failure> {
        let poisoned = error.contains("read-only after a storage fault");
        if self.work.fault.explains(error) && !(poisoned && matches!(self.work.fault, Fault::Full(_))) {
            Ok(Step::Failed)
        } else {
            Err(Failure(format!("an error that nothing explains: {error}")))
        }
    }

    /// Compares rows that were read with those that must be there.
    fn look(&self) -> Result<Step, Failure> {
        let Some(rows) = &self.rows else { return Ok(Step::Fine) };
        match model::compare(rows, self.work.engine) {
            Ok(()) => Ok(Step::Fine),
            Err(failure) => self.excuse(&failure.0).map_err(|_| failure),
        }
    }

    fn key(&self) -> Vec<u8> {
        let letters = b"abd/";
        (0..1 + self.random.below(3)).map(|_| letters[self.random.below(4) as usize]).collect()
    }

    fn plain(&mut self, adds: bool) -> Result<Step, Failure> {
        let mut writes: Vec<Write> = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            let key = self.key();
            let write = match self.random.below(10) {
                0..5 if adds => {
                    let len = [0, 20, 200, 3000][self.random.below(4) as usize];
                    let tag = self.random.below(u64::MAX);
                    Write::Put { key, value: Blob { tag, len }.bytes() }
                }
                5..7 if adds => {
                    Write::Add { key: [b"c", &key[..1]].concat(), delta: self.random.below(2000) as i64 - 1000 }
                }
                7 if adds => {
                    let (key, value) = ([b"t", &key[..1]].concat(), self.random.below(1 << 40));
                    match value % 4 {
                        0 => Write::Set { key, value: value.to_le_bytes() },
                        _ => Write::Max { key, at_least: value },
                    }
                }
                8 => Write::Delete { key: [b"c", &key[..1]].concat() },
                _ => Write::Delete { key },
            };
            if !writes.iter().any(|other| other.key() == write.key()) {
                writes.push(write);
            }
        }
        let preconditions = self.preconditions();
        self.commit(Batch { preconditions, writes, payload: None })
    }

    fn preconditions(&self) -> Vec<Precondition> {
        if !self.random.chance(30) {
            return Vec::new();
        }
        let key = self.key();
        let version = self.rows.as_ref().and_then(|rows| rows.get(&key)).map_or(1, |row| row.version);
        vec![match self.random.below(4) {
            0 => Precondition::Absent { key },
            1 => Precondition::Exists { key },
            2 => Precondition::Version { key, version: RowVersion::from_bits(version) },
            _ => Precondition::RangeEmpty { end: [&key, &b"~"[..]].concat(), start: key, guard: Guard::Written },
        }]
    }

    /// Which precondition must fail.
    fn conflict(&self, conditions: &[Precondition]) -> Option<usize> {
        let rows = self.rows.as_ref()?;
        conditions.iter().position(|condition| match condition {
            Precondition::Absent { key } => rows.contains_key(key),
            Precondition::Exists { key } => !rows.contains_key(key),
            Precondition::Version { key, version } => rows.get(key).is_none_or(|row| row.version != version.bits()),
            Precondition::RangeEmpty { start, end, .. } => rows.range(start.clone()..end.clone()).next().is_some(),
        })
    }

    fn fresh_key(&mut self) -> Vec<u8> {
        self.made += 1;
        let key = format!("{}{}/{:x}/{}", NAMING_KEYS as char, self.number, self.work.life, self.made);
        self.mine.push(key.clone().into_bytes());
        key.into_bytes()
    }

    /// Data that travels with its commit.
    fn payload(&mut self) -> Result<Step, Failure> {
        let len = 1 + self.random.below(self.work.payload_bytes_max as u64) as usize;
        let len = if self.random.chance(70) { len.min(3000) } else { len };
        let blob = Blob { tag: self.random.below(u64::MAX), len };
        let bytes = blob.bytes();
        let run = Run { segment: SegmentId(0), offset: 0, len: len as u64, crc: Run::crc_of(&bytes) };
        let key = self.fresh_key();
        let put = Write::Put { key, value: naming(&run, blob) };
        // The change log tells where this key went, without a look at the disk.
        let mark = Write::Put { key: [&b"q"[..], &[0; 16]].concat(), value: Vec::new() };
        let counter = Write::Add { key: b"l/segment-".to_vec(), delta: len as i64 };
        let place = |write, field, at, what| PositionField { write, field, at, what };
        let places = vec![
            place(0, Field::Value, 0, Position::Segment),
            place(0, Field::Value, 8, Position::Offset),
            place(1, Field::Key, 1, Position::Segment),
            place(1, Field::Key, 9, Position::Offset),
            place(2, Field::Key, 2, Position::Segment),
        ];
        let payload = Some(Payload { bytes: bytes.into(), places });
        self.commit(Batch { preconditions: Vec::new(), writes: vec![put, mark, counter], payload })
    }

    /// Data that is stored and synced before a commit names it.
    fn run_of_data(&mut self) -> Result<Step, Failure> {
        let len = [1, 5000, 70_000, 200_000][self.random.below(4) as usize] + self.random.below(100) as usize;
        let blob = Blob { tag: self.random.below(u64::MAX), len };
        let store = self.work.store;
        let stored = || -> Result<Run, SegmentError> {
            let mut writer = store.begin_run(len as u64, b"sim")?;
            let pin = store.pin(writer.segment())?;
            for piece in blob.bytes().chunks(60_000) {
                writer.write(piece)?;
            }
            let run = writer.finish()?;
            store.sync_blocking(pin.segment())?;
            Ok(run)
        };
        match stored() {
            Ok(run) => {
                let writes = vec![Write::Put { key: self.fresh_key(), value: naming(&run, blob) }];
                self.commit(Batch { preconditions: Vec::new(), writes, payload: None })
            }
            Err(error) => self.excuse(&error.to_string()),
        }
    }

    fn forget(&mut self) -> Result<Step, Failure> {
        let mut writes = vec![Write::Delete { key: self.key() }];
        for _ in 0..self.random.below(4) {
            if !self.mine.is_empty() {
                let index = self.random.below(self.mine.len() as u64) as usize;
                writes.push(Write::Delete { key: self.mine.swap_remove(index) });
            }
        }
        self.commit(Batch { preconditions: Vec::new(), writes, payload: None })
    }

    fn commit(&mut self, batch: Batch) -> Result<Step, Failure> {
        let conflict = self.conflict(&batch.preconditions);
        let (mut writes, payload) = (batch.writes.clone(), batch.payload.is_some());
        let done = match self.work.engine.commit(batch) {
            Ok(_) if conflict.is_some() => fail!("a commit went through against its precondition"),
            Ok(done) => done,
            Err(CommitError::Conflict { precondition }) => {
                if self.rows.is_some() && conflict != Some(precondition) {
                    fail!("precondition {precondition} was refused, not {conflict:?}");
                }
                return Ok(Step::Fine);
            }
            Err(error) => return self.excuse(&error.to_string()),
        };
        let seq = done.cursor.0;
        if payload {
            let Some(at) = done.payload else { fail!("commit {seq} does not say where its payload is") };
            let mut position = [0; 16];
            position[..8].copy_from_slice(&at.segment.0.to_be_bytes());
            position[8..].copy_from_slice(&at.offset.to_be_bytes());
            fill(&mut writes, &position);
        }
        if let Some(rows) = &mut self.rows {
            apply(rows, seq, &writes);
        }
        if self.commits.known.lock().insert(seq, writes).is_some() {
            fail!("sequence number {seq} was given twice");
        }
        if !self.random.chance(30) {
            return Ok(Step::Fine);
        }
        match self.work.engine.wait_durable(Cursor(seq)) {
            Ok(()) => {
                self.commits.acknowledged.fetch_max(seq, Ordering::AcqRel);
                self.commits.count.fetch_add(1, Ordering::AcqRel);
                Ok(Step::Fine)
            }
            Err(error) => self.excuse(&error.to_string()),
        }
    }
}

/// Puts the position that the engine filled in into the model's copy of the batch.
fn fill(writes: &mut [Write], position: &[u8]) {
    match writes {
        [Write::Put { value, .. }, Write::Put { key: mark, .. }, Write::Add { key: counter, .. }] => {
            value[..16].copy_from_slice(position);
            mark[1..17].copy_from_slice(position);
            counter[2..10].copy_from_slice(&position[..8]);
        }
        _ => unreachable!("made by `payload`"),
    }
}
