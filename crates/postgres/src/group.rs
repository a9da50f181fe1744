//! Several batches as the arguments of one `commit_v3`.
//!
//! Why:        what a call costs the server is mostly not its rows, so callers that wait at the same time share one.
//! Invariants: G1 no batch of a group writes what another one writes or asserts: the order in which they are done says nothing.
//!             G2 one with a condition on a range is alone: what another one writes may lie in it.
//!             G3 ids of locks ascend, and none is there twice.
//! Not here:   what waits (commit), what one batch is (batch).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use tokio_postgres::types::ToSql;

use crate::batch::{LOCKED_KEYS_MAX, Prepared};

/// Batches of one call.
pub(crate) const GROUP_MAX: usize = 64;
/// Bytes of keys and values of one call, unless one batch has more.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// What may be done in one call.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Each with whether it is for one batch alone.
    locks: BTreeMap<i64, bool>,
    count: usize,
    bytes: usize,
    /// Nothing is added any more.
    is_alone: bool,
}

impl Group {
    /// Whether the batch is part of it now.
    pub(crate) fn add(&mut self, batch: &Prepared) -> bool {
        let fits = self.count == 0
            || self.count < GROUP_MAX
                && !self.is_alone
                && !batch.is_alone
                && self.bytes + batch.bytes <= GROUP_BYTES_MAX
                && self.locks.len() + batch.locks.len() <= LOCKED_KEYS_MAX
                && !self.meets(batch);
        if !fits {
            return false;
        }
        for (id, is_alone) in &batch.locks {
            match self.locks.entry(*id) {
                Entry::Vacant(free) => drop(free.insert(*is_alone)),
                Entry::Occupied(held) => assert!(!held.get() && !is_alone, "batches of a group do not meet (G1)"),
            }
        }
        self.count += 1;
        self.bytes += batch.bytes;
        self.is_alone |= batch.is_alone;
        true
    }

    fn meets(&self, batch: &Prepared) -> bool {
        batch.locks.iter().any(|(id, is_alone)| self.locks.get(id).is_some_and(|held| *held || *is_alone))
    }
}

/// Columns, each as the function takes it. Numbers of batches begin with 1.
#[derive(Debug, Default)]
pub(crate) struct Arguments<'a> {
    pub(crate) batches: i32,
    pub(crate) lock_ids: Vec<i64>,
    pub(crate) lock_alone: Vec<bool>,
    pub(crate) pre_batches: Vec<i32>,
    pub(crate) pre_numbers: Vec<i32>,
    pub(crate) pre_kinds: Vec<i32>,
    pub(crate) pre_keys: Vec<&'a [u8]>,
    pub(crate) pre_ends: Vec<&'a [u8]>,
    pub(crate) pre_versions: Vec<i64>,
    pub(crate) puts: Column<'a, &'a [u8]>,
    pub(crate) deletes: Column<'a, ()>,
    pub(crate) sets: Column<'a, i64>,
    pub(crate) adds: Column<'a, i64>,
    pub(crate) maxes: Column<'a, i64>,
    pub(crate) changed: Vec<&'a [u8]>,
}

/// Writes of one kind.
#[derive(Debug)]
pub(crate) struct Column<'a, T> {
    pub(crate) batches: Vec<i32>,
    pub(crate) keys: Vec<&'a [u8]>,
    pub(crate) values: Vec<T>,
}

impl<T> Default for Column<'_, T> {
    fn default() -> Self {
        Column { batches: Vec::new(), keys: Vec::new(), values: Vec::new() }
    }
}

impl<'a, T> Column<'a, T> {
    fn extend(&mut self, batch: i32, writes: impl IntoIterator<Item = (&'a [u8], T)>) {
        for (key, value) in writes {
            self.batches.push(batch);
            self.keys.push(key);
            self.values.push(value);
        }
    }
}

impl<'a> Arguments<'a> {
    /// Of batches that are one group.
    pub(crate) fn of(batches: impl IntoIterator<Item = &'a Prepared>) -> Arguments<'a> {
        let mut all = Arguments::default();
        let mut locks = BTreeMap::new();
        for batch in batches {
            all.batches += 1;
            let number = all.batches;
            for (id, is_alone) in &batch.locks {
                *locks.entry(*id).or_insert(false) |= is_alone;
            }
            for (one, at) in batch.preconditions.iter().zip(1..) {
                all.pre_batches.push(number);
                all.pre_numbers.push(at);
                all.pre_kinds.push(one.kind);
                all.pre_keys.push(&one.key);
                all.pre_ends.push(&one.end);
                all.pre_versions.push(one.version);
            }
            let keyed = |writes: &'a [(Vec<u8>, i64)]| writes.iter().map(|(key, value)| (key.as_slice(), *value));
            all.puts.extend(number, batch.puts.iter().map(|(key, value)| (key.as_slice(), value.as_slice())));
            all.deletes.extend(number, batch.deletes.iter().map(|key| (key.as_slice(), ())));
            all.sets.extend(number, keyed(&batch.sets));
            all.adds.extend(number, keyed(&batch.adds));
            all.maxes.extend(number, keyed(&batch.maxes));
            all.changed.push(&batch.changed);
        }
        (all.lock_ids, all.lock_alone) = locks.into_iter().unzip();
        all
    }

    /// In the order of the function, behind lane, call and shard.
    pub(crate) fn arguments(&self) -> [&(dyn ToSql + Sync); 24] {
        [
            &self.batches,
            &self.lock_ids,
            &self.lock_alone,
            &self.pre_batches,
            &self.pre_numbers,
            &self.pre_kinds,
            &self.pre_keys,
            &self.pre_ends,
            &self.pre_versions,
            &self.puts.batches,
            &self.puts.keys,
            &self.puts.values,
            &self.deletes.batches,
            &self.deletes.keys,
            &self.sets.batches,
            &self.sets.keys,
            &self.sets.values,
            &self.adds.batches,
            &self.adds.keys,
            &self.adds.values,
            &self.maxes.batches,
            &self.maxes.keys,
            &self.maxes.values,
            &self.changed,
        ]
    }
}

#[cfg(test)]
mod tests {
    use margay_meta::{Batch, Guard, Precondition, Write};

    use super::*;
    use crate::batch::LockSpace;

    fn prepared(preconditions: Vec<Precondition>, keys: &[&[u8]]) -> Prepared {
        let writes = keys.iter().map(|key| Write::Put { key: key.to_vec(), value: vec![1; 10] }).collect();
        Prepared::of(Batch { preconditions, writes, payload: None }, LockSpace::of_schema("one"))
    }

    fn exists(key: &[u8]) -> Precondition {
        Precondition::Exists { key: key.to_vec() }
    }

    #[test]
    fn batches_that_meet_are_of_two_groups() {
        let mut group = Group::default();
        assert!(group.add(&prepared(vec![exists(b"d")], &[b"d1"])));
        assert!(group.add(&prepared(vec![exists(b"d")], &[b"d2"])), "both only assert it");
        assert!(!group.add(&prepared(Vec::new(), &[b"d1"])), "it is written twice");
        assert!(!group.add(&prepared(vec![exists(b"d2")], &[b"x"])), "it asserts what is written");
        assert!(!group.add(&prepared(Vec::new(), &[b"d"])), "it writes what is asserted");
        let guard = Guard::Key(b"g".to_vec());
        let range = Precondition::RangeEmpty { start: b"r".to_vec(), end: b"s".to_vec(), guard };
        assert!(!group.add(&prepared(vec![range.clone()], &[b"y"])), "a range is looked at alone (G2)");
        assert!(group.add(&prepared(Vec::new(), &[b"e"])));
        let mut alone = Group::default();
        assert!(alone.add(&prepared(vec![range], &[b"y"])) && !alone.add(&prepared(Vec::new(), &[b"e"])));
    }

    #[test]
    fn a_group_has_a_bound_of_batches_locks_and_bytes() {
        let mut group = Group::default();
        let added = (0..100u8).filter(|number| group.add(&prepared(Vec::new(), &[&[*number]]))).count();
        assert_eq!(added, GROUP_MAX);
        let many: Vec<Vec<u8>> = (0..900u16).map(|number| number.to_be_bytes().to_vec()).collect();
        let keys: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
        let mut group = Group::default();
        assert!(group.add(&prepared(Vec::new(), &[b"one"])) && group.add(&prepared(Vec::new(), &keys)));
        assert!(
            !group.add(&prepared(Vec::new(), &keys.iter().map(|_| b"x".as_slice()).take(1).collect::<Vec<_>>()))
                || group.locks.len() <= LOCKED_KEYS_MAX
        );
        let large = Write::Put { key: b"large".to_vec(), value: vec![0; GROUP_BYTES_MAX] };
        let large = Prepared::of(Batch { writes: vec![large], ..Batch::default() }, LockSpace::of_schema("one"));
        assert!(!group.add(&large) && Group::default().add(&large));
    }

    #[test]
    fn arguments_name_the_batch_of_each_write() {
        let (one, two) =
            (prepared(vec![exists(b"d"), exists(b"e")], &[b"d1"]), prepared(vec![exists(b"d")], &[b"d2", b"d3"]));
        let all = Arguments::of([&one, &two]);
        assert_eq!((all.batches, all.pre_batches, all.pre_numbers), (2, vec![1, 1, 2], vec![1, 2, 1]));
        assert_eq!(all.puts.batches, [1, 2, 2]);
        assert_eq!(all.puts.keys, [b"d1", b"d2", b"d3"]);
        assert!(all.lock_ids.is_sorted_by(|one, other| one < other), "{:?}", all.lock_ids);
        assert_eq!(all.changed.len(), 2);
    }
}
