//! One batch, as its call takes it.
//!
//! Invariants: B1 a batch of very many keys locks the whole volume, which all others lock together.

use std::collections::BTreeMap;

use margay_meta::{Batch, Guard, Precondition, RowKind, Write};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// With more keys, the volume is locked in place of them: the server has room for some thousand locks.
pub(crate) const LOCKED_KEYS_MAX: usize = 1000;

/// Where the ids of locks of one volume begin: two volumes in one database do not wait for each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockSpace {
    seed: u64,
}

impl LockSpace {
    pub(crate) fn of_schema(schema: &str) -> LockSpace {
        LockSpace { seed: xxh3_64_with_seed(schema.as_bytes(), 0) }
    }

    fn id(self, key: &[u8]) -> i64 {
        xxh3_64_with_seed(key, self.seed).cast_signed()
    }

    /// Of the volume itself. No key has it, since it is the id of what is longer than any key.
    fn volume(self) -> i64 {
        self.id(&[0xff; margay_meta::KEY_BYTES_MAX + 1])
    }
}

/// As the function takes it.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) kind: i32,
    pub(crate) key: Vec<u8>,
    pub(crate) end: Vec<u8>,
    pub(crate) version: i64,
}

/// A batch that waits for a call.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// Each with whether it is for this batch alone.
    pub(crate) locks: BTreeMap<i64, bool>,
    /// No other batch may be of the same call.
    pub(crate) is_alone: bool,
    /// Of its keys and values.
    pub(crate) bytes: usize,
    pub(crate) preconditions: Vec<Condition>,
    pub(crate) puts: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) deletes: Vec<Vec<u8>>,
    pub(crate) sets: Vec<(Vec<u8>, i64)>,
    pub(crate) adds: Vec<(Vec<u8>, i64)>,
    pub(crate) maxes: Vec<(Vec<u8>, i64)>,
    /// For the feed: the length in two bytes, big-endian, then the key.
    pub(crate) changed: Vec<u8>,
}

impl Prepared {
    /// Of a batch that keeps the rules of the contract.
    pub(crate) fn of(batch: Batch, space: LockSpace) -> Prepared {
        let locks = locks(&batch, space);
        let has_range = batch.preconditions.iter().any(|one| matches!(one, Precondition::RangeEmpty { .. }));
        let is_alone = has_range || locks.get(&space.volume()) == Some(&true);
        let mut prepared = Prepared { locks, is_alone, ..Prepared::default() };
        prepared.preconditions = batch.preconditions.into_iter().map(Condition::of).collect();
        batch.writes.into_iter().for_each(|one| prepared.write(one));
        prepared
    }

    fn write(&mut self, write: Write) {
        self.bytes += write.key().len();
        if write.is_exclusive() {
            let key = write.key();
            let len = u16::try_from(key.len()).expect("a key is short (Batch::check)");
            self.changed.extend_from_slice(&len.to_be_bytes());
            self.changed.extend_from_slice(key);
        }
        match write {
            Write::Put { key, value } => {
                self.bytes += value.len();
                self.puts.push((key, value));
            }
            Write::Delete { key } => self.deletes.push(key),
            Write::Set { key, value } => {
                let value = stored(RowKind::of(&key), value);
                self.sets.push((key, value));
            }
            Write::Add { key, delta } => self.adds.push((key, delta)),
            Write::Max { key, at_least } => {
                self.maxes.push((key, stored(RowKind::Highest, at_least.to_le_bytes())));
            }
        }
    }
}

impl Condition {
    fn of(precondition: Precondition) -> Condition {
        let (kind, key, end, version) = match precondition {
            Precondition::Version { key, version } => (0, key, Vec::new(), version.bits().cast_signed()),
            Precondition::Exists { key } => (1, key, Vec::new(), 0),
            Precondition::Absent { key } => (2, key, Vec::new(), 0),
            Precondition::RangeEmpty { start, end, .. } => (3, start, end, 0),
        };
        Condition { kind, key, end, version }
    }
}

/// The first bit of a `Highest` is inverted, so that signed numbers compare as the unsigned ones do.
const SIGN: u64 = 1 << 63;

/// A counter as the column has it.
pub(crate) fn stored(kind: RowKind, value: [u8; 8]) -> i64 {
    match kind {
        RowKind::Highest => (u64::from_le_bytes(value) ^ SIGN).cast_signed(),
        RowKind::Sum | RowKind::Plain => i64::from_le_bytes(value),
    }
}

/// The value of a counter's row, by the eight bytes that the functions give, big-endian.
pub(crate) fn counted(kind: RowKind, column: [u8; 8]) -> [u8; 8] {
    let bits = u64::from_be_bytes(column);
    match kind {
        RowKind::Highest => (bits ^ SIGN).to_le_bytes(),
        RowKind::Sum | RowKind::Plain => bits.to_le_bytes(),
    }
}

/// Each with whether it is for this batch alone.
fn locks(batch: &Batch, space: LockSpace) -> BTreeMap<i64, bool> {
    let asserted = batch.preconditions.iter().filter_map(|one| match one {
        Precondition::Version { key, .. } | Precondition::Exists { key } | Precondition::Absent { key } => {
            Some((key.as_slice(), false))
        }
        Precondition::RangeEmpty { guard: Guard::Key(key), .. } => Some((key.as_slice(), true)),
        Precondition::RangeEmpty { guard: Guard::Written, .. } => None,
    });
    let written = batch.writes.iter().filter(|one| one.is_exclusive()).map(|one| (one.key(), true));
    let mut locks = BTreeMap::new();
    for (key, is_alone) in asserted.chain(written) {
        *locks.entry(space.id(key)).or_insert(false) |= is_alone;
    }
    if locks.len() > LOCKED_KEYS_MAX {
        return BTreeMap::from([(space.volume(), true)]);
    }
    locks.entry(space.volume()).or_insert(false);
    locks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_locked_alone_and_very_many_keys_lock_the_volume() {
        let space = LockSpace::of_schema("one");
        let put = |number: usize| Write::Put { key: number.to_be_bytes().to_vec(), value: Vec::new() };
        let key = |number: usize| number.to_be_bytes();
        let preconditions =
            vec![Precondition::Exists { key: key(1).to_vec() }, Precondition::Absent { key: key(2).to_vec() }];
        let batch = |count| Batch {
            preconditions: preconditions.clone(),
            writes: (1..=count).map(put).collect(),
            payload: None,
        };
        let some = locks(&batch(1), space);
        assert_eq!(some.len(), 3);
        assert_eq!((some[&space.id(&key(1))], some[&space.id(&key(2))], some[&space.volume()]), (true, false, false));
        assert_eq!(locks(&batch(1001), space), BTreeMap::from([(space.volume(), true)]));
        assert_ne!(space.id(b"k"), LockSpace::of_schema("other").id(b"k"));
    }

    #[test]
    fn a_counter_comes_back_as_it_was_and_compares() {
        let values = [0u64, 1, u64::MAX >> 1, 1 << 63, u64::MAX];
        for kind in [RowKind::Sum, RowKind::Highest] {
            for value in values {
                assert_eq!(counted(kind, stored(kind, value.to_le_bytes()).to_be_bytes()), value.to_le_bytes());
            }
        }
        assert!(values.map(|value| stored(RowKind::Highest, value.to_le_bytes())).is_sorted());
    }
}
