//! What the rows must be: a base, and the commits since.
//!
//! Invariants: commits are kept with the bytes that the engine filled in, so applying them needs no engine.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use margay_meta::embedded::EmbeddedEngine;
use margay_meta::{Engine, Write, is_plain};
use margay_segment::{Extent, Run, SegmentId, Store};

use crate::blob::Blob;
use crate::{Failure, fail};

/// Bytes of a value that names stored data: segment, offset, length, tag, checksum.
pub(super) const NAMING_BYTES: usize = 36;

/// First byte of keys whose value names data.
pub(super) const NAMING_KEYS: u8 = b'p';

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ModelRow {
    pub(super) value: Vec<u8>,
    pub(super) version: u64,
}

pub(super) type Rows = BTreeMap<Vec<u8>, ModelRow>;

#[derive(Debug, Default)]
pub(super) struct Model {
    /// The rows after the commit `base_seq`.
    pub(super) base: Rows,
    pub(super) base_seq: u64,
    /// Later commits, which a power cut may have lost.
    pub(super) commits: BTreeMap<u64, Vec<Write>>,
    /// The newest commit that was said to be durable.
    pub(super) acknowledged: u64,
}

pub(super) fn apply(rows: &mut Rows, seq: u64, writes: &[Write]) {
    for write in writes {
        match write {
            Write::Put { key, value } => {
                rows.insert(key.clone(), ModelRow { value: value.clone(), version: seq });
            }
            Write::Delete { key } => {
                rows.remove(key);
            }
            Write::Set { key, value } => {
                rows.insert(key.clone(), ModelRow { value: value.to_vec(), version: seq });
            }
            Write::Add { key, delta } => count(rows, key, seq, |old| i64::from_le_bytes(old) + delta),
            Write::Max { key, at_least } => {
                count(rows, key, seq, |old| u64::from_le_bytes(old).max(*at_least) as i64);
            }
        }
    }
}

fn count(rows: &mut Rows, key: &[u8], seq: u64, change: impl Fn([u8; 8]) -> i64) {
    let row = rows.entry(key.to_vec()).or_insert_with(|| ModelRow { value: vec![0; 8], version: seq });
    let old = row.value.as_slice().try_into().expect("counters have eight bytes");
    row.value = change(old).to_le_bytes().to_vec();
}

/// A value that names data; the engine fills in the first 16 bytes for a payload.
pub(super) fn naming(run: &Run, blob: Blob) -> Vec<u8> {
    let mut value = Vec::with_capacity(NAMING_BYTES);
    value.extend_from_slice(&run.segment.0.to_be_bytes());
    value.extend_from_slice(&run.offset.to_be_bytes());
    value.extend_from_slice(&run.len.to_be_bytes());
    value.extend_from_slice(&blob.tag.to_be_bytes());
    value.extend_from_slice(&run.crc.to_be_bytes());
    value
}

fn named(value: &[u8]) -> Option<(Run, Blob)> {
    let value: &[u8; NAMING_BYTES] = value.try_into().ok()?;
    let word = |at: usize| u64::from_be_bytes(value[at..at + 8].try_into().expect("eight bytes"));
    let crc = u32::from_be_bytes(value[32..36].try_into().expect("four bytes"));
    let run = Run { segment: SegmentId(word(0)), offset: word(8), len: word(16), crc };
    Some((run, Blob { tag: word(24), len: run.len as usize }))
}

impl Model {
    /// Takes over what a new life found, if it may be so.
    pub(super) fn recovered(&mut self, engine: &EmbeddedEngine, store: &Store) -> Result<(), Failure> {
        let found = engine.last_cursor().0;
        if found < self.acknowledged {
            fail!("commit {} was acknowledged, but only those up to {found} came back", self.acknowledged);
        }
        for (seq, writes) in std::mem::take(&mut self.commits) {
            if seq > found {
                break;
            }
            if seq != self.base_seq + 1 {
                fail!("commit {} came back, which nobody made", self.base_seq + 1);
            }
            apply(&mut self.base, seq, &writes);
            self.base_seq = seq;
        }
        if self.base_seq != found {
            fail!("commits up to {found} came back, but only those up to {} were made", self.base_seq);
        }
        self.acknowledged = found;
        compare(&self.base, engine)?;
        for (key, row) in self.base.range(vec![NAMING_KEYS]..vec![NAMING_KEYS + 1]) {
            read_back(store, key, &row.value)?;
        }
        Ok(())
    }
}

/// Every row, in order, with its version if it is plain.
pub(super) fn compare(rows: &Rows, engine: &EmbeddedEngine) -> Result<(), Failure> {
    let mut expected = rows.iter();
    let mut wrong = None;
    let scanned = engine.scan(&[], &[0xff; 8], &mut |row| {
        let right = expected.next();
        let same = right.is_some_and(|(key, right)| {
            let same_version = right.version == row.version.bits() || !is_plain(key);
            key == row.key && right.value == row.value && same_version
        });
        if same {
            return ControlFlow::Continue(());
        }
        wrong = Some(format!("found {:?} of {:?}, expected {right:?}", row.key, row.version));
        ControlFlow::Break(())
    });
    scanned.map_err(|error| Failure(format!("the rows cannot be read: {error}")))?;
    if let Some(wrong) = wrong {
        fail!("{wrong}");
    }
    match expected.next() {
        Some((key, _)) => fail!("row {key:?} is lost"),
        None => Ok(()),
    }
}

pub(super) fn read_back(store: &Store, key: &[u8], value: &[u8]) -> Result<(), Failure> {
    let Some((run, blob)) = named(value) else { fail!("row {key:?} names nothing") };
    let bytes = store.read(&Extent::whole(run), 0, run.len);
    let bytes = bytes.map_err(|error| Failure(format!("the data of {key:?} ({run:?}) is lost: {error}")))?;
    if bytes != blob.bytes() {
        fail!("the data of {key:?} ({run:?}) is another's");
    }
    Ok(())
}
